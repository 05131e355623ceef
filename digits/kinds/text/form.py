"""The form of a dataset for text classification."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from wtforms import StringField
from wtforms.fields import SelectField
from wtforms.validators import DataRequired, Length, Optional, ValidationError

from digits.core.splits import SPLITS
from digits.data.sources import UnusableSource, show
from digits.data.tables import MAX_HEADER_BYTES
from digits.kinds.dataset_form import required_integer
from digits.kinds.form_fields import AllowedPath, choices
from digits.kinds.source_summary import SourceSummary, Suggestion
from digits.kinds.table_form import DialectFields
from digits.kinds.table_summary import suggest_tables
from digits.kinds.text.characters import DEFAULT_ALPHABET, MAX_CHARACTERS, check_alphabet
from digits.kinds.text.lines import read_rows
from digits.kinds.text.overview import TextOverview
from digits.kinds.text.reader import read_labels, usable_rows
from digits.kinds.text.recipe import CreateText


class DatasetForm(DialectFields[CreateText]):
    """A dataset for text classification, from CSV files of classes and texts."""

    SCANNED = (
        "train_data_file",
        "class_labels_file",
        "max_chars_per_sample",
        "val_data_file",
        "test_data_file",
        *DialectFields.DIALECT,
    )
    OWN_SOURCES = ("{}_data_file",)
    has_images = False

    train_data_file = StringField(
        "Training texts", validators=[DataRequired("Enter a CSV file."), AllowedPath("file")]
    )
    val_data_file = StringField("Validation texts", validators=[Optional(), AllowedPath("file")])
    test_data_file = StringField("Test texts", validators=[Optional(), AllowedPath("file")])
    class_labels_file = StringField("Class names", validators=[Optional(), AllowedPath("file")])
    alphabet = StringField(
        "Alphabet",
        default=DEFAULT_ALPHABET,
        validators=[DataRequired("Enter characters."), Length(max=MAX_CHARACTERS)],
    )
    max_chars_per_sample = required_integer("Characters per text", CreateText, "width")
    encoding = SelectField(
        "Encoding", choices=choices(("png", "PNG (smaller)"), ("none", "None (raw bytes)")), default="png"
    )

    def validate_train_data_file(self, field: StringField) -> None:
        if self.delimiter.errors:
            return
        dialect = self.dialect()
        try:
            rows = usable_rows(read_rows(Path(field.data), dialect.delimiter, MAX_HEADER_BYTES), dialect)
            if next(iter(rows), None) is None:
                raise ValidationError(f"{show(os.path.basename(field.data))} has no rows.")
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def validate_alphabet(self, field: StringField) -> None:
        try:
            check_alphabet(field.data)
        except ValueError as error:
            raise ValidationError(str(error)) from None

    def validate_class_labels_file(self, field: StringField) -> None:
        if field.errors or not field.data:
            return
        try:
            read_labels(Path(field.data))
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def scan_source(self) -> Iterator[SourceSummary]:
        table = self.path_of("train_data_file", "file")
        labels = self.path_of("class_labels_file", "file") if self.class_labels_file.data else None
        length = self.max_chars_per_sample.data or 1024
        return TextOverview(table, self.dialect(), labels, length, self._suggest(table)).summaries()

    def _suggest(self, table: Path) -> Suggestion | None:
        filled = {f"table_{split}" for split in SPLITS[1:] if self[f"{split}_data_file"].data}
        found = suggest_tables(table, filled, self.meta.data_roots.contain)
        if found:
            found.fields = {
                f"{name.removeprefix('table_')}_data_file": path for name, path in found.fields.items()
            }
        return found

    def recipe(self) -> CreateText:
        settings = self.image_settings() | {
            "width": self.max_chars_per_sample.data,
            "height": 1,
            "channels": 1,
            "resize_mode": "squash",
        }
        return CreateText(
            table=self.train_data_file.data,
            val_table=self.val_data_file.data or None,
            test_table=self.test_data_file.data or None,
            labels_file=self.class_labels_file.data or None,
            alphabet=self.alphabet.data,
            delimiter=self.dialect().delimiter,
            header=self.dialect().header,
            **settings,
        )

    def fill_source(self, recipe: CreateText) -> None:
        self.set(
            train_data_file=recipe.table,
            val_data_file=recipe.val_table or "",
            test_data_file=recipe.test_table or "",
            class_labels_file=recipe.labels_file or "",
            alphabet=recipe.alphabet,
            max_chars_per_sample=recipe.width,
        )
        self.fill_dialect(recipe.dialect)
