"""The kind of dataset that old databases become."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.generic.databases import Databases
from digits.kinds.image_to_image.recipe import CreateImageToImage
from tests.old_databases import datum, picture, write_arrays, write_hdf5, write_lmdb


def images_only(folder: Path) -> Path:
    return write_arrays(folder, [picture(number) for number in range(4)])


def one_label(folder: Path) -> Path:
    return write_lmdb(folder, [datum(picture(number), 0, "PNG") for number in range(4)], key="{:08d}_0")


@pytest.mark.parametrize(
    ("write", "recipe"),
    [
        (images_only, CreateImageToImage),
        (one_label, CreateImageToImage),
        (lambda folder: write_hdf5(folder, 4), CreateClassification),
    ],
    ids=["without labels", "one label", "several labels"],
)
def test_the_labels_of_images_determine_the_kind(tmp_path: Path, write: object, recipe: type) -> None:
    assert callable(write)
    databases = Databases(str(write(tmp_path / "train_db")))
    databases.check()
    created = databases.recipe({})
    assert type(created) is recipe
    assert Databases.of(created) == databases
