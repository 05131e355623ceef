"""Label images drawn from annotations in the formats of object detection, such as those of COCO, YOLO and CVAT.

The background has the index 0; the classes that have objects follow in the order of the annotations. A smaller object
covers a larger one, and of equally large ones the later covers the earlier. Pixels of ignored regions, such as crowds,
and those around objects whose outline is not known have no class, unless an object covers them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from digits.core.files import walk
from digits.data.images import images
from digits.data.images.images import Size
from digits.data.images.lists import ImageList
from digits.data.sources.plan import (
    ImageSource,
    Located,
    Progress,
    UnusableSource,
    count_of,
    first_lines,
    listed,
    show,
)
from digits.data.sources.target_images import Matches
from digits.data.tables.tables import Faults, is_image
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import BACKGROUND
from digits.kinds.detection.formats import yolo
from digits.kinds.detection.formats.formats import find_format, is_detected, open_annotations
from digits.kinds.detection.placement import measure_images, place_boxes
from digits.kinds.sources.shapes import Form, Rectangle, Shape, Surroundings
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.sources.target_images import FoundTargetImages

# In these formats, a single file describes all images.
ENDINGS = (".json", ".xml", ".csv")
_SNIFFED_IMAGES = 200


def are_annotated(folders: TargetImageFolders) -> bool:
    """Return whether the targets in ``folders`` are annotations, not label images."""
    images, targets = Path(folders.images), Path(folders.targets)
    if not targets.is_dir():
        return targets.is_file()
    is_shared = os.path.realpath(images) == os.path.realpath(targets)
    files = (name for _, names in walk(targets, skips_hidden=True) for name in names)
    if (not is_shared and any(map(is_image, files))) or not is_detected(targets):
        return False
    chosen = find_format(targets)
    if chosen.stores_images or not is_shared:
        return not chosen.stores_images
    # Any text beside images looks like YOLO.
    return chosen.looks_like is not None or _has_polygons(targets, images)


def numbers_classes(folders: TargetImageFolders) -> bool:
    """Return whether the targets in ``folders`` are annotations with numbers instead of names of classes."""
    return are_annotated(folders) and find_format(Path(folders.targets)) is yolo.FORMAT


def _has_polygons(labels: Path, images: Path) -> bool:
    try:
        sniffed = islice(open_annotations(labels, images).images, _SNIFFED_IMAGES)
        return any(not isinstance(box.form, Rectangle) for image in sniffed for box in image.boxes)
    except UnusableSource:
        return False


@dataclass
class DrawnMasks(Located):
    """The label images of the annotations ``root`` in the format ``title``.

    The sizes of images and the forms in them, with the indexes of their classes, are by the paths of the images.
    """

    root: Path
    title: str
    sizes: dict[str, Size] = field(default_factory=dict)
    forms: dict[str, list[tuple[int, Form]]] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Return a label image as a PNG file."""
        width, height = size = self.sizes[name]
        mask = np.zeros((height, width), np.uint8)
        drawn = [(index, form.raster(size)) for index, form in self.forms.get(name, [])]
        for index, raster in sorted(drawn, key=lambda item: (item[0] != IGNORED, -item[1].area)):
            raster.draw(mask, index)
        return images.encode(mask[..., None], "png")


@dataclass(frozen=True)
class AnnotatedImages(FoundTargetImages):
    """The images of annotations with their label images."""

    masks: DrawnMasks
    notes: list[str]

    @cached_property
    def target_images(self) -> ImageSource:
        return self.masks

    def remarks(self, target: str) -> list[str]:
        return self.notes

    def describe(self, target: str) -> str:
        images = count_of(len(self.matches.names), "image")
        objects = count_of(sum(map(len, self.masks.forms.values())), "object")
        return f"{self.masks.title} annotations: {images} with {objects}"

    def need(self, target: str) -> None:
        if not self.matches.names:
            name = show(self.masks.root.name)
            raise UnusableSource(
                f"None of the images listed in {name} were found in {show(self.folders.images)}.",
                "Enter the folder that contains them.",
            )


