"""Columns of tables that declare the splits of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from digits.data.sources.plan import UnusableSource
from digits.data.tables.columns import survey
from digits.data.tables.split_columns import SplitColumns, find_split_columns


def found(**columns: Sequence[object]) -> SplitColumns | None:
    rows = [list(map(str, cells)) for cells in zip(*columns.values(), strict=True)]
    return find_split_columns(list(columns), survey(rows, range(len(columns))))


def splits(**columns: Sequence[object]) -> list[str]:
    """Return the split of each row."""
    declared = found(**columns)
    assert declared
    rows = zip(*columns.values(), strict=True)
    return [declared.split_of(list(map(str, cells))) for cells in rows]


@pytest.mark.parametrize(
    "name", ["split", "phase", "dataset", "split_set", "train_test", "Usage", "anything"]
)
@pytest.mark.parametrize(
    "values",
    [
        ("train", "valid", "test"),
        ("Training", "PublicTest", "PrivateTest"),
        ("train_set", "val_set", "test_set"),
    ],
)
def test_words_in_any_column(name: str, values: tuple[str, ...]) -> None:
    assert splits(n=range(3), **{name: values}) == ["train", "val", "test"]
    declared = found(**{name: values})
    assert declared and declared.remark == f"The column “{name}” declares the splits."


def test_words_after_many_rows() -> None:
    assert splits(where=[*["train"] * 300, "val"])[-1] == "val"


def test_numbers_of_celeba() -> None:
    assert splits(partition=[0, 1, 2]) == ["train", "val", "test"]


@pytest.mark.parametrize("values", [(True, False), (1, 0), ("1.0", "0.0"), ("yes", "no"), ("Y", "N")])
@pytest.mark.parametrize("name", ["is_valid", "isValid", "validation", "is_val", "in_validation_set", "val"])
def test_truth_values(name: str, values: tuple[object, object]) -> None:
    assert splits(cat=[1, 0], **{name: values}) == ["val", "train"]


def test_truth_values_of_several_columns() -> None:
    assert splits(is_val=[1, 0, 0], is_test=[0, 1, 0]) == ["val", "test", "train"]
    assert splits(train=[1, 0, 0], val=[0, 1, 0], test=[0, 0, 1]) == ["train", "val", "test"]
    assert splits(is_training_image=[1, 0]) == ["train", "val"]
    declared = found(is_val=[1, 0], is_test=[0, 1])
    assert declared
    with pytest.raises(ValueError, match="is_val, is_test name several splits"):
        declared.split_of(["1", "1"])
    with pytest.raises(ValueError, match="“maybe” is not a split"):
        declared.split_of(["maybe", "1"])


def test_the_first_fold_is_for_validation() -> None:
    assert splits(fold=[2, 1, 0]) == ["train", "train", "val"]
    assert splits(kfold=["fold2", "fold1", "fold10"]) == ["train", "val", "train"]
    declared = found(fold=[2, 1, 0])
    assert declared and "3 folds: 0 is used for validation" in declared.remark


@pytest.mark.parametrize(
    "columns",
    [
        {"label": ["train", "bus"]},
        {"car": [0, 1], "train": [1, 0]},
        {"where": ["train", "train"]},
        {"place": ["train station", "test track"]},
        {"set": [1, 2]},
        {"age": [1, 2]},
        {"n": ["", ""]},
    ],
)
def test_other_columns(columns: dict[str, list[object]]) -> None:
    assert found(**columns) is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"split": [0, 1]}, "The column “split” may declare splits, but its values are 0, 1"),
        ({"subset": ["val", "test"]}, "“subset” declares no split for training: test, val"),
        (
            {"split": ["train", "val"], "phase": ["val", "train"]},
            "Several columns declare splits: split, phase",
        ),
        (
            {"is_val": [0, 1], "validation": [0, 1]},
            "Several columns declare the same split: is_val, validation",
        ),
        ({"fold": ["a", "b"]}, "“fold” may declare folds, but its values are a, b"),
    ],
)
def test_unclear_columns_are_refused(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        found(**columns)


@pytest.mark.parametrize("name", ["split", "anything"])
def test_another_value_is_a_fault_of_its_row(name: str) -> None:
    declared = found(**{name: ["TRAIN", "VALIDATION", "UNASSIGNED"]})
    assert declared
    with pytest.raises(ValueError, match="“UNASSIGNED” is not a split"):
        declared.split_of(["UNASSIGNED"])
