"""Databases of images and labels of generic datasets of DIGITS 4 to 6, whose labels determine the kind of dataset."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from digits.core.recipe import CreateDataset
from digits.data.databases.folders import ArrayDatabase, is_database, open_arrays, open_database
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import UnusableSource, show
from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.classification.recipe import Databases as ClassDatabases
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.regression.recipe import MAX_TARGETS, CreateRegression
from digits.kinds.sources.target_image_recipe import TargetImageFolders

# The number of labels read to decide whether there are classes.
MAX_LABELS_READ = 1000


class Databases(Struct, frozen=True):
    """The database of the ``images``, and that of their ``labels``, if any; those for validation may be empty."""

    images: str
    labels: str = ""
    val_images: str = ""
    val_labels: str = ""

    @classmethod
    def of(cls, recipe: CreateDataset) -> Self | None:
        """Return the databases from which `recipe` made a recipe; None for other recipes."""
        if isinstance(recipe, CreateRegression) and is_database(Path(recipe.table)):
            return cls(recipe.folder, recipe.table, recipe.val_folder or "", recipe.val_table or "")
        if isinstance(recipe, CreateClassification) and isinstance(recipe.files, ClassDatabases):
            return cls(recipe.files.folder, val_images=recipe.files.val)
        if isinstance(recipe, CreateImageToImage) and recipe.train and is_database(Path(recipe.train.images)):
            return cls(recipe.train.images, val_images=recipe.val.images if recipe.val else "")
        return None

    def check(self) -> None:
        """Raise UnusableSource if the kind of dataset is not clear, or a database cannot be read."""
        self._first_image()
        if self.labels:
            _check_numbers(Path(self.labels))

    def recipe(self, settings: dict[str, Any]) -> CreateDataset:
        """Return the recipe with ``settings`` except for the size of the images; raises UnusableSource.

        Numbers become a dataset for regression, and classes one for classification; otherwise, images are their own
        targets.
        """
        own = {**settings, **self._first_image(), "resize_mode": "squash"}
        if self.labels:
            return CreateRegression(
                table=self.labels,
                folder=self.images,
                val_table=self.val_labels or None,
                val_folder=self.val_images or None,
                **own,
            )
        if self._has_classes():
            return CreateClassification(files=ClassDatabases(folder=self.images, val=self.val_images), **own)
        val = TargetImageFolders(images=self.val_images) if self.val_images else None
        return CreateImageToImage(train=TargetImageFolders(images=self.images), val=val, **own)

    def _first_image(self) -> dict[str, int]:
        """Return the width, the height and the channels of the first image."""
        database = open_arrays(Path(self.images))
        try:
            entry = next(database.entries(), None)
            if entry is None:
                raise UnusableSource(f"The database {show(self.images)} is empty.")
            data = database.read(entry.name)
            picture = images.open_picture(data, 3)
        except UnusableImage as error:
            raise UnusableSource(
                f"The first record of {show(self.images)} cannot be used: {error.reason}."
            ) from error
        finally:
            database.close()
        width, height = picture.size
        return {"width": width, "height": height, "channels": 1 if picture.mode in images.GRAYSCALE else 3}

    def _has_classes(self) -> bool:
        """Return whether the records of the images have more than one label."""
        try:
            database = open_database(Path(self.images))
        except UnusableSource:
            return False  # HDF5 files without labels
        try:
            return len({entry.label for entry in islice(database.entries(), MAX_LABELS_READ)}) > 1
        finally:
            database.close()


def _check_numbers(labels: Path) -> None:
    """Raise UnusableSource unless the first record of the database ``labels`` is a vector of numbers."""
    database = open_arrays(labels)
    try:
        if _has_images(database):
            raise UnusableSource(
                f"The labels in {show(str(labels))} are images.",
                "If they are masks, post the paths as feature_folder and label_folder to "
                "/datasets/images/segmentation; if they are other images, to /datasets/images/processing.",
            )
        _, values = next(database.vectors(), ("", []))
    finally:
        database.close()
    if not 0 < len(values) <= MAX_TARGETS:
        raise UnusableSource(
            f"The labels in {show(str(labels))} have {len(values):,} numbers; the limit is {MAX_TARGETS}.",
            "Convert the databases to TFRecord files.",
        )


def _has_images(database: ArrayDatabase) -> bool:
    try:
        entry = next(database.entries(), None)
    except UnusableSource:
        return False  # HDF5 files of vectors
    if entry is None or entry.fault:
        return False
    is_file = entry.encoding not in ("numbers", "raw pixels")
    return is_file or min(entry.shape.width, entry.shape.height) > 1
