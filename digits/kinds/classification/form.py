"""The form of a dataset for image classification."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from wtforms import BooleanField, IntegerField, SelectField, StringField
from wtforms.validators import Optional, ValidationError

from digits.core import schema
from digits.kinds.classification.overview import summarize_folder
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.dataset_form import ImageDatasetForm, check_shares, required_integer
from digits.kinds.form_fields import (
    AllowedPath,
    Between,
    NotLessThan,
    NotYet,
    OptionalInteger,
    RequiredIf,
    choices,
)
from digits.kinds.source_summary import SourceSummary


def _count(label: str, name: str, *checks: Any) -> OptionalInteger:
    limits = schema.limits(FolderSplit, name)
    between = Between(limits, "Must be at least {low}, and at most {high:,}.")
    return OptionalInteger(label, default=limits.default, validators=[Optional(), between, *checks])


class DatasetForm(ImageDatasetForm[CreateClassification]):
    """A dataset for image classification, from a folder with a sub-folder for each class."""

    SCANNED = ("folder_train", "folder_train_min_per_class", "has_val_folder", "has_test_folder")

    method = SelectField(
        "Source",
        choices=choices(("folder", "Folder"), ("textfile", "Text files"), ("s3", "S3")),
        default="folder",
        validators=[NotYet("folder")],
    )

    folder_train = StringField(
        "Training images", validators=[RequiredIf(method="folder"), AllowedPath("folder")]
    )
    folder_pct_val = required_integer("Validation split (%)", CreateClassification, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateClassification, "pct_test")
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
                f"Each class requires a separate sub-folder, and at least two are required: {field.data} has {found}."
            )

    def validate_folder_pct_test(self, field: IntegerField) -> None:
        if not self.has_test_folder.data:
            check_shares(0 if self.has_val_folder.data else self.folder_pct_val.data, field.data)

    def validate_folder_pct_val(self, field: IntegerField) -> None:
        if not self.has_val_folder.data:
            check_shares(field.data, 0)

    def scan_source(self) -> Iterator[SourceSummary]:
        separate = {split for split in ("val", "test") if self[f"has_{split}_folder"].data}
        return summarize_folder(
            self.path_of("folder_train", "folder"),
            self.folder_train_min_per_class.data or 1,
            separate,
            self.meta.data_roots.contain,
        )

    def recipe(self) -> CreateClassification:
        val, test = self.has_val_folder.data, self.has_test_folder.data
        return CreateClassification(
            train=self._split("train"),
            val=self._split("val") if val else None,
            test=self._split("test") if test else None,
            pct_val=0.0 if val else self.folder_pct_val.data,
            pct_test=0.0 if test else self.folder_pct_test.data,
            **self.image_settings(),
        )

    def fill_source(self, recipe: CreateClassification) -> None:
        self.set(
            method="folder",
            has_val_folder=recipe.val is not None,
            has_test_folder=recipe.test is not None,
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
    """Return the names of the first sub-folders that are not hidden. The task examines all of them."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                found.append(entry.name)
            if len(found) == enough:
                break
    return found
