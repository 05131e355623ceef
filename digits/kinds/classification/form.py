"""The form that makes a dataset, and the recipe it yields."""

from __future__ import annotations

import os
import secrets
from typing import Any

from wtforms import BooleanField, IntegerField, SelectField, StringField
from wtforms.validators import DataRequired, InputRequired, Length, Optional, ValidationError

from digits.core import schema
from digits.core.recipe import CreateDataset, FolderSplit
from digits.kinds.classification.job import DatasetJob
from digits.kinds.form_fields import (
    NAME_LENGTH,
    OWN_DIRECTION,
    AllowedPath,
    Between,
    JobForm,
    NotLessThan,
    NotYet,
    OptionalInteger,
    RequiredIf,
    choices,
    select,
)

ENCODINGS = choices(("png", "PNG (lossless)"), ("jpg", "JPEG (quality 90)"), ("none", "None (raw pixels)"))
CHANNELS = choices(("3", "Color"), ("1", "Grayscale"))
RESIZE_MODES = choices(
    ("squash", "Stretch"),
    ("crop", "Crop"),
    ("fill", "Fill"),
    ("half_crop", "Half crop, half fill"),
)
RESIZE_TITLES = {choice.value: choice.label for choice in RESIZE_MODES}


def _count(label: str, name: str, *checks: Any) -> OptionalInteger:
    limits = schema.limits(FolderSplit, name)
    between = Between(limits, "Must be at least {low}, and at most {high:,}.")
    return OptionalInteger(label, default=limits.default, validators=[Optional(), between, *checks])


def _integer(label: str, name: str) -> IntegerField:
    limits = schema.limits(CreateDataset, name)
    return IntegerField(
        label,
        default=int(limits.default),
        validators=[InputRequired("This field is required."), Between(limits)],
    )


class DatasetForm(JobForm):
    """A dataset for image classification, from a folder with a sub-folder for each class."""

    dataset_name = StringField(
        "Dataset name",
        validators=[DataRequired("Enter a name for the dataset."), Length(max=NAME_LENGTH)],
        render_kw=OWN_DIRECTION,
    )
    resize_channels = select("Color mode", CHANNELS, CreateDataset, "channels")
    resize_width = _integer("Width", "width")
    resize_height = _integer("Height", "height")
    resize_mode = select("Resize mode", RESIZE_MODES, CreateDataset, "resize_mode")
    encoding = select("Image encoding", ENCODINGS, CreateDataset, "encoding")
    # Accepted for scripts written for DIGITS: whatever they ask for, records go to TFRecord files.
    backend = SelectField(
        "Storage",
        choices=choices(("tfrecords", "TFRecord"), ("lmdb", "LMDB"), ("hdf5", "HDF5")),
        default="tfrecords",
    )
    compression = SelectField(
        "Compression", choices=choices(("none", "None"), ("gzip", "gzip")), default="none"
    )
    method = SelectField(
        "Source",
        choices=choices(("folder", "Folder"), ("textfile", "Text files"), ("s3", "S3")),
        default="folder",
        validators=[NotYet("folder")],
    )

    folder_train = StringField(
        "Training images", validators=[RequiredIf(method="folder"), AllowedPath("folder")]
    )
    folder_pct_val = _integer("Validation split (%)", "pct_val")
    folder_pct_test = _integer("Test split (%)", "pct_test")
    folder_train_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_train_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_train_min_per_class")
    )

    has_val_folder = BooleanField("Use a separate validation folder", default=False)
    folder_val = StringField(
        "Validation images",
        validators=[RequiredIf(method="folder", has_val_folder=True), AllowedPath("folder")],
    )
    folder_val_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_val_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_val_min_per_class")
    )

    has_test_folder = BooleanField("Use a separate test folder", default=False)
    folder_test = StringField(
        "Test images", validators=[RequiredIf(method="folder", has_test_folder=True), AllowedPath("folder")]
    )
    folder_test_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_test_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_test_min_per_class")
    )

    def validate_folder_train(self, field: StringField) -> None:
        if field.errors or self.method.data != "folder":
            return
        classes = _subfolders(field.data, enough=2)
        if len(classes) < 2:
            found = f"only “{classes[0]}”" if classes else "none"
            raise ValidationError(
                f"Each class needs a sub-folder of its own, and at least two are needed: {field.data} has {found}."
            )

    def validate_folder_pct_test(self, field: IntegerField) -> None:
        taken = (0 if self.has_val_folder.data else self.folder_pct_val.data or 0) + (field.data or 0)
        if not self.has_test_folder.data and taken >= 100:
            raise ValidationError(f"Validation and test take {taken}%: nothing is left to train on.")

    def validate_folder_pct_val(self, field: IntegerField) -> None:
        if not self.has_val_folder.data and (field.data or 0) >= 100:
            raise ValidationError("Nothing is left to train on.")

    def recipe(self) -> CreateDataset:
        """The recipe of the task; the form has been validated."""
        val, test = self.has_val_folder.data, self.has_test_folder.data
        return CreateDataset(
            train=self._split("train"),
            val=self._split("val") if val else None,
            test=self._split("test") if test else None,
            pct_val=0.0 if val else self.folder_pct_val.data,
            pct_test=0.0 if test else self.folder_pct_test.data,
            width=self.resize_width.data,
            height=self.resize_height.data,
            channels=1 if self.resize_channels.data == "1" else 3,
            resize_mode=self.resize_mode.data,
            encoding=self.encoding.data,
            seed=secrets.randbelow(2**31),
        )

    def fill(self, job: DatasetJob) -> None:
        """Fill in the configuration, the current name and the group of another job."""
        self.fill_names(job)
        self.fill_recipe(job.recipe)

    def fill_recipe(self, recipe: CreateDataset) -> None:
        """The inverse of `recipe`, except for the seed."""
        self.set(
            method="folder",
            has_val_folder=recipe.val is not None,
            has_test_folder=recipe.test is not None,
            resize_width=recipe.width,
            resize_height=recipe.height,
            resize_channels=str(recipe.channels),
            resize_mode=recipe.resize_mode,
            encoding=recipe.encoding,
        )
        if recipe.val is None:
            self.folder_pct_val.data = round(recipe.pct_val)
        if recipe.test is None:
            self.folder_pct_test.data = round(recipe.pct_test)
        for name, split in (("train", recipe.train), ("val", recipe.val), ("test", recipe.test)):
            if split:
                self[f"folder_{name}"].data = split.folder
                self[f"folder_{name}_min_per_class"].data = split.min_per_class
                self[f"folder_{name}_max_per_class"].data = split.max_per_class

    def _split(self, split: str) -> FolderSplit:
        return FolderSplit(
            folder=self[f"folder_{split}"].data,
            min_per_class=self[f"folder_{split}_min_per_class"].data or 1,
            max_per_class=self[f"folder_{split}_max_per_class"].data,
        )


def _subfolders(folder: str, enough: int) -> list[str]:
    """The names of the first sub-folders, hidden ones left out; a quick look, as the task looks thoroughly."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                found.append(entry.name)
            if len(found) == enough:
                break
    return found
