"""The form of a dataset of ready-made TFRecord files."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct
from wtforms import StringField

from digits.core.recipe import CreateDataset
from digits.data.databases.convert import OldDataset
from digits.data.sources.plan import UnusableSource
from digits.kinds import kind_named
from digits.kinds.forms.dataset import ImageDatasetForm, SharesForm
from digits.kinds.forms.fields import (
    AllowedFiles,
    Binding,
    RequiredIf,
    SwitchField,
    optional_path,
    text_field,
)
from digits.kinds.forms.records import Records, ShapeField, feature_field
from digits.kinds.forms.source import FormSource
from digits.kinds.generic.databases import recipe_for
from digits.kinds.generic.reader import GenericMapping
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.recipes import has_databases


class RecordFiles(Records):
    """TFRecord files with an input, and optionally a target, in each record."""

    names = ("record_*", "input_*", "target_*")

    def is_in(self, recipe: CreateDataset) -> bool:
        return isinstance(recipe, CreateGeneric)

    def fill_settings(self, form: ImageDatasetForm[Any], source: CreateGeneric) -> None:
        form.set(input_feature=source.input_feature, target_feature=source.target_feature)


class Prebuilt(FormSource):
    """Databases of images and of labels, which become a dataset of another kind. There is no summary of them."""

    path = "prebuilt_train_images"
    settings = OldDataset

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        return ()

    def own_splits(self, form: ImageDatasetForm[Any]) -> set[str]:
        return {"val", "test"}  # databases are not divided

    def is_in(self, recipe: CreateDataset) -> bool:
        return has_databases(recipe)

    def fill(self, form: ImageDatasetForm[Any], recipe: Any) -> None:
        form.fill_struct(recipe.database)

    def read(self, form: ImageDatasetForm[Any]) -> dict[str, Any]:
        return {"train": ""}  # a draft that is not used: the databases make the recipe

    def check(self, form: ImageDatasetForm[Any], recipe: CreateDataset) -> None:
        databases = form.struct(OldDataset)
        if form["record_train"].data:
            form.add_error("record_train", "Enter either TFRecord files or databases.")
        if databases.val and bool(databases.targets) != bool(databases.val_targets):
            raise UnusableSource("Enter labels for both training and validation, or for neither.")
        recipe_for(databases, {})


RECORDS, PREBUILT = RecordFiles(Struct, GenericMapping, attribute=""), Prebuilt()


class DatasetForm(SharesForm[Any]):
    """A dataset of TFRecord files. The fields ``prebuilt_…`` and ``force_same_shape`` are those of DIGITS.

    Databases in the former become a dataset of another kind.
    """

    RECIPE = CreateGeneric
    SOURCES = (RECORDS, PREBUILT)
    IGNORED = {
        name: reason for name, reason in ImageDatasetForm.IGNORED.items() if name != "dsopts_force_same_shape"
    }
    has_images = False

    record_train = text_field(
        "TFRecord files",
        CreateGeneric,
        "train",
        RequiredIf("Enter a file, a folder or a pattern."),
        AllowedFiles(),
    )
    record_val = text_field("Validation files", CreateGeneric, "val", AllowedFiles())
    record_test = text_field("Test files", CreateGeneric, "test", AllowedFiles())
    input_feature = feature_field("Input feature", CreateGeneric, "input_feature")
    input_shape = ShapeField(
        "Input shape", ranks=(1, 2, 3), default="", binding=Binding(CreateGeneric, "input_shape")
    )
    target_feature = feature_field("Target feature", CreateGeneric, "target_feature")
    target_shape = ShapeField(
        "Target shape", ranks=(1, 2, 3, 4), default="", binding=Binding(CreateGeneric, "target_shape")
    )
    force_same_shape = SwitchField("Images of a different size", yes="Refuse", no="Resize", default=True)

    prebuilt_train_labels = optional_path("Training labels", OldDataset, "targets", "folder")
    prebuilt_val_images = optional_path("Validation images", OldDataset, "val", "folder")
    prebuilt_val_labels = optional_path("Validation labels", OldDataset, "val_targets", "folder")
    prebuilt_train_images = optional_path("Training images", OldDataset, "train", "folder")
    prebuilt_mean_file = StringField("Mean file", default="")

    @property
    def source(self) -> FormSource:
        return PREBUILT if (self.prebuilt_train_images.data or "").strip() else RECORDS

    def warnings(self) -> list[str]:
        ignored = (
            ["prebuilt_mean_file is ignored: the mean is computed."] if self.prebuilt_mean_file.data else []
        )
        if self.source is PREBUILT:
            kind = kind_named(self.recipe().kind)
            ignored.append(f"The labels determine the kind of the dataset: {kind.title.lower()}.")
        return [*super().warnings(), *ignored]

    def recipe(self) -> CreateDataset:
        if self.source is PREBUILT:
            return recipe_for(self.struct(OldDataset), self.image_settings())
        draft = cast(CreateGeneric, self.draft())
        mapping = GenericMapping(draft, *GenericMapping.complete(draft))
        height, width, _ = mapping.shape
        image = {"height": height, "width": width, "channels": mapping.channels, "resize_mode": "squash"}
        resize = not (self.force_same_shape.setting and self.dsopts_force_same_shape.setting)
        shape = {"dtype": mapping.dtype, "shape": list(mapping.shape), "resize": resize}
        return cast(CreateGeneric, self.draft(**self.image_settings() | image, **shape))

    def fills_from(self, recipe: CreateDataset) -> bool:
        return PREBUILT.is_in(recipe)

    def fill_source(self, recipe: CreateDataset) -> None:
        super().fill_source(recipe)
        if isinstance(recipe, CreateGeneric):
            self.set(force_same_shape="0" if recipe.resize else "1", dsopts_force_same_shape="1")
