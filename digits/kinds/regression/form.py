"""The form of a dataset for regression."""

from __future__ import annotations

import os
from collections.abc import Iterator

from wtforms import IntegerField, StringField
from wtforms.validators import DataRequired, Length, Optional, ValidationError

from digits.data.sources import UnusableSource
from digits.kinds.dataset_form import ImageDatasetForm, check_shares, required_integer
from digits.kinds.form_fields import AllowedPath
from digits.kinds.regression.overview import summarize_table
from digits.kinds.regression.reader import check_header
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.source_summary import SourceSummary


class DatasetForm(ImageDatasetForm[CreateRegression]):
    """A dataset for regression, from a CSV file with paths of images and numbers."""

    SCANNED = ("table_train", "image_folder", "image_column", "target_columns", "table_val", "table_test")

    table_train = StringField("Table", validators=[DataRequired("Enter a CSV file."), AllowedPath("file")])
    image_folder = StringField("Image folder", validators=[Optional(), AllowedPath("folder")])
    image_column = StringField("Image column", default="", validators=[Optional(), Length(max=200)])
    target_columns = StringField("Target columns", default="", validators=[Optional(), Length(max=2000)])
    pct_val = required_integer("Validation split (%)", CreateRegression, "pct_val")
    pct_test = required_integer("Test split (%)", CreateRegression, "pct_test")
    table_val = StringField("Validation table", validators=[Optional(), AllowedPath("file")])
    table_test = StringField("Test table", validators=[Optional(), AllowedPath("file")])

    def validate_table_train(self, field: StringField) -> None:
        if field.errors:
            return
        try:
            check_header(field.data, self.image_column.data or "", self._targets())
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def validate_pct_test(self, field: IntegerField) -> None:
        check_shares(
            0 if self.table_val.data else self.pct_val.data, 0 if self.table_test.data else field.data
        )

    def scan_source(self) -> Iterator[SourceSummary]:
        table = self.path_of("table_train", "file")
        return summarize_table(
            table,
            self.path_of("image_folder", "folder")
            if (self.image_folder.data or "").strip()
            else table.parent,
            (self.image_column.data or "").strip(),
            self._targets(),
            {name for name in ("table_val", "table_test") if (self[name].data or "").strip()},
            self.meta.data_roots.contain,
        )

    def recipe(self) -> CreateRegression:
        return CreateRegression(
            table=self.table_train.data,
            folder=self.image_folder.data or os.path.dirname(self.table_train.data),
            image_column=(self.image_column.data or "").strip(),
            target_columns=self._targets(),
            val_table=self.table_val.data or None,
            test_table=self.table_test.data or None,
            pct_val=0 if self.table_val.data else self.pct_val.data,
            pct_test=0 if self.table_test.data else self.pct_test.data,
            **self.image_settings(),
        )

    def fill_source(self, recipe: CreateRegression) -> None:
        self.set(
            table_train=recipe.table,
            image_folder=recipe.folder,
            image_column=recipe.image_column,
            target_columns=", ".join(recipe.target_columns),
            table_val=recipe.val_table or "",
            table_test=recipe.test_table or "",
        )
        if recipe.val_table is None:
            self.pct_val.data = round(recipe.pct_val)
        if recipe.test_table is None:
            self.pct_test.data = round(recipe.pct_test)

    def _targets(self) -> list[str]:
        return [name.strip() for name in (self.target_columns.data or "").split(",") if name.strip()]
