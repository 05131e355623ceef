"""The splits of a dataset."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
SPLIT_TITLES: dict[str, str] = {"train": "Training", "val": "Validation", "test": "Test"}
