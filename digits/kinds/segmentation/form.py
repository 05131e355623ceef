"""The form of a dataset for semantic segmentation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wtforms import SelectField, StringField
from wtforms.validators import ValidationError

from digits.data.images.lists import visible_entries
from digits.data.sources.declared_splits import split_folders
from digits.data.sources.plan import UnusableSource, show
from digits.data.sources.target_images import divide
from digits.data.tables.contents import refuse_run_lengths_in
from digits.data.tables.tables import is_image
from digits.kinds.detection.formats.formats import find_file, find_sources
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.fields import AllowedPath, as_field_error, check_images, choices, optional_path
from digits.kinds.forms.records import OldDatasets, Records
from digits.kinds.forms.source import method_field
from digits.kinds.forms.target_images import FOLDERS, Folders, Table, TargetImageForm
from digits.kinds.segmentation.annotated import ENDINGS, are_annotated
from digits.kinds.segmentation.reader import lists_values, read_class_names, read_color_map
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import (
    CreateWithTargetImages,
    TargetImageFolders,
    TargetImageRecords,
)
from digits.kinds.sources.target_image_records import TargetImageMapping

# The color maps of CVAT, and of two forms of CamVid.
LABEL_MAPS = ("labelmap.txt", "class_dict.csv", "label_colors.txt")
CLASS_VALUES = "_classes.csv"
MASK_FOLDERS = tuple(
    (
        "masks mask labels label annotations annotation segmentationclass gtfine annot gt groundtruth "
        "ground_truth"
    ).split()
)
_MAX_SEARCHED = 10
ENTER_TARGETS = "Enter the folder of label images, or annotations with polygons"


def _check_targets(form: Any, field: Any) -> None:
    if field.data and os.path.isfile(field.data) and not field.data.lower().endswith(ENDINGS):
        raise ValidationError(f"{ENTER_TARGETS} ({', '.join(ENDINGS)}).")


def _targets(label: str) -> StringField:
    return StringField(label, default="", validators=[AllowedPath("any", may_be_empty=True), _check_targets])


class _Folders(Folders):
    """Folders of images and of label images, one folder of both, or images and a COCO file."""

    def can_share(self, folder: Path) -> bool:
        return _holds_pairs(folder) or are_annotated(_both(folder, folder))

    def check_without_targets(self, folder: str) -> None:
        with as_field_error():
            refuse_run_lengths_in(Path(folder))
        raise ValidationError(
            f"{ENTER_TARGETS}: {show(folder)} contains neither a pair of folders named "
            "images and masks (or labels or annotations), nor images with label images such as a.jpg and "
            "a_mask.png, nor annotations with polygons, such as those of LabelMe or a single COCO file."
        )

    def resolve_targets(self, form: ImageDatasetForm[Any], path: str) -> str:
        if not os.path.isdir(path):
            return path
        file = _find_annotations(form, Path(path))
        has_masks = file and any(is_image(entry.name) for entry in os.scandir(file.parent))
        return str(file) if file and not has_masks else path

    def find_sources(self, form: ImageDatasetForm[Any], root: Path) -> tuple[Path, Path] | None:
        folders = super().find_sources(form, root)
        if folders:
            return folders[0], Path(self.resolve_targets(form, str(folders[1])))
        file = _find_annotations(form, root)
        if file:
            return root, file
        if _holds_pairs(root):
            return root, root
        return _find_annotated(form, root).get("train")

    def splits_in(self, form: ImageDatasetForm[Any], root: Path) -> dict[str, tuple[Path, Path | None]]:
        if declared := super().splits_in(form, root):
            return declared
        splits = _find_annotated(form, root)
        return dict(splits) if len(splits) > 1 else {}

    def check(self, form: ImageDatasetForm[Any], recipe: CreateWithTargetImages) -> None:
        drawn = {split for split, folders in recipe.folders().items() if are_annotated(folders)}
        names = (FOLDERS[split][: 1 if split in drawn else 2] for split in recipe.folders())
        check_images(form, (name for pair in names for name in pair))


def _find_annotations(form: ImageDatasetForm[Any], folder: Path) -> Path | None:
    file = find_file(folder)
    return file if file and form.meta.data_roots.contain(file) else None


def _find_annotated(form: ImageDatasetForm[Any], root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the allowed paths of the images and of the annotations of each split in ``root``."""
    try:
        sources = find_sources(root)
    except UnusableSource:
        return {}
    used = {split: paths for split, paths in sources.items() if are_annotated(_both(*paths))}
    allowed = all(map(form.meta.data_roots.contain, (path for paths in used.values() for path in paths)))
    return used if allowed and "train" in used else {}


