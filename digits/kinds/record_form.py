"""Form fields for datasets from TFRecord files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Generic

from wtforms import Form, SelectField, StringField
from wtforms.fields.choices import Choice
from wtforms.validators import Length, Optional, ValidationError

from digits.core.errors import BadRequest
from digits.core.recipe import MAX_SIDE_PIXELS
from digits.core.remote import is_address
from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource
from digits.kinds.dataset_form import ImageDatasetForm
from digits.kinds.form_fields import AllowedFiles, RequiredIf, resolve_files
from digits.kinds.recipes import AnyRecipe
from digits.kinds.record_source import RecordSource
from digits.kinds.record_summary import RecordMapping, summarize_source
from digits.kinds.source_summary import SourceSummary

# The value of the field `method` for TFRecord files.
METHOD = "tfrecord"
MAX_NAME_CHARACTERS = 200
_SHAPE = re.compile(r"[\s,x×]+", re.IGNORECASE)


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


def shape_text(sizes: Iterable[int]) -> str:
    """Return ``28×28×1``."""
    return "×".join(map(str, sizes))


class RecordForm(ImageDatasetForm[AnyRecipe], Generic[AnyRecipe]):
    """Base class of forms that have a field ``method``, one of whose values is `METHOD`: TFRecord files.

    ``FILE_FIELDS`` are the fields of the other sources: those of the sources that are not chosen are emptied.
    """

    RECORD_FIELDS: tuple[str, ...] = ("record_train", "record_val", "record_test")
    FILE_FIELDS: tuple[str, ...] = ()

    record_train = StringField(
        "TFRecord files", default="", validators=[RequiredIf(method=METHOD), AllowedFiles()]
    )
    record_val = StringField("Validation files", default="", validators=[AllowedFiles()])
    record_test = StringField("Test files", default="", validators=[AllowedFiles()])
    image_feature = FeatureField("Image feature")
    record_shape = ShapeField("Shape of raw images", default="")

    @property
    def reads_records(self) -> bool:
        """Whether the source is TFRecord files."""
        return bool(self["method"].data == METHOD)

    def validate(self, *arguments: Any, **keywords: Any) -> bool:
        for name in self.unused_fields():
            self[name].data = self[name].default
        is_valid: bool = super().validate(*arguments, **keywords)
        return is_valid

    def unused_fields(self) -> Iterable[str]:
        """Return the fields of the sources that are not chosen."""
        return self.FILE_FIELDS if self.reads_records else self.RECORD_FIELDS

    def validate_record_train(self, field: StringField) -> None:
        if not self.reads_records or field.errors or self.record_shape.errors or is_address(field.data):
            return
        try:
            self.check_records()
        except ValueError:
            return  # the shape has an error of its own
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def record_source(self) -> RecordSource:
        """Return the source in the fields; raises ValueError for an invalid shape."""
        raise NotImplementedError

    def check_records(self) -> None:
        """Raise UnusableSource if the first record does not have the features in the fields."""
        raise NotImplementedError

    def record_settings(self) -> dict[str, Any]:
        """Return the arguments of `RecordSource` for the fields of this class; raises ValueError."""
        return {
            "train": self.entered("record_train"),
            "val": self.entered("record_val"),
            "test": self.entered("record_test"),
            "image_feature": self.entered("image_feature"),
            "shape": self.record_shape.sizes,
        }

    def fill_records(self, source: RecordSource) -> None:
        """Fill in the fields from ``source``."""
        self.set(
            method=METHOD,
            record_train=source.train,
            record_val=source.val,
            record_test=source.test,
            image_feature=source.image_feature,
            record_shape=shape_text(source.shape),
        )

    def resolved_source(self) -> RecordSource:
        """Return the source with the real paths of its files; raises DigitsError."""
        for name in self.RECORD_FIELDS[:3]:
            if self.entered(name):
                self[name].data = resolve_files(self.meta.data_roots, self[name].data)
        try:
            return self.record_source()
        except ValueError:
            raise BadRequest("Enter the shape as height, width and channels, such as 28×28×1.") from None

    def scan_records(
        self,
        guess: Callable[[Any, RecordFiles, Features], Mapping[str, str]],
        map_records: Callable[[Any, RecordFiles, Features], RecordMapping],
        none: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[SourceSummary]:
        """Return summaries of the files; raises DigitsError for an invalid path.

        The functions get the `record_source` first; see `summarize_source`.
        """
        if "record_labels" in self and self.entered("record_labels"):
            self["record_labels"].data = str(self.path_of("record_labels", "file"))
        source = self.resolved_source()
        return summarize_source(source.find, partial(guess, source), partial(map_records, source), none)

    def entered(self, name: str) -> str:
        """Return the text in the field ``name``."""
        return (self[name].data or "").strip()
