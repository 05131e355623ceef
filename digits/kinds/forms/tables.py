"""Tables in the forms of datasets: the fields, and the source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic

from msgspec import Struct
from wtforms import Form, StringField
from wtforms.validators import Length, Optional, ValidationError

from digits.core.remote import is_address, names_folder
from digits.core.splits import SPLITS
from digits.data.data_roots import Roots
from digits.data.records.shards import files_in, is_shard
from digits.data.sources.declared_splits import affixed_splits, split_of
from digits.data.sources.plan import UnusableSource
from digits.data.tables.tables import MAX_HEADER_BYTES, Dialect, absolute_paths
from digits.kinds.forms.dataset import ImageDatasetForm, SharesForm
from digits.kinds.forms.fields import (
    AllowedFiles,
    Binding,
    Bound,
    RequiredIf,
    TextField,
    choices,
    optional_path,
    select,
    text_field,
)
from digits.kinds.forms.source import Beside, FormSource
from digits.kinds.recipes import AnyRecipe
from digits.kinds.sources.tables import (
    CreateFromLines,
    CreateFromTable,
    SplitTable,
    TableRows,
    TableSettings,
    check_columns,
    tables_at,
)

HEAD_BYTES = 1 << 16
NO_TABLE = "Enter a CSV, JSON Lines or Parquet file."
HEADERS = choices(("auto", "Detect automatically"), ("yes", "First row"), ("no", "None"))
# The fields of the dialect.
DIALECT = ("delimiter", "header")


def optional_name(label: str, *settings: tuple[type[Struct], str]) -> TextField:
    """Return a field of ``settings``, structs and names, for the name of a column."""
    bindings = tuple(Binding(*each) for each in settings)
    return TextField(label, default="", validators=[Optional(), Length(max=200)], binding=bindings)


class DelimiterField(Bound, StringField):
    """A delimiter of cells: one character, or ``tab``; empty: detected. ``setting`` is the character."""

    @property
    def setting(self) -> str:
        text = self.data or ""
        return "\t" if text.strip().lower() in ("tab", "\\t") else text

    def data_of(self, delimiter: str) -> str:
        """Return the text of a delimiter."""
        return "tab" if delimiter == "\t" else delimiter

    def pre_validate(self, form: Form) -> None:
        try:
            Dialect(self.setting).check()
        except UnusableSource:
            raise ValidationError("Enter one character, or “tab”.") from None


class DialectFields(SharesForm[AnyRecipe], Generic[AnyRecipe]):
    """The fields for the dialect of CSV files."""

    delimiter = DelimiterField(
        "Delimiter",
        default="",
        binding=(Binding(CreateFromLines, "delimiter"), Binding(TableSettings, "delimiter")),
    )
    header = select("Column names", HEADERS, CreateFromLines, "header", also=TableSettings)


class TableFields(DialectFields[AnyRecipe], Generic[AnyRecipe]):
    """The fields of forms with a table that lists images among their sources; see `Tables`."""

    table_train = text_field("Table", CreateFromTable, "table", RequiredIf(NO_TABLE), AllowedFiles())
    image_folder = optional_path("Image folder", CreateFromTable, "folder", "folder")
    image_column = optional_name("Image column", (CreateFromTable, "image_column"))
    table_val = text_field("Validation table", CreateFromTable, "val_table", AllowedFiles())
    table_test = text_field("Test table", CreateFromTable, "test_table", AllowedFiles())


class Tables(FormSource):
    """A table that lists images, with the settings of `CreateFromTable`; ``names`` are fields of further settings.

    ``open_rows`` opens a number of bytes of a table with the settings of a recipe; it raises UnusableSource.
    """

    method = "csv"
    title = "Table"
    path = "table_train"
    own = ("table_{}",)

    def __init__(self, open_rows: Callable[[Any, SplitTable, int], TableRows[Any]], *names: str) -> None:
        self._open_rows = open_rows
        self.names = ("table_*", "image_folder", "image_column", *DIALECT, *names)

    def read(self, form: Any) -> dict[str, Any]:
        return read_folders(form, "table")

    def is_in(self, recipe: CreateFromTable) -> bool:
        return bool(recipe.table)

    def fill(self, form: Any, recipe: CreateFromTable) -> None:
        super().fill(form, recipe)
        omit_default_folder(form, {table: folder for _, table, folder in recipe.sources()})

    def check(self, form: ImageDatasetForm[Any], recipe: CreateFromTable) -> None:
        tables = tables_at(recipe.table, recipe.folder)
        check_columns(tables["train"], partial(self._open_rows, recipe))

    def find_beside(self, form: ImageDatasetForm[Any]) -> dict[str, Beside]:
        recipe: Any = form.draft()
        tables = tables_at(recipe.table, recipe.folder)

        def columns_of(path: Path) -> list[str]:
            table = replace(tables["train"], paths=[path])
            return self._open_rows(recipe, table, MAX_HEADER_BYTES).table.columns

        beside = tables_beside(form, tables["train"].paths[0], "table_{}", columns_of)
        return {split: found for split, found in beside.items() if split not in tables}


def read_folders(form: Any, setting: str) -> dict[str, str]:
    """Return the folder of the images of each split for which a ``setting`` of the recipe names a table."""
    values = form.settings_of(form.RECIPE)
    return {
        f"{prefix}folder": values.get(f"{prefix}folder")
        or values.get("folder")
        or default_folder(form, table)
        for prefix in ("", "val_", "test_")
        if (table := values.get(f"{prefix}{setting}"))
    }


def omit_default_folder(form: Any, folders: Mapping[str, str]) -> None:
    """Leave the image folder empty if the ``folders`` by table are the default ones."""
    if all(folder == default_folder(form, table) for table, folder in folders.items()):
        form.set(image_folder="")


def tables_beside(
    form: ImageDatasetForm[Any], table: Path, field: str, columns_of: Callable[[Path], Sequence[str]]
) -> dict[str, Beside]:
    """Return the tables of other splits beside the training ``table`` with the same columns.

    ``field`` is the name of the field of a split, with ``{}`` for that of the split. ``columns_of`` returns the columns
    of a table, or raises UnusableSource.
    """
    is_allowed: Callable[[Path], bool] = form.meta.data_roots.contain
    beside = [path for path in files_in(table.parent) if path.suffix == table.suffix and is_allowed(path)]
    splits = {path: split_of(path) for path in beside} if is_shard(table) else _splits_of_stems(beside, table)
    if splits.get(table) != "train":
        return {}
    firsts = {split: path for path, split in reversed(splits.items()) if split != "train"}
    found = {split: firsts[split] for split in SPLITS if split in firsts}
    columns = columns_of(table) if found else []
    return {
        split: Beside(path, {field.format(split): str(path)})
        for split, path in found.items()
        if _has_columns(columns, path, columns_of)
    }


def _has_columns(columns: Sequence[str], path: Path, columns_of: Callable[[Path], Sequence[str]]) -> bool:
    with contextlib.suppress(UnusableSource):
        return columns_of(path) == columns
    return False


def _splits_of_stems(paths: list[Path], table: Path) -> dict[Path, str]:
    """Return the splits of the ``paths`` whose names contain the same as that of ``table`` besides a split."""
    for group in affixed_splits(path.stem for path in paths).values():
        if any(table.stem in stems for stems in group.values()):
            return {path: split for path in paths for split, stems in group.items() if path.stem in stems}
    return {}


def default_folder(form: Any, table: str) -> str:
    """Return the default image folder of a table or list: that of its files.

    If it contains the absolute path of a file below an allowed folder, the default is that folder.
    """
    if is_address(table):
        return table if names_folder(table) else os.path.dirname(table)
    if os.path.isdir(table):
        return table
    root = ""
    if os.path.isfile(table):
        with contextlib.suppress(OSError), open(table, "rb") as file:
            root = root_of_paths(file.read(HEAD_BYTES), form.meta.data_roots)
    return root or os.path.dirname(table)


def root_of_paths(head: bytes, roots: Roots) -> str:
    """Return the root of the first absolute path in ``head``, the beginning of a list, that exists; else empty."""
    roots_of_paths = (roots.root_of(path) for path in absolute_paths(head))
    return str(next(filter(None, roots_of_paths), ""))
