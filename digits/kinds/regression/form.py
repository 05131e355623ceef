"""The form of a dataset for regression."""

from __future__ import annotations

from typing import Any

from wtforms.validators import Length, Optional

from digits.kinds.forms.fields import Binding, NamesField, optional_path
from digits.kinds.forms.records import OldDatasetFields, OldDatasets, RecordFields, Records
from digits.kinds.forms.source import method_field
from digits.kinds.forms.tables import TableFields, Tables
from digits.kinds.regression.reader import open_numbers
from digits.kinds.regression.recipe import CreateRegression, NumberRecords
from digits.kinds.regression.records import NumberMapping


class _Numbers(Tables):
    """A table of images and numbers."""

    def fill(self, form: Any, recipe: CreateRegression) -> None:  # type: ignore[override]
        super().fill(form, recipe)
        if not form.image_folder.data or recipe.val_folder == recipe.folder:
            form.set(val_image_folder="")


class DatasetForm(
    TableFields[CreateRegression], RecordFields[CreateRegression], OldDatasetFields[CreateRegression]
):
    """A dataset for regression, from a table of images and numbers, databases of DIGITS, or TFRecord files."""

    RECIPE = CreateRegression
    SOURCES = (
        _Numbers(open_numbers, "target_columns", "val_image_folder"),
        Records(NumberRecords, NumberMapping),
        OldDatasets(),
    )

    method = method_field(SOURCES)
    val_image_folder = optional_path("Validation image folder", CreateRegression, "val_folder", "folder")
    target_columns = NamesField(
        "Target columns",
        default="",
        validators=[Optional(), Length(max=2000)],
        binding=(Binding(CreateRegression, "target_columns"), Binding(NumberRecords, "target_features")),
    )
