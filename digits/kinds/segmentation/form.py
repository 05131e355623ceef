"""The form of a dataset for semantic segmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wtforms import SelectField, StringField
from wtforms.validators import ValidationError

from digits.data.sources import UnusableSource, show
from digits.kinds.form_fields import choices
from digits.kinds.pair_form import OptionalPath, PairForm
from digits.kinds.pair_summary import summarize_pairs
from digits.kinds.segmentation.overview import Overview
from digits.kinds.segmentation.reader import TARGET, read_class_names, read_color_map
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.source_summary import SourceSummary

MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "annotation", "segmentationclass")


class DatasetForm(PairForm[CreateSegmentation]):
    """A dataset for semantic segmentation, from a folder of images and one of label images."""

    SCANNED = (*PairForm.SCANNED, "class_labels_file", "colormap_text_file")
    TARGET_FOLDERS = MASK_FOLDERS

    class_labels_file = StringField("Class labels", default="", validators=[OptionalPath("file")])
    # Accepted for scripts written for DIGITS; a color map implies its use.
    colormap_method = SelectField(
        "Color map method", choices=choices(("label", "Label"), ("textfile", "Text file")), default="label"
    )
    colormap_text_file = StringField("Color map", default="", validators=[OptionalPath("file")])

    def check_without_targets(self, split: str, folder: str) -> None:
        raise ValidationError(
            f"Enter the folder of the label images: {show(folder)} does not contain one folder named images and "
            "one named masks, labels or annotations."
        )

    def validate_class_labels_file(self, field: StringField) -> None:
        self._check_text(field, read_class_names)

    def validate_colormap_text_file(self, field: StringField) -> None:
        if self.colormap_method.data == "textfile" and not field.data:
            raise ValidationError("This field is required.")
        self._check_text(field, read_color_map)

    def scan_source(self) -> Iterator[SourceSummary]:
        folders, suggestion = self.scanned_folders()
        if not folders.targets:
            return iter([SourceSummary(problems=["Enter the folder of the label images."], finished=True)])
        paths = [
            str(self.path_of(name, "file")) if (self[name].data or "").strip() else ""
            for name in ("class_labels_file", "colormap_text_file")
        ]
        overview = Overview(*paths)
        return summarize_pairs(folders, TARGET, overview.describe, suggestion)

    def recipe(self) -> CreateSegmentation:
        return CreateSegmentation(
            class_labels_file=self.class_labels_file.data or "",
            colormap_file=self.colormap_text_file.data or "",
            **self.pair_settings(),
        )

    def fill_source(self, recipe: CreateSegmentation) -> None:
        super().fill_source(recipe)
        self.set(
            class_labels_file=recipe.class_labels_file,
            colormap_text_file=recipe.colormap_file,
        )

    def _check_text(self, field: StringField, read: Callable[[str], Any]) -> None:
        if field.errors or not field.data:
            return
        try:
            read(str(Path(field.data)))
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None
