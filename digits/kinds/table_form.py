"""The form fields of datasets whose source is a table that lists images."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from wtforms import IntegerField, StringField
from wtforms.validators import DataRequired, Length, Optional, ValidationError

from digits.data.sources import UnusableSource
from digits.kinds.dataset_form import ImageDatasetForm, check_shares, required_integer
from digits.kinds.form_fields import AllowedPath
from digits.kinds.source_summary import Suggestion
from digits.kinds.table_source import CreateFromTable
from digits.kinds.table_summary import suggest_tables

AnyTableRecipe = TypeVar("AnyTableRecipe", bound=CreateFromTable)


NO_TABLE = "Enter a CSV, JSON Lines or Parquet file."


class TableForm(ImageDatasetForm[AnyTableRecipe], Generic[AnyTableRecipe]):
    """Base class of the forms that create a dataset from tables."""

    table_train = StringField("Table", validators=[DataRequired(NO_TABLE), AllowedPath("file")])
    image_folder = StringField("Image folder", validators=[Optional(), AllowedPath("folder")])
    image_column = StringField("Image column", default="", validators=[Optional(), Length(max=200)])
    pct_val = required_integer("Validation split (%)", CreateFromTable, "pct_val")
    pct_test = required_integer("Test split (%)", CreateFromTable, "pct_test")
    table_val = StringField("Validation table", validators=[Optional(), AllowedPath("file")])
    table_test = StringField("Test table", validators=[Optional(), AllowedPath("file")])

    def check_table(self, table: str) -> None:
        """Raise UnusableSource if the file ``table`` does not have the columns of the form."""
        raise NotImplementedError

    def validate_table_train(self, field: StringField) -> None:
        if field.errors:
            return
        try:
            self.check_table(field.data)
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def validate_pct_test(self, field: IntegerField) -> None:
        check_shares(
            0 if self.table_val.data else self.pct_val.data, 0 if self.table_test.data else field.data
        )

    def source_paths(self) -> tuple[Path, Path]:
        """Return the real paths of the table and of the image folder; raises DigitsError, like `path_of`."""
        table = self.path_of("table_train", "file")
        return table, self.path_of("image_folder", "folder") if self.text_of("image_folder") else table.parent

    def suggest(self, table: Path) -> Suggestion | None:
        """Suggest validation and test tables next to ``table``, for fields that are empty."""
        filled = {name for name in ("table_val", "table_test") if self.text_of(name)}
        is_allowed: Callable[[Path], bool] = self.meta.data_roots.contain
        return suggest_tables(table, filled, is_allowed)

    def table_settings(self) -> dict[str, Any]:
        """Return the arguments of `CreateFromTable` for the fields of this class and of the images."""
        folders = {
            name: self.image_folder.data or os.path.dirname(self[name].data)
            for name in ("table_train", "table_val", "table_test")
            if self[name].data
        }
        return {
            "table": self.table_train.data,
            "folder": folders["table_train"],
            "val_folder": folders.get("table_val"),
            "test_folder": folders.get("table_test"),
            "image_column": self.text_of("image_column"),
            "val_table": self.table_val.data or None,
            "test_table": self.table_test.data or None,
            "pct_val": 0 if self.table_val.data else self.pct_val.data,
            "pct_test": 0 if self.table_test.data else self.pct_test.data,
            **self.image_settings(),
        }

    def fill_source(self, recipe: AnyTableRecipe) -> None:
        is_beside_tables = all(folder == os.path.dirname(table) for _, table, folder in recipe.sources())
        self.set(
            table_train=recipe.table,
            image_folder="" if is_beside_tables else recipe.folder,
            image_column=recipe.image_column,
            table_val=recipe.val_table or "",
            table_test=recipe.test_table or "",
        )
        if recipe.val_table is None:
            self.pct_val.data = round(recipe.pct_val)
        if recipe.test_table is None:
            self.pct_test.data = round(recipe.pct_test)

    def text_of(self, name: str) -> str:
        """Return the text in a field."""
        return (self[name].data or "").strip()

    def names_in(self, name: str) -> list[str]:
        """Return the names in a field, which are separated by commas."""
        return [part.strip() for part in self.text_of(name).split(",") if part.strip()]
