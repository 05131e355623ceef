"""The form of a dataset for semantic segmentation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from wtforms import SelectField, StringField
from wtforms.validators import ValidationError

from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource, show
from digits.data.tables import is_image
from digits.kinds.coco import find_file
from digits.kinds.form_fields import choices
from digits.kinds.segmentation.overview import CocoOverview, Overview, RecordOverview
from digits.kinds.segmentation.reader import TARGET, read_class_names, read_color_map
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.source_summary import SourceSummary
from digits.kinds.target_image_form import OptionalPath, TargetImageForm
from digits.kinds.target_image_records import TargetImageMapping, TargetImageRecords, guess
from digits.kinds.target_image_summary import TargetImageOverview

LABEL_MAP = "labelmap.txt"
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "annotation", "segmentationclass")


def _check_targets(form: Any, field: Any) -> None:
    if field.data and os.path.isfile(field.data) and not field.data.lower().endswith(".json"):
        raise ValidationError("Enter the folder of label images or a COCO file (.json).")


class DatasetForm(TargetImageForm[CreateSegmentation]):
    """A dataset for semantic segmentation, from a folder of images and one of label images or a COCO file."""

    TARGET_TYPE = "any"
    TARGET = TARGET
    SCANNED = (*TargetImageForm.SCANNED, "class_labels_file", "colormap_text_file")
    TARGET_FOLDERS = MASK_FOLDERS

    label_folder = StringField("Label images", default="", validators=[OptionalPath("any"), _check_targets])
    validation_label_folder = StringField(
        "Validation label images", default="", validators=[OptionalPath("any"), _check_targets]
    )
    test_label_folder = StringField(
        "Test label images", default="", validators=[OptionalPath("any"), _check_targets]
    )
    class_labels_file = StringField("Class labels", default="", validators=[OptionalPath("file")])
    # Accepted for scripts written for DIGITS; a color map implies its use.
    colormap_method = SelectField(
        "Color map method", choices=choices(("label", "Label"), ("textfile", "Text file")), default="label"
    )
    colormap_text_file = StringField("Color map", default="", validators=[OptionalPath("file")])

    def check_without_targets(self, split: str, folder: str) -> None:
        raise ValidationError(
            f"Enter the folder of label images or a COCO file: {show(folder)} contains neither a pair of folders named "
            "images and masks (or labels or annotations) nor a single JSON file."
        )

    def resolve_targets(self, path: str) -> str:
        if not os.path.isdir(path):
            return path
        file = self._find_annotations(Path(path))
        has_masks = file and any(is_image(entry.name) for entry in os.scandir(file.parent))
        return str(file) if file and not has_masks else path

    def find_sources(self, root: Path) -> tuple[Path, Path] | None:
        found = super().find_sources(root)
        if found:
            return found[0], Path(self.resolve_targets(str(found[1])))
        file = self._find_annotations(root)
        return (root, file) if file else None

    def _find_annotations(self, folder: Path) -> Path | None:
        file = find_file(folder)
        return file if file and self.meta.data_roots.contain(file) else None

    def validate_feature_folder(self, field: StringField) -> None:
        if not (field.errors or self.class_labels_file.data or self.colormap_text_file.data):
            self.colormap_text_file.data = self._label_map(Path(field.data or ""))

    def _label_map(self, root: Path) -> str:
        """Return the color map that CVAT writes beside the folders of images and label images, or an empty string."""
        paths = (folder / LABEL_MAP for folder in (root, root.parent))
        found = (path for path in paths if path.is_file() and self.meta.data_roots.contain(path))
        return str(next(found, ""))

    def validate_class_labels_file(self, field: StringField) -> None:
        self._check_text(field, read_class_names)

    def validate_colormap_text_file(self, field: StringField) -> None:
        if self.colormap_method.data == "textfile" and not field.data:
            raise ValidationError("This field is required.")
        self._check_text(field, read_color_map)

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            names, colors = self._class_files()
            return self.scan_records(guess, partial(RecordOverview, class_labels=names, color_map=colors))
        if self.reads_table:
            return self.scan_table(Overview(*self._class_files()).describe_rows)
        folders, suggestion = self.scanned_folders()
        if not folders.targets:
            problem = "Enter the folder of label images or a COCO file (.json)."
            return iter([SourceSummary(problems=[problem], finished=True)])
        paths = self._class_files()
        if os.path.isfile(folders.targets):
            return CocoOverview(Overview(*paths), folders, suggestion).summaries()
        if not any(paths):
            paths[1] = self._label_map(self.path_of("feature_folder", "folder"))
        overview = Overview(*paths)
        return TargetImageOverview(folders, TARGET, overview.describe, suggestion).summaries()

    def map_records(
        self, source: TargetImageRecords, files: RecordFiles, first: Features
    ) -> TargetImageMapping:
        return TargetImageMapping(source, files, first, TARGET, CreateSegmentation.needs_targets)

    def _class_files(self) -> list[str]:
        """Return the real paths of the class labels and of the color map, or empty strings."""
        return [
            str(self.path_of(name, "file")) if self.entered(name) else ""
            for name in ("class_labels_file", "colormap_text_file")
        ]

    def recipe(self) -> CreateSegmentation:
        return CreateSegmentation(
            class_labels_file=self.class_labels_file.data or "",
            colormap_file=self.colormap_text_file.data or "",
            **self.target_image_settings(),
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
