"""Datasets of DIGITS 4 to 6 become datasets of each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.errors import DigitsError
from digits.data import manifest
from digits.data.targets.boxes import IGNORED_BOX
from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.detection.recipe import CreateDetection
from digits.worker.failure import UserFault
from tests.kinds.dataset_forms import Created, Forms, create
from tests.old_databases import (
    HEIGHT,
    NAMES,
    WIDTH,
    OldDataset,
    Pixels,
    datum,
    numbers,
    picture,
    write_arrays,
    write_hdf5,
    write_job,
    write_lmdb,
)

SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT}


def mask(number: int) -> Pixels:
    """The mask of `picture`: the class 1 above the row ``1 + number % 4``."""
    pixels = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    pixels[: 1 + number % 4] = 1
    return pixels


def slopes(number: int) -> list[float]:
    return [0.25 * number, number + 1]


def objects(number: int, rows: int = 4) -> np.ndarray[Any, Any]:
    """Two objects and a region to ignore as DetectNet stores them, float32 [1, rows, 16]; none in the image 3."""
    found = [] if number == 3 else [(1, 1, 1, 6, 5), (0, 0, 0, 2, 2), (8, 2, 1, 7, 4)]
    array = np.zeros((1, rows, 16), np.float32)
    array[0, 0, :2] = len(found), 16
    for row, (kind, left, top, right, bottom) in zip(array[0, 1:], found, strict=False):
        row[:6] = left, top, right - left, bottom - top, 0, kind
    return array


LABELS: dict[str, Callable[[int], Any]] = {
    "image-regression": lambda number: np.array(slopes(number)).reshape(1, 1, 2),
    "image-segmentation": mask,
    "image-processing": mask,
    "image-object-detection": objects,
}


def write_generic(folder: Path, kind: str, backend: str) -> Path:
    """Write the folder of a generic dataset with nine images for training, and three for validation."""
    for name, chosen in (("train_db", range(9)), ("val_db", range(9, 12))):
        labels = [LABELS[kind](number) for number in chosen]
        if backend == "hdf5":
            write_arrays(folder / name / "features", map(picture, chosen))
            planes = [label.transpose(1, 2, 0) if label.dtype != np.uint8 else label for label in labels]
            write_arrays(folder / name / "labels", planes, per_file=5)
            continue
        pictures = [datum(picture(number), 0, "PNG") for number in chosen]
        values = [datum(label, 0) if label.dtype == np.uint8 else numbers(label) for label in labels]
        write_lmdb(folder / name / "features", pictures, key="{:08d}")
        write_lmdb(folder / name / "labels", values, key="{:08d}")
    return folder


def made_from(made: Created, split: str) -> dict[int, Any]:
    """Return the records of a split by the number of their `picture`."""
    pictures = {picture(number).tobytes(): number for number in range(12)}
    return {pictures[record.as_pixels().tobytes()]: record for record in made.records(split)}


@pytest.mark.parametrize("backend", ["lmdb", "hdf5"])
@pytest.mark.parametrize("kind", LABELS)
def test_generic_datasets_become_datasets(tmp_path: Path, kind: str, backend: str) -> None:
    forms = Forms(kind, tmp_path / "data")
    job = write_generic(forms.data / "job", kind, backend)
    found = forms.summary(method="database", database_train=job)
    assert found.facts[0] == "12 records in 2 databases."
    assert not found.problems or kind == "image-object-detection"
    assert [row[:3] for row in found.table] == [
        ["Training", backend.upper(), "9"],
        ["Validation", backend.upper(), "3"],
    ]
    assert found.sizes[0] == (WIDTH, HEIGHT)
    made = forms.create(method="database", database_train=job, **SIZE)
    assert made.counts == {"train": 9, "val": 3}
    assert made.manifest.source["train"] == str(job / "train_db" / "features")
    assert not (made.folder / manifest.CONVERTED_FOLDER).exists()
    records = made_from(made, "train") | made_from(made, "val")
    assert sorted(records) == [*range(12)]
    target = made.manifest.target
    for number, record in records.items():
        value = record.target(target)
        if kind == "image-regression":
            assert value.tolist() == slopes(number)
        elif kind == "image-object-detection":
            assert int((value[:, 2] > 0).sum()) == (0 if number == 3 else 3)
        else:
            assert np.array_equal(np.squeeze(value)[..., :1].max(), mask(number).max())
            if kind == "image-segmentation":
                assert np.array_equal(value, mask(number)[..., 0])
    if kind == "image-regression":
        assert target.names == ["label 1", "label 2"]
    if kind == "image-object-detection":
        assert target.names == ["car", "person"]
        boxes = [[1, 1, 6, 5, 0], [0, 0, 2, 2, IGNORED_BOX], [2, 1, 7, 4, 1]]
        assert records[0].target(target).tolist() == boxes


def test_the_chosen_classes_are_the_names_of_the_numbers_in_detectnet(tmp_path: Path) -> None:
    job = write_generic(tmp_path / "job", "image-object-detection", "lmdb")
    settings = {"database": OldDataset(train=str(job)), "width": WIDTH, "height": HEIGHT, "processes": 1}
    create(CreateDetection(classes=["DontCare", "bus", *"abcdef", "tram"], **settings), tmp_path / "new")
    assert manifest.load(tmp_path / "new").target.names == ["bus", "tram"]
    with pytest.raises(UserFault, match="object 3: the class 8 is not between 0 and 1"):
        create(CreateDetection(classes=["dontcare", "bus"], **settings), tmp_path / "other")


@pytest.mark.parametrize(
    ("backend", "encoding", "channels"),
    [("lmdb", "PNG", 3), ("lmdb", "PNG", 1), ("lmdb", "none", 3), ("lmdb", "none", 1), ("hdf5", "none", 3)],
)
def test_the_folder_of_an_old_job_becomes_a_dataset_with_the_same_pixels(
    tmp_path: Path, backend: str, encoding: str, channels: int
) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    job = write_job(forms.data / "job", backend=backend, encoding=encoding, channels=channels)
    fields = {"method": "database", "database_train": job}
    found = forms.summary(**fields)
    assert found.facts[0] == "18 records in 2 databases." and found.problems == []
    assert found.bars == [(name, 4) for name in NAMES]
    made = forms.create(**fields, **SIZE, resize_channels=channels)
    assert made.manifest.target.names == list(NAMES) and made.counts == {"train": 12, "val": 6}
    for number, record in enumerate(made.records("train")):
        assert record.target(made.manifest.target) == number % 3
        assert np.array_equal(record.as_pixels(), picture(number, channels))
    first = 0 if backend == "hdf5" else 12
    assert np.array_equal(made.records("val")[2].as_pixels(), picture(first + 2, channels))


def test_single_databases_have_the_labels_of_a_file_or_numbers(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    train = write_lmdb(forms.data / "one", [datum(picture(item), item % 3) for item in range(12)])
    val = write_hdf5(forms.data / "two", 6, compression="gzip")
    fields = {"method": "database", "database_train": train, **SIZE}
    made = forms.create(**fields, folder_pct_val=25, folder_pct_test=25)
    assert made.manifest.target.names == ["0", "1", "2"]
    assert made.counts == {"train": 6, "val": 3, "test": 3}
    names = forms.data / "names.txt"
    names.write_text("\n".join(NAMES))
    made = forms.create(**fields, database_val=val, database_test=val / "4.h5", database_labels=names)
    assert made.manifest.target.names == list(NAMES)
    assert made.counts == {"train": 12, "val": 6, "test": 2}
    assert np.array_equal(made.records("test")[1].as_pixels(), picture(5))


def recipe(folder: Path, **settings: Any) -> CreateClassification:
    size = {"width": WIDTH, "height": HEIGHT, "processes": 1, "seed": 1, "pct_val": 0}
    return CreateClassification(database=OldDataset(train=str(folder)), **{**size, **settings})


def test_unusable_records_are_skipped_and_listed(tmp_path: Path) -> None:
    values = [datum(picture(item), item % 3, "PNG") for item in range(12)]
    values[4] = datum(picture(4), 1, "PNG").replace(b"IDAT", b"IDXX")
    values[5] = b"some text"
    folder = write_lmdb(tmp_path / "db", values)
    create(recipe(folder, max_unusable_percent=20), tmp_path / "new")
    made = manifest.load(tmp_path / "new")
    assert made.splits["train"].count == 10 and made.skipped == 2
    skipped = (tmp_path / "new" / manifest.SKIPPED_FILE).read_text()
    assert f"{folder}/00000005_2,it is not a Caffe Datum" in skipped and "not an image" in skipped
    with pytest.raises(UserFault, match="2 of 12 images cannot be used, more than the limit of 5%"):
        create(recipe(folder, max_unusable_percent=5), tmp_path / "other")
    assert not (tmp_path / "other" / manifest.CONVERTED_FOLDER).exists()


def test_labels_without_an_image_are_a_warning(tmp_path: Path) -> None:
    job = write_generic(tmp_path / "job", "image-segmentation", "hdf5")
    features = job / "train_db" / "features"
    (features / "8.h5").unlink()
    (features / "list.txt").unlink()
    made = Forms("image-segmentation", tmp_path).create(method="database", database_train=job, **SIZE)
    assert made.counts == {"train": 8, "val": 3}
    assert any("1 label in" in text and "belong to no image: not used" in text for text in made.remarks)


def test_the_form_names_faults(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    outside, job = write_job(tmp_path / "job"), write_job(forms.data / "job")
    (job / "labels.txt").write_text("cold\nwarm\n")
    found = forms.summary(method="database", database_train=job)
    assert "4 records cannot be used: the class 2 is none of the named ones, 0 to 1" in found.problems[0]
    (job / "labels.txt").unlink()
    (message,) = forms.errors(method="database", database_train=job)["database_train"]
    assert "has no labels.txt" in message
    (job / "train_db" / "data.mdb").write_text("text")
    assert "not an LMDB file" in forms.summary(method="database", database_train=job).problems[0]
    with pytest.raises(DigitsError, match="outside the folders"):
        forms.summary(method="database", database_train=outside)
    for path, message in ((job, "not an LMDB file"), (outside, "outside the folders"), ("", "required")):
        (error,) = forms.errors(method="database", database_train=path)["database_train"]
        assert message in error.replace("Enter", "required")


def test_databases_in_other_fields_are_refused_with_the_source_to_choose(tmp_path: Path) -> None:
    forms = Forms("image-segmentation", tmp_path)
    job = write_generic(tmp_path / "job", "image-segmentation", "lmdb")
    for folder in (job, job / "train_db" / "features"):
        errors = forms.errors(feature_folder=folder, label_folder=job / "train_db" / "labels")
        assert "Choose the source “LMDB, HDF5” (method=database)" in errors["feature_folder"][0]
