"""The form of a dataset for regression."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wtforms import StringField
from wtforms.validators import DataRequired, Length, Optional

from digits.kinds.form_fields import AllowedPath
from digits.kinds.regression.databases import is_database, open_images
from digits.kinds.regression.overview import Overview, summarize_databases
from digits.kinds.regression.reader import check_header
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import NO_TABLE, TableForm
from digits.kinds.table_summary import summarize_table


class DatasetForm(TableForm[CreateRegression]):
    """A dataset for regression, from a table of images and numbers, or from databases of DIGITS."""

    SCANNED = ("table_train", "image_folder", "image_column", "target_columns", "table_val", "table_test")

    table_train = StringField("Table", validators=[DataRequired(NO_TABLE), AllowedPath("any")])
    target_columns = StringField("Target columns", default="", validators=[Optional(), Length(max=2000)])

    def check_table(self, table: str) -> None:
        if is_database(Path(table)):
            for images in open_images(Path(table)).values():
                images.close()
            return
        check_header(table, self.text_of("image_column"), self.names_in("target_columns"))

    def scan_source(self) -> Iterator[SourceSummary]:
        path = self.path_of("table_train", "any")
        if is_database(path):
            return summarize_databases(path)
        table, root = self.source_paths()
        overview = Overview(table, root, self.text_of("image_column"), self.names_in("target_columns"))
        return summarize_table(root, overview.open, overview.describe, self.suggest(table))

    def recipe(self) -> CreateRegression:
        return CreateRegression(target_columns=self.names_in("target_columns"), **self.table_settings())

    def fill_source(self, recipe: CreateRegression) -> None:
        super().fill_source(recipe)
        self.set(target_columns=", ".join(recipe.target_columns))
