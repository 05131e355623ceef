"""Boxes in COCO files."""

from __future__ import annotations

from collections.abc import Iterator

from digits.kinds import coco
from digits.kinds.coco import Id
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box
from digits.kinds.detection.format import Format, Source


class Annotation(coco.Annotation):
    """An object; ``bbox`` contains left, top, width and height. Objects without a box are not used."""

    bbox: list[float] | None = None


def _open(source: Source) -> Annotations:
    found = coco.read(source.labels, source.images, Annotation)
    objects: dict[Id, list[Box]] = {number: [] for number in found.paths}
    for item in found.annotations:
        if item.bbox and len(item.bbox) != 4:
            found.skip(item, f"bbox has {len(item.bbox)} numbers instead of four")
        elif item.bbox:
            objects[item.image_id].append(_box(item, item.bbox, found.categories[item.category_id]))
    return Annotations(_images(found.paths, objects), found.classes, faults=found.faults)


def _images(paths: dict[Id, str], objects: dict[Id, list[Box]]) -> Iterator[AnnotatedImage]:
    for number, path in paths.items():
        yield AnnotatedImage(path, objects[number])


def _box(item: Annotation, bbox: list[float], name: str) -> Box:
    left, top, width, height = bbox
    where = f"annotation {item.id}"
    return Box(left, top, left + width, top + height, name, where, is_ignored=item.iscrowd != 0)


FORMAT = Format("coco", "COCO", _open, (".json",), words="COCO (JSON)")
