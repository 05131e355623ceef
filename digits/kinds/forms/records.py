"""TFRecord files, and datasets of DIGITS 4 to 6, in the forms of datasets: the fields, and the sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Generic

from msgspec import Struct
from wtforms import Form, SelectField, StringField
from wtforms.fields.choices import Choice
from wtforms.validators import Length, Optional

from digits.core.errors import BadRequest
from digits.core.recipe import MAX_SIDE_PIXELS
from digits.data.databases.convert import OldDataset
from digits.kinds.forms.dataset import ImageDatasetForm, SharesForm
from digits.kinds.forms.fields import (
    AllowedFiles,
    Binding,
    Bound,
    RequiredIf,
    as_field_error,
    optional_path,
    text_field,
)
from digits.kinds.forms.source import FormSource
from digits.kinds.recipes import AnyRecipe, FromDatabases
from digits.kinds.sources.records import RecordMapping, RecordSource

MAX_NAME_CHARACTERS = 200
_SHAPE = re.compile(r"[\s,x×]+", re.IGNORECASE)


class FeatureField(Bound, SelectField):
    """A feature of the records. The page offers those of the first record; empty: detected."""

    def __init__(self, label: str, **arguments: Any) -> None:
        checks = [Optional(), Length(max=MAX_NAME_CHARACTERS)]
        super().__init__(label, choices=[], default="", validate_choice=False, validators=checks, **arguments)

    def data_of(self, value: str) -> str:
        return value or ""

    def iter_choices(self) -> Iterator[Choice]:
        yield Choice("", "Automatic", not self.data, {})
        if self.data:
            yield Choice(self.data, self.data, True, {})


def feature_field(label: str, kind: type[Struct], name: str) -> FeatureField:
    """A feature for the field ``name`` of ``kind``."""
    return FeatureField(label, binding=Binding(kind, name))


def shape_text(sizes: Iterable[int]) -> str:
    """Return ``28×28×1``."""
    return "×".join(map(str, sizes))


class ShapeField(Bound, StringField):
    """The shape of an image: ``28×28``, ``28 28 1`` or ``32, 32, 3``. ``setting`` is the list of its sizes.

    It has 2 or 3 sizes, or those in ``ranks``.
    """

    def __init__(self, label: str, ranks: tuple[int, ...] = (2, 3), **arguments: Any) -> None:
        super().__init__(label, **arguments)
        self._ranks = ranks

    @property
    def setting(self) -> list[int]:
        try:
            sizes = [int(part) for part in _SHAPE.split((self.data or "").strip()) if part]
        except ValueError:
            sizes = [0]
        if sizes and (
            len(sizes) not in self._ranks or not all(1 <= size <= MAX_SIDE_PIXELS for size in sizes)
        ):
            raise BadRequest("Enter height × width × channels, such as 28×28×1.")
        return sizes

    def data_of(self, sizes: list[int]) -> str:
        return shape_text(sizes)

    def pre_validate(self, form: Form) -> None:
        with as_field_error():
            _ = self.setting


class RecordFields(SharesForm[AnyRecipe], Generic[AnyRecipe]):
    """The fields of forms with TFRecord files among their sources; see `Records`."""

    record_train = text_field("TFRecord files", RecordSource, "train", RequiredIf(), AllowedFiles())
    record_val = text_field("Validation files", RecordSource, "val", AllowedFiles())
    record_test = text_field("Test files", RecordSource, "test", AllowedFiles())
    image_feature = feature_field("Image feature", RecordSource, "image_feature")
    record_shape = ShapeField("Shape of raw images", default="", binding=Binding(RecordSource, "shape"))


class Records(FormSource):
    """TFRecord files, whose settings are a subclass of `RecordSource`.

    The class ``mapping`` describes the records.
    """

    method = "tfrecord"
    title = "TFRecord"
    path = "record_train"
    own = ("record_{}",)

    def __init__(
        self, settings: type[Struct], mapping: type[RecordMapping], *, attribute: str = "records"
    ) -> None:
        self.settings, self.attribute, self.mapping = settings, attribute, mapping

    def complete(self, form: ImageDatasetForm[Any]) -> None:
        """Name the features that are not chosen: those that the first record probably has for them."""
        self.fill_settings(form, self.mapping.complete(form.draft().records)[0])

    def fill_settings(self, form: ImageDatasetForm[Any], source: Any) -> None:
        """Fill in the fields from the settings ``source``."""
        form.fill_struct(source)

    def fill(self, form: ImageDatasetForm[Any], recipe: Any) -> None:
        self.fill_settings(form, recipe.records)

    def check(self, form: ImageDatasetForm[Any], recipe: Any) -> None:
        self.mapping(recipe, *self.mapping.complete(recipe.records))


class OldDatasetFields(SharesForm[AnyRecipe], Generic[AnyRecipe]):
    """The fields of forms with datasets of DIGITS 4 to 6 among their sources; see `OldDatasets`."""

    database_train = text_field("Dataset or database", OldDataset, "train", RequiredIf(), AllowedFiles())
    database_val = text_field("Validation database", OldDataset, "val", AllowedFiles())
    database_test = text_field("Test database", OldDataset, "test", AllowedFiles())
    database_targets = text_field("Database of the labels", OldDataset, "targets", AllowedFiles())
    database_val_targets = text_field("Validation labels", OldDataset, "val_targets", AllowedFiles())
    database_test_targets = text_field("Test labels", OldDataset, "test_targets", AllowedFiles())
    database_labels = optional_path("Class names", OldDataset, "labels", "file")


class OldDatasets(FormSource):
    """A dataset of DIGITS 4 to 6."""

    method = "database"
    title = "LMDB, HDF5"
    attribute = "database"
    settings = OldDataset
    path = "database_train"
    own = ("database_{}",)

    def check(self, form: Any, recipe: FromDatabases) -> None:
        assert recipe.database is not None
        recipe.database.databases(recipe.database_labels)
        recipe.with_records({"train": ""})