@dataclass
class AnnotatedClasses:
    """Reads the annotations of all splits, whose classes are the same. ``indexes`` are those of the classes by name.

    ``names`` is the path of a file with the names of YOLO's class numbers, which may be empty.
    """

    names: str = ""
    indexes: dict[str, int] = field(default_factory=dict)

    def find(self, folders: TargetImageFolders, path: Path, progress: Progress) -> AnnotatedImages:
        """Read the annotations ``path`` about the images in ``folders``; raises UnusableSource."""
        progress.reading(f"Reading {show(str(path))}")
        root = Path(os.path.realpath(folders.images))
        annotations = open_annotations(path, root, names=self.names, needs_outlines=True)
        if annotations.stored is not None:
            raise UnusableSource(f"{show(path.name)} contains boxes, but no polygons.", _REMEDY)
        placed = place_boxes(annotations, list(measure_images(annotations, root)))
        shapes = [shape for image, _ in placed for shape in image.boxes]
        _need_outlines(path, shapes)
        used = {shape.name for shape in shapes if _has_class(shape)}
        self._add_classes(path, [name for name in [*annotations.classes, *sorted(used)] if name in used])
        masks = DrawnMasks(path, find_format(path).title)
        faults = Faults(path, row="object", are_images=False)
        missing = []
        for image, size in placed:
            if size is None:
                missing.append(image.file)
                continue
            masks.sizes[image.file] = size
            for shape in image.boxes:
                try:
                    shape.bounds.window(size)
                except ValueError as error:
                    faults.add_place(shape.where, str(error))
                    continue
                index = self._index(shape.name) if _has_class(shape) else IGNORED
                masks.forms.setdefault(image.file, []).append((index, shape.form))
        faults.usable = sum(map(len, masks.forms.values()))
        files = list(masks.sizes)
        matches = Matches([(file, file) for file in files], [], [], [])
        lists = [ImageList(Path(folders.images), files)]
        notes = [*annotations.remarks, *_notes(missing, shapes, masks)]
        return AnnotatedImages(folders, matches, lists, masks, notes, faults=[*annotations.faults, faults])

    def _add_classes(self, path: Path, names: list[str]) -> None:
        for name in (BACKGROUND, *names):
            self._index(name)
        if len(self.indexes) > MAX_PIXEL_CLASSES:
            raise UnusableSource(
                f"{show(path.name)} has {len(self.indexes) - 1:,} categories.",
                f"The limit is {MAX_PIXEL_CLASSES - 1}.",
            )

    def _index(self, name: str) -> int:
        name = BACKGROUND if name.lower() == BACKGROUND else show(name)
        return self.indexes.setdefault(name, len(self.indexes))


_REMEDY = "Create a dataset for object detection, or annotate the outlines of objects as polygons."


def _has_class(shape: Shape) -> bool:
    return not shape.is_ignored and not isinstance(shape.form, Surroundings)


def _need_outlines(path: Path, shapes: Sequence[Shape]) -> None:
    """Raise UnusableSource if there are objects, but only boxes or only ignored ones."""
    if shapes and all(shape.is_ignored for shape in shapes):
        raise UnusableSource(
            f"All objects in {show(path.name)} are crowd regions (iscrowd), or marked as ignored.",
            "CVAT exports brush masks to COCO this way: export as “CVAT for images” or “Segmentation mask” instead.",
        )
    if shapes and all(isinstance(shape.form, Rectangle) for shape in shapes):
        raise UnusableSource(
            f"{show(path.name)} contains {count_of(len(shapes), 'object')}, but no polygons or masks: boxes are not "
            "masks.",
            _REMEDY,
        )


def _notes(missing: list[str], shapes: Sequence[Shape], masks: DrawnMasks) -> list[str]:
    rectangles = [shape.where for shape in shapes if type(shape.form) is Rectangle]
    unknown = [shape.where for shape in shapes if isinstance(shape.form, Surroundings)]
    ignored = sum(shape.is_ignored for shape in shapes)
    notes = []
    if missing:
        notes.append(f"{count_of(len(missing), 'image')} not found or unreadable: {listed(missing)}.")
    if rectangles:
        notes.append(f"{count_of(len(rectangles), 'rectangle')}: used as masks ({first_lines(rectangles)}).")
    if unknown:
        notes.append(
            f"{count_of(len(unknown), 'object')} without an area, such as a line: the pixels in the rectangles around "
            f"them have no class ({first_lines(unknown)})."
        )
    if ignored:
        notes.append(f"{count_of(ignored, 'crowd region')}: ignored.")
    bare = [file for file in masks.sizes if file not in masks.forms]
    if bare:
        notes.append(f"{count_of(len(bare), 'image')} without objects (background only): {listed(bare)}.")
    return notes
