"""The polygons of annotations in the formats of object detection, such as those of YOLO, CVAT and LabelMe."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from digits.core.files import walk
from digits.data.databases import is_database
from digits.data.images import Size
from digits.data.sources import UnusableSource, count_of, first_lines, show
from digits.data.tables import Faults, is_image
from digits.kinds.detection import yolo
from digits.kinds.detection.annotations import Box
from digits.kinds.detection.formats import find_format, is_detected, open_annotations
from digits.kinds.detection.placement import measure_images, place_boxes
from digits.kinds.target_image_recipe import TargetImageFolders

# In these formats, a single file describes all images.
ENDINGS = (".json", ".xml", ".csv")
_SNIFFED_IMAGES = 200


@dataclass(frozen=True)
class Shape:
    """An object: the name of its class, the corners of its polygon in pixels, and ``where`` it is."""

    name: str
    polygon: list[float]
    where: str
    is_ignored: bool


@dataclass
class AnnotatedShapes:
    """The ``sizes`` and the ``shapes`` of images by their paths, and the names of the classes that are used.

    ``missing`` are the images that cannot be read, ``notes`` sentences about the rest.
    """

    classes: list[str]
    sizes: dict[str, Size] = field(default_factory=dict)
    shapes: dict[str, list[Shape]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[Faults] = field(default_factory=list)


def are_annotated(folders: TargetImageFolders) -> bool:
    """Return whether the targets in ``folders`` are annotations, not label images."""
    images, targets = Path(folders.images), Path(folders.targets)
    if not targets.is_dir():
        return targets.is_file()
    is_shared = os.path.realpath(images) == os.path.realpath(targets)
    files = (name for _, names in walk(targets, skips_hidden=True) for name in names)
    if is_database(targets) or (not is_shared and any(map(is_image, files))) or not is_detected(targets):
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
        return any(box.points for image in sniffed for box in image.boxes)
    except UnusableSource:
        return False


def read_shapes(labels: Path, root: Path, names: str = "") -> AnnotatedShapes:
    """Read the polygons of annotations about the images below ``root``; raises UnusableSource.

    ``names`` is the path of a file with the names of YOLO's class numbers, which may be empty. Rectangles are polygons
    as well, but annotations that contain nothing else are refused.
    """
    annotations = open_annotations(labels, root, names=names)
    if annotations.stored is not None:
        raise UnusableSource(f"{show(labels.name)} contains boxes, but no polygons.", _remedy())
    placed = place_boxes(annotations, list(measure_images(annotations, root)))
    boxes = [box for image, _ in placed for box in image.boxes]
    if boxes and not any(box.points for box in boxes):
        raise UnusableSource(
            f"{show(labels.name)} contains {count_of(len(boxes), 'object')}, but no polygons: boxes are not masks.",
            _remedy(),
        )
    used = {box.name for box in boxes if not box.is_ignored}
    declared = dict.fromkeys([*annotations.classes, *sorted(used)])
    annotated = AnnotatedShapes(
        [name for name in declared if name in used], notes=annotations.remarks, faults=annotations.faults
    )
    rectangles, coarse = [], []
    for image, size in placed:
        if size is None:
            annotated.missing.append(image.file)
            continue
        annotated.sizes[image.file] = size
        for box in image.boxes:
            if box.is_coarse:
                coarse.append(box.where)
                continue
            if not box.points:
                rectangles.append(box.where)
            annotated.shapes.setdefault(image.file, []).append(_shape(box.in_pixels(*size)))
    if rectangles:
        annotated.notes.append(
            f"{count_of(len(rectangles), 'rectangle')}: used as masks ({first_lines(rectangles)})."
        )
    if coarse:
        annotated.notes.append(
            f"{count_of(len(coarse), 'object')} without a polygon, ignored: {first_lines(coarse)}."
        )
    return annotated


def _shape(box: Box) -> Shape:
    left, top, right, bottom = box.left, box.top, box.right, box.bottom
    points = box.points or (left, top, right, top, right, bottom, left, bottom)
    return Shape(box.name, list(points), box.where, box.is_ignored)


def _remedy() -> str:
    return "Create a dataset for object detection, or annotate the outlines of objects as polygons."
