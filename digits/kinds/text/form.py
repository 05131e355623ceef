"""The form of a dataset for text classification."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wtforms import StringField
from wtforms.validators import DataRequired, Length, Optional, ValidationError

from digits.core.recipe import CreateDataset
from digits.data.sources.plan import UnusableSource, show
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.data.tables.text_rows import read_rows
from digits.kinds.forms.dataset import ImageDatasetForm, required_integer
from digits.kinds.forms.fields import (
    AllowedPath,
    Binding,
    TextField,
    as_field_error,
    choices,
    select,
    text_field,
)
from digits.kinds.forms.source import Beside, FormSource
from digits.kinds.forms.tables import DIALECT, DialectFields, tables_beside
from digits.kinds.text.characters import DEFAULT_ALPHABET, MAX_CHARACTERS, check_alphabet
from digits.kinds.text.reader import read_labels, usable_rows
from digits.kinds.text.recipe import CreateText


class Texts(FormSource):
    """CSV files of classes and texts."""

    path = "train_data_file"
    names = ("*_data_file", "class_labels_file", *DIALECT)
    own = ("{}_data_file",)

    def check(self, form: ImageDatasetForm[Any], recipe: CreateText) -> None:
        rows = read_rows(Path(recipe.table), recipe.delimiter, MAX_HEADER_BYTES)
        if next(iter(usable_rows(rows, recipe.dialect)), None) is None:
            raise UnusableSource(f"{show(os.path.basename(recipe.table))} has no rows.")

    def find_beside(self, form: ImageDatasetForm[Any]) -> dict[str, Beside]:
        def columns_of(path: Path) -> list[str]:
            rows = read_rows(path, form.draft().delimiter, MAX_HEADER_BYTES)
            return [""] * len(next(rows).cells)

        return tables_beside(form, Path(form.text_of(self.path)), "{}_data_file", columns_of)


class DatasetForm(DialectFields[CreateText]):
    """A dataset for text classification, from CSV files of classes and texts."""

    RECIPE = CreateText
    FIXED = {"height": 1, "channels": 1, "resize_mode": "squash"}
    SOURCES = (Texts(),)
    has_images = False

    train_data_file = text_field(
        "Training texts", CreateText, "table", DataRequired("Enter a CSV file."), AllowedPath("file")
    )
    val_data_file = text_field("Validation texts", CreateText, "val_table", Optional(), AllowedPath("file"))
    test_data_file = text_field("Test texts", CreateText, "test_table", Optional(), AllowedPath("file"))
    class_labels_file = text_field("Class names", CreateText, "labels_file", Optional(), AllowedPath("file"))
    alphabet = TextField(
        "Alphabet",
        default=DEFAULT_ALPHABET,
        validators=[DataRequired("Enter characters."), Length(max=MAX_CHARACTERS)],
        binding=Binding(CreateText, "alphabet"),
    )
    max_chars_per_sample = required_integer("Characters per text", CreateText, "width")
    encoding = select(
        "Encoding", choices(("png", "PNG (smaller)"), ("none", "None (raw bytes)")), CreateDataset, "encoding"
    )

    def validate_alphabet(self, field: StringField) -> None:
        try:
            check_alphabet(field.data)
        except ValueError as error:
            raise ValidationError(str(error)) from None

    def validate_class_labels_file(self, field: StringField) -> None:
        if field.data and not field.errors:
            with as_field_error():
                read_labels(Path(field.data))
