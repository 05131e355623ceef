"""The form fields of datasets whose source is a table that lists images."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from wtforms import StringField
from wtforms.validators import DataRequired, Length, Optional, ValidationError

from digits.core.remote import is_address, names_folder
from digits.core.splits import SPLITS
from digits.data.data_roots import Roots
from digits.data.sources import UnusableSource
from digits.data.tables import Dialect, Row, Value, absolute_paths
from digits.kinds.dataset_form import SharesForm
from digits.kinds.form_fields import AllowedFiles, AllowedPath, choices, select
from digits.kinds.recipes import AnyRecipe
from digits.kinds.source_summary import SourceSummary, Suggestion
from digits.kinds.table_source import CreateFromTable, SplitTable, tables_at
from digits.kinds.table_summary import RowSource, suggest_tables, summarize_tables

AnyTableRecipe = TypeVar("AnyTableRecipe", bound=CreateFromTable)


HEAD_BYTES = 1 << 16
NO_TABLE = "Enter a CSV, JSON Lines or Parquet file."
HEADERS = choices(("auto", "Detect automatically"), ("yes", "First row"), ("no", "None"))


class DialectFields(SharesForm[AnyRecipe], Generic[AnyRecipe]):
    """Base class of forms with the fields for the dialect of CSV files."""

    DIALECT = ("delimiter", "header")

    delimiter = StringField("Delimiter", default="")
    header = select("Column names", HEADERS, CreateFromTable, "header")

    def validate_delimiter(self, field: StringField) -> None:
        try:
            self.dialect().check()
        except UnusableSource:
            raise ValidationError("Enter one character, or “tab”.") from None

    def dialect(self) -> Dialect:
        """Return the dialect in the fields."""
        text = self.delimiter.data or ""
        is_tab = text.strip().lower() in ("tab", "\\t")
        return Dialect("\t" if is_tab else text, self.header.data or "auto")

    def default_folder(self, table: str) -> str:
        """Return the image folder of a table for which none is given: see `default_folder`."""
        return default_folder(table, self.meta.data_roots)

    def fill_dialect(self, dialect: Dialect) -> None:
        """Fill in the fields."""
        self.set(delimiter="tab" if dialect.delimiter == "\t" else dialect.delimiter, header=dialect.header)


class TableForm(DialectFields[AnyTableRecipe], Generic[AnyTableRecipe]):
    """Base class of the forms that create a dataset from tables."""

    OWN_SOURCES: tuple[str, ...] = ("table_{}",)
    TABLE_SCANNED = (
        *("table_train", "image_folder", "image_column", "table_val", "table_test"),
        *DialectFields.DIALECT,
    )

    table_train = StringField("Table", validators=[DataRequired(NO_TABLE), AllowedFiles()])
    image_folder = StringField("Image folder", validators=[Optional(), AllowedPath("folder")])
    image_column = StringField("Image column", default="", validators=[Optional(), Length(max=200)])
    table_val = StringField("Validation table", validators=[Optional(), AllowedFiles()])
    table_test = StringField("Test table", validators=[Optional(), AllowedFiles()])

    def check_table(self, table: SplitTable) -> None:
        """Raise UnusableSource if ``table`` does not have the columns of the form."""
        raise NotImplementedError

    def validate_table_train(self, field: StringField) -> None:
        if field.errors or self.delimiter.errors:
            return
        try:
            self.check_source(field.data)
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def check_source(self, path: str) -> None:
        """Raise UnusableSource if the table at the real path ``path`` does not have the columns of the form."""
        self.dialect().check()
        self.check_table(tables_at(path, self.image_folder.data or self.default_folder(path))["train"])

    def scanned_tables(self) -> dict[str, SplitTable]:
        """Return the tables of the splits at the path in the form; raises DigitsError and UnusableSource."""
        path = self.resolved_files("table_train")
        is_given = self.text_of("image_folder")
        folder = str(self.path_of("image_folder", "folder")) if is_given else self.default_folder(path)
        return tables_at(path, folder)

    def scan_table(
        self,
        open_rows: Callable[[SplitTable], RowSource[Value]],
        describe: Callable[[list[Row[Value]], SourceSummary], None],
    ) -> Iterator[SourceSummary]:
        """Return summaries of the table in the form, whose rows ``open_rows`` opens; raises DigitsError."""
        try:
            tables = self.scanned_tables()
        except UnusableSource as error:
            return iter([SourceSummary.unusable(error)])
        return summarize_tables(tables, open_rows, describe, self.suggest(tables))

    def suggest(self, tables: dict[str, SplitTable]) -> Suggestion | None:
        """Suggest validation and test tables next to the training table, for empty fields."""
        splits = (split for split in SPLITS[1:] if split in tables or self.text_of(f"table_{split}"))
        filled = {f"table_{split}" for split in splits}
        is_allowed: Callable[[Path], bool] = self.meta.data_roots.contain
        return suggest_tables(tables["train"].paths[0], filled, is_allowed)

    def table_settings(self) -> dict[str, Any]:
        """Return the arguments of `CreateFromTable` for the fields of this class and of the images."""
        folders = {
            name: self.image_folder.data or self.default_folder(self[name].data)
            for name in ("table_train", "table_val", "table_test")
            if self[name].data
        }
        return {
            "table": self.table_train.data,
            "folder": folders["table_train"],
            "val_folder": folders.get("table_val"),
            "test_folder": folders.get("table_test"),
            "image_column": self.text_of("image_column"),
            "delimiter": self.dialect().delimiter,
            "header": self.dialect().header,
            "val_table": self.table_val.data or None,
            "test_table": self.table_test.data or None,
            **self.image_settings(),
        }

    def fill_source(self, recipe: AnyTableRecipe) -> None:
        is_beside_tables = all(folder == self.default_folder(table) for _, table, folder in recipe.sources())
        self.fill_dialect(recipe.dialect)
        self.set(
            table_train=recipe.table,
            image_folder="" if is_beside_tables else recipe.folder,
            image_column=recipe.image_column,
            table_val=recipe.val_table or "",
            table_test=recipe.test_table or "",
        )

    def text_of(self, name: str) -> str:
        """Return the text in a field."""
        return (self[name].data or "").strip()

    def names_in(self, name: str) -> list[str]:
        """Return the names in a field, which are separated by commas."""
        return [part.strip() for part in self.text_of(name).split(",") if part.strip()]


def default_folder(table: str, roots: Roots) -> str:
    """Return the default image folder of a table or list: that of its files.

    If it contains the absolute path of a file below one of ``roots``, the default is that root.
    """
    if is_address(table):
        return table if names_folder(table) else os.path.dirname(table)
    if os.path.isdir(table):
        return table
    root = ""
    if os.path.isfile(table):
        with contextlib.suppress(OSError), open(table, "rb") as file:
            root = root_of_paths(file.read(HEAD_BYTES), roots)
    return root or os.path.dirname(table)


def root_of_paths(head: bytes, roots: Roots) -> str:
    """Return the root of the first absolute path in ``head``, the beginning of a list, that exists; else empty."""
    found = (roots.root_of(path) for path in absolute_paths(head))
    return str(next(filter(None, found), ""))
