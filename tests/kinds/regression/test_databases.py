"""Image regression from generic datasets of DIGITS 4 to 6."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.regression import reader
from digits.kinds.regression.recipe import CreateRegression
from tests.kinds.dataset_forms import Forms
from tests.old_databases import datum, numbers, picture, write_arrays, write_lmdb


def write_generic(folder: Path, *, train: int = 8) -> Path:
    """Write images with two numbers each: a quarter of their number, and half of the next one. The keys have nine digits."""
    for name, first, last in (("train_db", 0, train), ("val_db", train, train + 4)):
        chosen = range(first, last)
        images = [datum(picture(item), 0, "PNG") for item in chosen]
        targets = [numbers([[[0.25 * item, 0.5 * (item + 1)]]]) for item in chosen]
        write_lmdb(folder / name / "features", images, key="{:09d}")
        write_lmdb(folder / name / "labels", targets, key="{:09d}")
    return folder


def plan(folder: Path, **shares: float) -> Plan:
    recipe = CreateRegression(table=str(folder), folder=str(folder), seed=1, **{"pct_val": 0.0, **shares})
    return reader.read(recipe, Progress())


def test_a_generic_dataset_has_its_images_numbers_and_splits(tmp_path: Path) -> None:
    made = plan(write_generic(tmp_path / "job"), pct_test=25.0)
    assert made.target.names == ["label 1", "label 2"]
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 6, "val": 4, "test": 2}
    for name, split in made.splits.items():
        for place, (first, second) in enumerate(split.targets):
            number = int(first * 4)
            assert second == 0.5 * (number + 1) and int(split.files[place]) == number - (
                8 if name == "val" else 0
            )
            (data,) = made.read(split, place)
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), picture(number))
    assert made.splits["test"].source == str(tmp_path / "job" / "train_db" / "features")


def _labels(values: list[bytes], key: str = "{:09d}") -> Callable[[Path], object]:
    def change(job: Path) -> None:
        for path in sorted((job / "train_db" / "labels").iterdir()):
            path.unlink()
        (job / "train_db" / "labels").rmdir()
        write_lmdb(job / "train_db" / "labels", values, key=key)

    return change


GOOD = [numbers([[[1, 2]]])] * 8
FAULTY = "000000007 of .* cannot be used: "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_labels(GOOD[:7]), "train_db has 8 images, but 7 labels"),
        (_labels(GOOD, "{:08d}"), "000000000 of .* cannot be used: its label has a different key, 00000000"),
        (_labels([*GOOD[:7], numbers([[[1]]])]), f"{FAULTY}it has 1 number, but the first record has 2"),
        (_labels([*GOOD[:7], numbers([[[1, np.nan]]])]), f"{FAULTY}a label is NaN"),
        (_labels([*GOOD[:7], datum(picture(1), 1, "PNG")]), f"{FAULTY}it is an image"),
        (_labels([numbers(np.zeros((3, 6, 8)))] * 8), "it has 144 numbers; the limit is 100"),
        (_labels([]), "but 0 labels"),
        (lambda job: (job / "train_db/labels").rename(job / "moved"), "is not a generic DIGITS dataset"),
    ],
)
def test_faults_are_named(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    job = write_generic(tmp_path / "job")
    change(job)
    with pytest.raises(UnusableSource, match=message):
        plan(job)


def test_the_form_describes_a_generic_dataset(tmp_path: Path) -> None:
    forms = Forms("image-regression", tmp_path)
    found = forms.summary(table_train=write_generic(tmp_path / "job"))
    assert found.facts[:2] == [
        "A generic DIGITS dataset with 12 images: train 8, val 4.",
        "Ranges: label 1 0 to 1.75, label 2 0.5 to 4.",
    ]
    assert sum(count for _, count in found.bars) == 8
    assert found.bars_title == "Target distribution"
    (tmp_path / "empty").mkdir()
    errors = forms.errors(table_train=tmp_path / "empty")
    assert "contains no Parquet files" in errors["table_train"][0]


def write_hdf5_job(folder: Path, vectors: Iterable[object] | None = None) -> Path:
    """Write eight images and, by default, two numbers each, divided differently among HDF5 files."""
    write_arrays(folder / "train_db" / "features", map(picture, range(8)), per_file=3)
    chosen = [[0.25 * item, item] for item in range(8)] if vectors is None else vectors
    write_arrays(folder / "train_db" / "labels", chosen, per_file=5)
    return folder


@pytest.mark.parametrize("shape", [(2,), (2, 1, 1)])
def test_numbers_in_hdf5_files_belong_to_the_images_of_the_same_number(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    vectors = [np.array([0.25 * item, item]).reshape(shape) for item in range(8)]
    made = plan(write_hdf5_job(tmp_path / "job", vectors))
    assert made.target.names == ["label 1", "label 2"]
    split = made.splits["train"]
    for place, (first, second) in enumerate(split.targets):
        assert first * 4 == second == int(split.files[place])
        (data,) = made.read(split, place)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), picture(int(second)))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0]] * 7, "train_db has 8 images, but 7 labels"),
        ([[1.0, np.nan]] * 8, "00000000 of .* cannot be used: a label is NaN"),
        ([*[[1.0, 2.0]] * 5, *[[1.0]] * 3], "00000005 of .* it has 1 number, but the first record has 2"),
        ([np.zeros(101)] * 8, "it has 101 numbers; the limit is 100"),
        ([np.zeros((1, 1, (1 << 20) + 1), np.uint8)] * 8, r"The records in 0\.h5 have 1,048,577 values"),
    ],
)
def test_faults_of_numbers_in_hdf5_files_are_named(
    tmp_path: Path, vectors: list[object], message: str
) -> None:
    job = write_hdf5_job(tmp_path / "job", vectors)
    with pytest.raises(UnusableSource, match=message):
        plan(job)


def test_faults_of_arrays_in_hdf5_files_are_named(tmp_path: Path) -> None:
    job = write_hdf5_job(tmp_path / "job")
    with h5py.File(job / "train_db" / "labels" / "5.h5", "a") as file:
        del file["data"]
        file["data"] = 1.0
    with pytest.raises(UnusableSource, match=r"“data” in 5\.h5 is a single value"):
        plan(job)
    with h5py.File(job / "train_db" / "labels" / "5.h5", "a") as file:
        del file["data"]
    with pytest.raises(UnusableSource, match=r"5\.h5 has no dataset “data”"):
        plan(job)
    vectors = write_hdf5_job(tmp_path / "vectors")
    write_arrays(vectors / "val_db" / "features", [[1.0, 2.0]])
    write_arrays(vectors / "val_db" / "labels", [[1.0, 2.0]])
    with pytest.raises(UnusableSource, match=r"“data” in 0\.h5 has shape 1×2"):
        plan(vectors)