def _both(images: Path, targets: Path) -> TargetImageFolders:
    return TargetImageFolders(images=str(images), targets=str(targets))


def _holds_pairs(folder: Path) -> bool:
    """Return whether ``folder``, or the first folder in it with images, contains images and their label images."""
    try:
        entries = visible_entries(str(folder))
        folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        for found in [entries, *map(visible_entries, folders[:_MAX_SEARCHED])]:
            if names := [entry.name for entry in found if is_image(entry.name)]:
                return divide(names) is not None
    except OSError:
        pass
    return False


def _beside(form: ImageDatasetForm[Any], root: Path, name: str) -> Path | None:
    """Return the file ``name`` of a tool in the folder of images, in one of its splits, or above it."""
    folders = (root, *split_folders(root).values(), root.parent)
    found = (folder / name for folder in folders if (folder / name).is_file())
    return next((path for path in found if form.meta.data_roots.contain(path)), None)


def _label_map(form: ImageDatasetForm[Any], root: Path) -> str:
    """Return the color map that a tool wrote for label images, or an empty string."""
    found = (_beside(form, root, name) for name in LABEL_MAPS)
    return str(next(filter(None, found), ""))


def _class_values(form: ImageDatasetForm[Any], root: Path) -> str:
    """Return the names of the pixel values that Roboflow writes for label images, or an empty string."""
    path = _beside(form, root, CLASS_VALUES)
    return str(path) if path and lists_values(path) else ""


class DatasetForm(TargetImageForm[CreateSegmentation]):
    """A dataset for semantic segmentation, from a folder of images and one of label images or a COCO file."""

    RECIPE = CreateSegmentation
    SOURCES = (
        _Folders(MASK_FOLDERS),
        Table(),
        Records(TargetImageRecords, TargetImageMapping),
        OldDatasets(),
    )

    method = method_field(SOURCES)
    label_folder = _targets("Label images")
    validation_label_folder = _targets("Validation label images")
    test_label_folder = _targets("Test label images")
    class_labels_file = optional_path("Class labels", CreateSegmentation, "class_labels_file", "file")
    # Accepted for scripts written for DIGITS; a color map implies its use.
    colormap_method = SelectField(
        "Color map method", choices=choices(("label", "Label"), ("textfile", "Text file")), default="label"
    )
    colormap_text_file = optional_path("Color map", CreateSegmentation, "colormap_file", "file")

    def validate_feature_folder(self, field: StringField) -> None:
        if not (field.errors or self.class_labels_file.data or self.colormap_text_file.data):
            self.colormap_text_file.data = _label_map(self, Path(field.data or ""))
            self.class_labels_file.data = _class_values(self, Path(field.data or ""))

    def validate_class_labels_file(self, field: StringField) -> None:
        self._check_text(field, read_class_names)

    def validate_colormap_text_file(self, field: StringField) -> None:
        if self.colormap_method.data == "textfile" and not field.data:
            raise ValidationError("This field is required.")
        self._check_text(field, read_color_map)

    def _check_text(self, field: StringField, read: Callable[[str], Any]) -> None:
        if field.data and not field.errors:
            with as_field_error():
                read(str(Path(field.data)))
