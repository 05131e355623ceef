"""The form of a dataset of ready-made TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from typing import Any

from wtforms import Field, SelectField, StringField
from wtforms.validators import StopValidation, ValidationError

from digits.core.errors import BadRequest, DigitsError
from digits.core.recipe import CreateDataset
from digits.data.record_features import Features, guess_input, guess_target
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource
from digits.kinds import kind_named
from digits.kinds.dataset_form import SAME_SHAPE, ImageDatasetForm, SharesForm
from digits.kinds.form_fields import AllowedFiles, resolve_files
from digits.kinds.generic.databases import Databases
from digits.kinds.generic.reader import Mapping, find, map_features
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.record_form import FeatureField, ShapeField, shape_text
from digits.kinds.record_summary import summarize_source
from digits.kinds.source_summary import SourceSummary

PATHS = ("record_train", "record_val", "record_test")
# The arguments of `Databases`.
DATABASES = ("prebuilt_train_images", "prebuilt_train_labels", "prebuilt_val_images", "prebuilt_val_labels")


class _FilesOrDatabases:
    """Require TFRecord files unless there are databases."""

    field_flags = {"required": True}

    def __call__(self, form: Any, field: Field) -> None:
        if (form.prebuilt_train_images.data or "").strip():
            raise StopValidation("Enter either TFRecord files or databases." if field.data else None)
        if not (field.data or "").strip():
            raise StopValidation("Enter a file, a folder or a pattern.")


def _check_database(form: Any, field: Field) -> None:
    """Raise ValidationError unless the field is empty or a folder below a data root; ``data`` becomes its real path."""
    field.data = (field.data or "").strip()
    try:
        field.data = str(form.meta.data_roots.resolve(field.data, "folder")) if field.data else ""
    except DigitsError as error:
        raise ValidationError(error.sentences) from None


def _database(label: str) -> StringField:
    return StringField(label, default="", validators=[_check_database])


class DatasetForm(SharesForm[Any]):
    """A dataset of TFRecord files. The fields ``prebuilt_…`` and ``force_same_shape`` are those of DIGITS.

    Databases in the former become a dataset of another kind.
    """

    SCANNED = (*PATHS, "input_feature", "input_shape", "target_feature", "target_shape")
    IGNORED = {
        name: reason for name, reason in ImageDatasetForm.IGNORED.items() if name != "dsopts_force_same_shape"
    }
    OWN_SOURCES = ("record_{}",)
    has_images = False

    record_train = StringField("TFRecord files", default="", validators=[_FilesOrDatabases(), AllowedFiles()])
    record_val = StringField("Validation files", default="", validators=[AllowedFiles()])
    record_test = StringField("Test files", default="", validators=[AllowedFiles()])
    input_feature = FeatureField("Input feature")
    input_shape = ShapeField("Input shape", ranks=(1, 2, 3), default="")
    target_feature = FeatureField("Target feature")
    target_shape = ShapeField("Target shape", ranks=(1, 2, 3, 4), default="")
    force_same_shape = SelectField("Images of a different size", choices=SAME_SHAPE, default="1")

    prebuilt_train_labels = _database("Training labels")
    prebuilt_val_images = _database("Validation images")
    prebuilt_val_labels = _database("Validation labels")
    # Validated last: its validator opens the databases in the others.
    prebuilt_train_images = _database("Training images")
    prebuilt_mean_file = StringField("Mean file", default="")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._mapping: Mapping | None = None
        self._from_databases: CreateDataset | None = None

    def validate_record_train(self, field: StringField) -> None:
        if field.errors:
            return
        try:
            self._mapping = map_features(self._source())
        except ValueError:
            return  # the shape has an error of its own
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def validate_prebuilt_train_images(self, field: StringField) -> None:
        if not field.data or any(self[name].errors for name in DATABASES):
            return
        if self.prebuilt_val_images.data and bool(self.prebuilt_train_labels.data) != bool(
            self.prebuilt_val_labels.data
        ):
            raise ValidationError("Enter labels for both training and validation, or for neither.")
        try:
            self._databases().check()
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def _databases(self) -> Databases:
        return Databases(*(self._text(name) for name in DATABASES))

    def own_splits(self) -> set[str]:
        # Databases are not divided.
        return {"val", "test"} if self._text("prebuilt_train_images") else super().own_splits()

    def warnings(self) -> list[str]:
        ignored = (
            ["prebuilt_mean_file is ignored: the mean is computed."] if self.prebuilt_mean_file.data else []
        )
        if self._from_databases is not None:
            kind = kind_named(self._from_databases.kind)
            ignored.append(f"The labels determine the kind of the dataset: {kind.title.lower()}.")
        return [*super().warnings(), *ignored]

    def scan_source(self) -> Iterator[SourceSummary]:
        for name in PATHS:
            if self._text(name):
                self[name].data = resolve_files(self.meta.data_roots, self[name].data)
        try:
            source = self._source()
        except ValueError:
            raise BadRequest("Enter shapes such as 28×28×1.") from None
        return summarize_source(
            lambda: find(source),
            partial(_guess, source),
            partial(_RecordOverview, source),
            {"target_feature": "None"},
        )

    def recipe(self) -> CreateDataset:
        if self._text("prebuilt_train_images"):
            self._from_databases = self._databases().recipe(self.image_settings())
            return self._from_databases
        assert self._mapping is not None
        height, width, _ = self._mapping.shape
        image = self.image_settings() | {
            "height": height,
            "width": width,
            "channels": self._mapping.channels,
            "resize_mode": "squash",
        }
        return self._source(
            **image,
            dtype=self._mapping.dtype,
            shape=list(self._mapping.shape),
            resize="0" in (self.force_same_shape.data, self.dsopts_force_same_shape.data),
        )

    def fills_from(self, recipe: CreateDataset) -> bool:
        return Databases.of(recipe) is not None

    def fill_source(self, recipe: CreateDataset) -> None:
        if databases := Databases.of(recipe):
            self.set(**dict(zip(DATABASES, astuple(databases), strict=True)))
            return
        assert isinstance(recipe, CreateGeneric)
        self.set(
            record_train=recipe.train,
            record_val=recipe.val,
            record_test=recipe.test,
            input_feature=recipe.input_feature,
            input_shape=shape_text(recipe.input_shape),
            target_feature=recipe.target_feature,
            target_shape=shape_text(recipe.target_shape),
            force_same_shape="0" if recipe.resize else "1",
            dsopts_force_same_shape="1",
        )

    def _source(self, **settings: Any) -> CreateGeneric:
        return CreateGeneric(
            train=self._text("record_train"),
            val=self._text("record_val"),
            test=self._text("record_test"),
            input_feature=self._text("input_feature"),
            input_shape=self.input_shape.sizes,
            target_feature=self._text("target_feature"),
            target_shape=self.target_shape.sizes,
            **settings,
        )

    def _text(self, name: str) -> str:
        return (self[name].data or "").strip()


def _guess(source: CreateGeneric, files: RecordFiles, first: Features) -> dict[str, str]:
    """Return the feature that each field of the form has by default, or an empty string."""
    input_guess = files.image or guess_input(first)
    return {
        "input_feature": input_guess,
        "target_feature": guess_target(first, source.input_feature or input_guess),
    }


class _RecordOverview:
    """The inputs and targets in TFRecord files, and their description; raises UnusableSource."""

    def __init__(self, source: CreateGeneric, files: RecordFiles, first: Features) -> None:
        self._mapping = mapping = map_features(source)
        self.image = None if mapping.array else mapping.image
        self.chosen = {"input_feature": mapping.image.name}
        if mapping.target:
            self.chosen["target_feature"] = mapping.target.name

    def check(self, features: Features) -> None:
        """Read the numbers of a record; raises ValueError with a message."""
        for feature in (self._mapping.array, self._mapping.target):
            if feature is not None:
                feature.read(features)

    def describe(self, summary: SourceSummary) -> None:
        """Add the shapes of the inputs and the targets."""
        what = "numbers" if self._mapping.array else "images"
        shape = shape_text(self._mapping.shape)
        summary.facts += [
            f"Inputs: {what}, height × width × channels {shape}.",
            f"Targets: {self._target()}.",
        ]

    def _target(self) -> str:
        target = self._mapping.target
        if target is None:
            return "none"
        if target.shape:
            return f"{target.dtype} of shape {shape_text(target.shape)}"
        return f"one {target.dtype} number"
