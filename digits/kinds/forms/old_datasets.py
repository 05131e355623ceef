"""Datasets of DIGITS 4 to 6 in the forms of datasets: the fields, and the source."""

from __future__ import annotations

from typing import Any, Generic

from digits.data.databases.convert import OldDataset
from digits.kinds.forms.dataset import SharesForm
from digits.kinds.forms.fields import AllowedFiles, RequiredIf, optional_path, text_field
from digits.kinds.forms.source import FormSource
from digits.kinds.recipes import AnyRecipe, FromDatabases

# The value of the field `method` for datasets of DIGITS 4 to 6.
METHOD = "database"


class OldDatasetFields(SharesForm[AnyRecipe], Generic[AnyRecipe]):
    """The fields of forms with datasets of DIGITS 4 to 6 among their sources; see `OldDatasets`."""

    database_train = text_field("Dataset or database", OldDataset, "train", RequiredIf(), AllowedFiles())
    database_val = text_field("Validation database", OldDataset, "val", AllowedFiles())
    database_test = text_field("Test database", OldDataset, "test", AllowedFiles())
    database_targets = text_field("Database of the labels", OldDataset, "targets", AllowedFiles())
    database_val_targets = text_field("Validation labels", OldDataset, "val_targets", AllowedFiles())
    database_test_targets = text_field("Test labels", OldDataset, "test_targets", AllowedFiles())
    database_labels = optional_path("Class names", OldDataset, "labels", "file")


class OldDatasets(FormSource):
    """A dataset of DIGITS 4 to 6."""

    method = METHOD
    title = "LMDB, HDF5"
    attribute = "database"
    settings = OldDataset
    path = "database_train"
    own = ("database_{}",)

    def check(self, form: Any, recipe: FromDatabases) -> None:
        assert recipe.database is not None
        recipe.database.databases(recipe.database_labels)
        recipe.with_records({"train": ""})
