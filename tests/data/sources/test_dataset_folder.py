"""The layouts of datasets of the Hugging Face Hub: splits, shards, patterns and metadata files."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.dataset_folder import find
from digits.data.sources.plan import UnusableSource

SHARDS = [f"data/train-{number:05d}-of-00002.parquet" for number in range(2)]
VALIDATION = "data/validation-00000-of-00001.parquet"


def make(root: Path, *names: str) -> None:
    """Create empty files."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def tables(root: Path, path: str = "") -> dict[str, list[str]]:
    """The tables of the splits at ``path``, relative to ``root``."""
    found = find(root / path).tables
    return {split: [str(file.relative_to(root)) for file in files] for split, files in found.items()}


@pytest.mark.parametrize(
    ("files", "path", "splits"),
    [
        ([*SHARDS, VALIDATION], "", {"train": SHARDS, "val": [VALIDATION]}),
        ([*SHARDS, VALIDATION], SHARDS[0], {"train": SHARDS}),
        ([*SHARDS, VALIDATION], "data/train-*", {"train": SHARDS}),
        ([*SHARDS, VALIDATION], "data/*.parquet", {"train": SHARDS, "val": [VALIDATION]}),
        ([*SHARDS, VALIDATION], VALIDATION, {"train": [VALIDATION]}),
        (
            ["test/0.parquet", "train/0.parquet"],
            "",
            {"train": ["train/0.parquet"], "test": ["test/0.parquet"]},
        ),
        (["metadata.jsonl", "a.png"], "", {"train": ["metadata.jsonl"]}),
        (
            ["dev/metadata.csv", "train/metadata.csv"],
            "",
            {"train": ["train/metadata.csv"], "val": ["dev/metadata.csv"]},
        ),
        (["train/cat/a.png"], "", {}),
        (["b[1].csv"], "b[1].csv", {"train": ["b[1].csv"]}),
    ],
)
def test_the_files_of_each_split(
    tmp_path: Path, files: list[str], path: str, splits: dict[str, list[str]]
) -> None:
    make(tmp_path, *files)
    assert tables(tmp_path, path) == splits


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        (SHARDS[1:], "", "1 of 2 shards are missing: train-00000-of-00002.parquet"),
        (SHARDS[1:], SHARDS[1], "1 of 2 shards are missing"),
        ([VALIDATION], "", "None of the Parquet files is for training: validation-00000"),
        ([VALIDATION], "data/train*", r"No file matches .*train\*"),
        (["train/metadata.csv", "test/a.png"], "", "test has no metadata.csv or metadata.jsonl"),
        (["train/a/a.png"], "", "contains no table"),
    ],
)
def test_incomplete_datasets_are_refused(tmp_path: Path, files: list[str], path: str, message: str) -> None:
    make(tmp_path, *files)
    with pytest.raises(UnusableSource, match=message):
        find(tmp_path / path).need_tables()


def test_the_only_table_of_a_folder_lists_its_images(tmp_path: Path) -> None:
    make(tmp_path, "angles.csv", "images/a.png")
    found = find(tmp_path)
    assert not found.tables  # a table beside class folders is no reason to read it
    found.need_tables()
    assert found.tables == {"train": [tmp_path / "angles.csv"]}
    make(tmp_path, "other.tsv")
    with pytest.raises(UnusableSource, match=r"several tables: angles\.csv, other\.tsv"):
        find(tmp_path).need_tables()
