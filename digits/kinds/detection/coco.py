"""Boxes in COCO files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from digits.kinds import coco
from digits.kinds.coco import Id
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box


class Annotation(coco.Annotation):
    """An object; ``bbox`` contains left, top, width and height. Objects without a box are not used."""

    bbox: list[float] | None = None


def read(path: Path, root: Path) -> Annotations:
    """Read a file whose images are below ``root``, a real path; raises UnusableSource."""
    found = coco.read(path, root, Annotation)
    objects: dict[Id, list[Box]] = {number: [] for number in found.paths}
    for item in found.annotations:
        if item.bbox and len(item.bbox) != 4:
            found.skip(item, f"bbox has {len(item.bbox)} numbers instead of four")
        elif item.bbox:
            objects[item.image_id].append(_box(item, item.bbox, found.categories[item.category_id]))
    return Annotations("COCO", _images(found.paths, objects), found.classes, faults=found.faults)


def _images(paths: dict[Id, str], objects: dict[Id, list[Box]]) -> Iterator[AnnotatedImage]:
    for number, path in paths.items():
        yield AnnotatedImage(path, objects[number])


def _box(item: Annotation, bbox: list[float], name: str) -> Box:
    left, top, width, height = bbox
    where = f"annotation {item.id}"
    return Box(left, top, left + width, top + height, name, where, is_ignored=item.iscrowd != 0)
