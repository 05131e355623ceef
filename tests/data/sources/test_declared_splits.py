from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.declared_splits import (
    describe_splits,
    split_folders,
    split_in,
    split_named,
    split_of,
)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("Training", "train"),
        ("TRN", "train"),
        ("train2017", "train"),
        ("train_2012", "train"),
        ("valid", "val"),
        ("validation", "val"),
        ("val2017", "val"),
        ("Testing", "test"),
        ("trainer", None),
        ("train_set", None),
        ("2017", None),
        ("", None),
    ],
)
def test_names_of_splits(name: str, split: str | None) -> None:
    assert split_named(name) == split


def test_a_file_belongs_to_the_split_in_its_name_or_that_of_its_folder() -> None:
    assert split_of(Path("data/validation-00000-of-00002.parquet")) == "val"
    assert split_of(Path("Testing/1.parquet")) == "test"
    assert split_of(Path("data/all.parquet")) == "train"


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        (["train", "valid", "test"], {"train": "train", "val": "valid", "test": "test"}),
        (["Training", "Testing"], {"train": "Training", "test": "Testing"}),
        (["train", "val", "validation"], {"train": "train", "val": "val"}),
        (["only/train", "only/val", "__MACOSX", ".cache"], {"train": "only/train", "val": "only/val"}),
        (["a/b/train", "a/b/val"], {"train": "a/b/train", "val": "a/b/val"}),
        (["a/b/c/d/train", "a/b/c/d/val"], {}),
        (["train_set", "val_set"], {"train": "train_set", "val": "val_set"}),
        (["TrainData", "TestData"], {"train": "TrainData", "test": "TestData"}),
        (["train", "val_set"], {"train": "train", "val": "val_set"}),
        (["images_train", "images_val"], {"train": "images_train", "val": "images_val"}),
        (["train_images", "test"], {"train": "train_images", "test": "test"}),
        (["1_train", "2_validation"], {"train": "1_train", "val": "2_validation"}),
        (["images_train", "images_val", "labels_train", "labels_val"], {}),
        (["cat_train", "cat_test", "dog_train", "dog_test"], {}),
        (["train_station", "test_tube"], {}),
        (["train", "valley", "device"], {}),
        (["train", "bus"], {}),
        (["val", "test"], {}),
        (["train"], {}),
        ([], {}),
    ],
)
def test_folders_of_splits(tmp_path: Path, folders: list[str], found: dict[str, str]) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    assert split_folders(tmp_path) == {split: tmp_path / name for split, name in found.items()}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train_set", ("train", "")),
        ("valData", ("val", "")),
        ("Training Images", ("train", "images")),
        ("imagesTest2019", ("test", "images")),
        ("train_A", ("train", "a")),
        ("03-train", ("train", "")),
        ("train_test", None),
        ("cat", None),
    ],
)
def test_splits_in_names(name: str, found: tuple[str, str] | None) -> None:
    assert split_in(name) == found


def test_files_and_missing_folders_declare_no_splits(tmp_path: Path) -> None:
    (tmp_path / "train").touch()
    (tmp_path / "val").mkdir()
    assert split_folders(tmp_path) == split_folders(tmp_path / "away") == {}


def test_the_note_names_the_paths_below_their_common_folder() -> None:
    paths = {"train": Path("/data/set/train/labels"), "val": Path("/data/set/valid/labels")}
    assert describe_splits(paths) == (
        "The splits of the source are used: train/labels for training, valid/labels for validation."
    )
