"""The form of a dataset of pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from wtforms import Field, Form, StringField
from wtforms.fields import SelectField
from wtforms.validators import DataRequired, Optional, StopValidation, ValidationError

from digits.core.errors import DigitsError
from digits.core.remote import is_address
from digits.data.data_roots import Roots
from digits.data.sources import UnusableSource
from digits.data.tables import MAX_HEADER_BYTES
from digits.kinds.dataset_form import SharesForm, required_integer
from digits.kinds.form_fields import AllowedPath, choices, need_images
from digits.kinds.pairs.overview import summarize
from digits.kinds.pairs.reader import read_rows
from digits.kinds.pairs.recipe import CreatePairs
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import default_folder


class _FileOrFolder:
    """Accept a CSV file of pairs or a folder below an allowed root; ``data`` becomes its real path."""

    def __call__(self, form: Form, field: Field) -> None:
        try:
            if is_address(field.data):
                field.data = form.resolve(field.data, "any")
                raise StopValidation
            field.data = str(_resolve(form.meta.data_roots, field.data))
        except DigitsError as error:
            raise ValidationError(error.sentences) from None


def _resolve(roots: Roots, text: str) -> Path:
    is_folder = os.path.isdir(os.path.expanduser(text.strip()))
    return roots.resolve(text.strip(), "folder" if is_folder else "file")


class DatasetForm(SharesForm[CreatePairs]):
    """A dataset of pairs, from a CSV file or from a folder of classes."""

    SCANNED = ("pair_source", "image_folder")
    OWN_SOURCES = ("{}_source",)

    pair_source = StringField(
        "Source", validators=[DataRequired("Enter a CSV file or a folder."), _FileOrFolder()]
    )
    image_folder = StringField("Image folder", validators=[Optional(), AllowedPath("folder")])
    val_source = StringField("Validation source", validators=[Optional(), _FileOrFolder()])
    test_source = StringField("Test source", validators=[Optional(), _FileOrFolder()])
    pair_count = required_integer("Training pairs", CreatePairs, "pairs")
    # The two images of a record have more channels than an image file.
    encoding = SelectField("Encoding", choices=choices(("none", "None (raw pixels)")), default="none")

    def validate_pair_source(self, field: StringField) -> None:
        self._check_source(field)

    def validate_val_source(self, field: StringField) -> None:
        if field.data:
            self._check_source(field)

    def validate_test_source(self, field: StringField) -> None:
        if field.data:
            self._check_source(field)

    def _check_source(self, field: StringField) -> None:
        """Raise ValidationError unless the folder contains images, or the table pairs."""
        if field.errors:
            return
        if os.path.isdir(field.data):
            need_images(field)
            return
        try:
            read_rows(Path(field.data), Path(self._root(field.data)), MAX_HEADER_BYTES)
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def scan_source(self) -> Iterator[SourceSummary]:
        source = _resolve(self.meta.data_roots, self.pair_source.data or "")
        folder = self.path_of("image_folder", "folder") if self.image_folder.data else None
        return summarize(source, folder or Path(self._root(str(source))))

    def recipe(self) -> CreatePairs:
        return CreatePairs(
            source=self.pair_source.data,
            folder=self._folder_of(self.pair_source.data),
            val_source=self.val_source.data or None,
            val_folder=self._folder_of(self.val_source.data) or None,
            test_source=self.test_source.data or None,
            test_folder=self._folder_of(self.test_source.data) or None,
            pairs=self.pair_count.data,
            **self.image_settings(),
        )

    def fill_source(self, recipe: CreatePairs) -> None:
        sources = (
            (recipe.source, recipe.folder),
            (recipe.val_source, recipe.val_folder),
            (recipe.test_source, recipe.test_folder),
        )
        is_beside_sources = all(folder in (None, self._root(path or "")) for path, folder in sources)
        self.set(
            pair_source=recipe.source,
            image_folder="" if is_beside_sources else recipe.folder,
            val_source=recipe.val_source or "",
            test_source=recipe.test_source or "",
            pair_count=recipe.pairs,
        )

    def _folder_of(self, source: str) -> str:
        """Return the folder to which the paths in ``source`` are relative; empty without a source."""
        return (self.image_folder.data or self._root(source)) if source else ""

    def _root(self, source: str) -> str:
        return default_folder(source, self.meta.data_roots)
