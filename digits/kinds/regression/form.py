"""The form of a dataset for regression."""

from __future__ import annotations

from collections.abc import Iterator

from wtforms import StringField
from wtforms.validators import Length, Optional

from digits.kinds.regression.overview import Overview
from digits.kinds.regression.reader import check_header
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import TableForm
from digits.kinds.table_summary import summarize_table


class DatasetForm(TableForm[CreateRegression]):
    """A dataset for regression, from a CSV file with paths of images and numbers."""

    SCANNED = ("table_train", "image_folder", "image_column", "target_columns", "table_val", "table_test")

    target_columns = StringField("Target columns", default="", validators=[Optional(), Length(max=2000)])

    def check_table(self, table: str) -> None:
        check_header(table, self.text_of("image_column"), self.names_in("target_columns"))

    def scan_source(self) -> Iterator[SourceSummary]:
        table, root = self.source_paths()
        overview = Overview(table, root, self.text_of("image_column"), self.names_in("target_columns"))
        return summarize_table(root, overview.open, overview.describe, self.suggest(table))

    def recipe(self) -> CreateRegression:
        return CreateRegression(target_columns=self.names_in("target_columns"), **self.table_settings())

    def fill_source(self, recipe: CreateRegression) -> None:
        super().fill_source(recipe)
        self.set(target_columns=", ".join(recipe.target_columns))
