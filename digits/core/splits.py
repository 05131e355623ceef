"""The splits of a dataset."""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
TITLES: dict[Split, str] = {"train": "Training", "val": "Validation", "test": "Test"}
