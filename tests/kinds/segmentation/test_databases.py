"""Generic datasets of DIGITS 4 to 6 whose labels are images, for segmentation and image-to-image networks."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data.databases.folders import is_database, open_arrays
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.sources.target_images import TargetImageSplit
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from tests.kinds.dataset_forms import Forms
from tests.old_databases import HEIGHT, WIDTH, Pixels, datum, picture, write_arrays, write_lmdb

KEY = "{:08d}"


def mask(number: int) -> Pixels:
    """The mask of `picture`: the class 1 above the row ``1 + number % 4``."""
    pixels = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    pixels[: 1 + number % 4] = 1
    return pixels


def write_job(folder: Path, train: int = 9, backend: str = "lmdb") -> Path:
    for name, count in (("train_db", train), ("val_db", 3)):
        numbers = range(count)
        if backend == "hdf5":
            write_arrays(folder / name / "features", map(picture, numbers))
            write_arrays(folder / name / "labels", map(mask, numbers), per_file=5)
            continue
        write_lmdb(
            folder / name / "features", [datum(picture(number), 0, "PNG") for number in numbers], key=KEY
        )
        write_lmdb(folder / name / "labels", [datum(mask(number), 0) for number in numbers], key=KEY)
    return folder


@pytest.mark.parametrize(
    ("kind", "backend"),
    [("image-segmentation", "lmdb"), ("image-processing", "lmdb"), ("image-segmentation", "hdf5")],
)
def test_the_folder_of_an_old_dataset_becomes_a_dataset(tmp_path: Path, kind: str, backend: str) -> None:
    forms = Forms(kind, tmp_path / "data")
    folder = write_job(forms.data / "old", backend=backend)
    found = forms.summary(feature_folder=folder)
    assert found.facts[0].startswith("9 images with ") and not found.problems
    made = forms.create(feature_folder=folder, resize_width=WIDTH, resize_height=HEIGHT)
    assert made.counts == {"train": 9, "val": 3}
    pixels = {record.as_pixels().tobytes() for record in made.records("val")}
    assert pixels == {picture(number).tobytes() for number in range(3)}


def plan(folder: Path) -> Plan:
    folders = TargetImageFolders(images=str(folder / "features"), targets=str(folder / "labels"))
    recipe = CreateSegmentation(train=folders, pct_val=0, width=WIDTH, height=HEIGHT, processes=1)
    return reader.read(recipe, Progress())


def test_faults_of_the_databases_are_named(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "old") / "train_db"
    plan(folder)
    data = folder / "labels" / "data.mdb"
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnusableSource, match="labels cannot be read"):
        plan(folder)
    data.unlink()
    with pytest.raises(UnusableSource, match="labels"):
        plan(folder)
    data.parent.rmdir()
    write_lmdb(data.parent, [datum(mask(0), 0)], key="other{}{}")
    with pytest.raises(UnusableSource, match="No label image has the same name as an image"):
        plan(folder)


def test_masks_in_hdf5_files_belong_to_the_images_of_the_same_number(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "old", backend="hdf5") / "train_db"
    split = plan(folder).splits["train"]
    assert isinstance(split, TargetImageSplit) and sorted(split.files) == [
        f"{number:08d}" for number in range(9)
    ]
    for name, target in zip(split.files, split.targets, strict=True):
        image, label = split.images.read(name), split.target_images.read(target.name)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(image))), picture(int(name)))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(label))), mask(int(name))[..., 0])
    (folder / "labels" / "5.h5").unlink()
    (folder / "labels" / "list.txt").unlink()
    assert "4 images have no label image" in " ".join(plan(folder).warnings)


def test_vectors_in_hdf5_files_are_no_images(tmp_path: Path) -> None:
    with pytest.raises(UnusableImage, match=r"“data” in .* has shape 1×7$"):
        open_arrays(write_arrays(tmp_path / "db", [np.arange(7)])).read("00000000")


def test_damaged_hdf5_files_are_named(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "old", backend="hdf5") / "train_db"
    (folder / "labels" / "0.h5").write_bytes(b"no database")
    with pytest.raises(UnusableSource, match=r"0\.h5 in .* is damaged or not an HDF5 file"):
        plan(folder)


def test_a_folder_of_images_with_hdf5_files_is_no_database(tmp_path: Path) -> None:
    folder = write_arrays(tmp_path / "db", [picture(0)])
    assert is_database(folder)
    (folder / "list.txt").unlink()
    assert is_database(folder)
    (folder / "1.png").touch()
    assert not is_database(folder) and not is_database(tmp_path) and not is_database(folder / "none")
