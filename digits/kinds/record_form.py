"""Form fields for datasets from TFRecord files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from wtforms import Field, Form, SelectField, StringField
from wtforms.fields.choices import Choice
from wtforms.validators import Length, Optional, StopValidation, ValidationError

from digits.core.errors import DigitsError, NotAllowed
from digits.core.recipe import MAX_SIDE_PIXELS
from digits.core.remote import is_address
from digits.data.data_roots import Roots
from digits.data.record_files import is_pattern

MAX_NAME_CHARACTERS = 200
_SHAPE = re.compile(r"[\s,x×]+", re.IGNORECASE)


def resolve_records(roots: Roots, text: str) -> str:
    """Return the real path of a file, a folder, or a pattern for files of a folder; raises DigitsError."""
    text = text.strip()
    if not is_pattern(text):
        try:
            return str(roots.resolve(text, "file"))
        except NotAllowed:
            raise
        except DigitsError:
            return str(roots.resolve(text, "folder"))
    folder, _, pattern = text.rpartition("/")
    return str(roots.resolve(folder, "folder") / pattern)


class AllowedRecords:
    """Validate a path of `resolve_records`, or a remote address as in `AllowedPath`; an empty field is valid."""

    field_flags: dict[str, Any] = {}

    def __call__(self, form: Form, field: Field) -> None:
        text = (field.data or "").strip()
        try:
            if is_address(text):
                field.data = form.resolve(text, "any")
            elif text:
                field.data = resolve_records(form.meta.data_roots, text)
        except DigitsError as error:
            raise ValidationError(error.sentences) from None
        if is_address(text):
            raise StopValidation


class FeatureField(SelectField):
    """A feature of the records. The page offers those of the first record; empty: detected."""

    def __init__(self, label: str, **arguments: Any) -> None:
        checks = [Optional(), Length(max=MAX_NAME_CHARACTERS)]
        super().__init__(label, choices=[], default="", validate_choice=False, validators=checks, **arguments)

    def iter_choices(self) -> Iterator[Choice]:
        yield Choice("", "Automatic", not self.data, {})
        if self.data:
            yield Choice(self.data, self.data, True, {})


class ShapeField(StringField):
    """The shape of an image: ``28×28``, ``28 28 1`` or ``32, 32, 3``. ``sizes`` are the numbers.

    It has 2 or 3 sizes, or those in ``ranks``.
    """

    def __init__(self, label: str, ranks: tuple[int, ...] = (2, 3), **arguments: Any) -> None:
        super().__init__(label, **arguments)
        self._ranks = ranks

    @property
    def sizes(self) -> list[int]:
        return [int(part) for part in _SHAPE.split((self.data or "").strip()) if part]

    def pre_validate(self, form: Form) -> None:
        try:
            sizes = self.sizes
        except ValueError:
            sizes = [0]
        if sizes and (
            len(sizes) not in self._ranks or not all(1 <= size <= MAX_SIDE_PIXELS for size in sizes)
        ):
            raise ValidationError("Enter height × width × channels, such as 28×28×1.")


def shape_text(sizes: list[int]) -> str:
    """Return ``28×28×1``."""
    return "×".join(map(str, sizes))
