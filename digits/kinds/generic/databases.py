"""Databases of images and labels of generic datasets of DIGITS 4 to 6, whose labels determine the kind of dataset."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from digits.core.recipe import CreateDataset
from digits.data.databases.convert import Database, OldDataset, open_database
from digits.data.databases.stored import Stored
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import UnusableSource, show
from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.regression.recipe import MAX_TARGETS, CreateRegression

# The number of labels read to decide whether there are classes.
MAX_LABELS_READ = 1000


def recipe_for(databases: OldDataset, settings: dict[str, Any]) -> CreateDataset:
    """Return the recipe of ``databases`` with ``settings`` except for the size of the images; raises UnusableSource.

    Numbers become a dataset for regression, and classes one for classification; otherwise, images are their own
    targets.
    """
    database = open_database(Path(databases.train))
    own = {**settings, **_size(_first(database)), "resize_mode": "squash", "database": databases}
    if databases.targets:
        _check_numbers(_first(open_database(Path(databases.targets))), databases.targets)
        return CreateRegression(**own)
    labels = {stored.label for stored in islice(database.records(), MAX_LABELS_READ)}
    return CreateClassification(**own) if len(labels) > 1 else CreateImageToImage(**own)


def _first(database: Database) -> Stored:
    """Return the first record of a database."""
    first = next(database.records(), None)
    if first is None:
        raise UnusableSource(f"The database {show(str(database.path))} is empty.")
    return first


def _size(first: Stored) -> dict[str, int]:
    """Return the width, the height and the channels of an image."""
    try:
        picture = images.open_picture(first.image(), 3)
    except UnusableImage as error:
        raise UnusableSource(f"The record {show(first.name)} cannot be used: {error.reason}.") from error
    width, height = picture.size
    return {"width": width, "height": height, "channels": 1 if picture.mode in images.GRAYSCALE else 3}


def _check_numbers(first: Stored, path: str) -> None:
    """Raise UnusableSource unless the first record of the labels at ``path`` is a vector of numbers."""
    if first.file or (len(first.shape) == 3 and min(first.shape[1:]) > 1):
        raise UnusableSource(
            f"The labels in {show(path)} are images.",
            "If they are masks, post the paths as database_train and database_targets to "
            "/datasets/images/segmentation; if they are other images, to /datasets/images/processing.",
        )
    count = 0 if first.array is None else first.array.size
    if not 0 < count <= MAX_TARGETS:
        raise UnusableSource(
            f"The labels in {show(path)} have {count:,} numbers; the limit is {MAX_TARGETS}.",
            "Convert the databases to TFRecord files.",
        )
