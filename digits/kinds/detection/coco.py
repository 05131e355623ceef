"""Boxes in COCO files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw

from digits.data.images import Size
from digits.data.sources import count_of, first_lines
from digits.kinds import coco
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box, declared_size
from digits.kinds.detection.format import Format, Source
from digits.kinds.shapes import edges_of, polygons_in, read_run_lengths, size_of

Edges = tuple[float, float, float, float]


class Annotation(coco.Annotation, gc=False):
    """An object; ``bbox`` contains left, top, width and height. Without it, the ``segmentation`` is used."""

    bbox: list[float] | None = None
    # Decoded only where it is used, since polygons are most of a file.
    segmentation: Raw = Raw()


def _open(source: Source) -> Annotations:
    content = coco.read(source.labels, source.images, Annotation)
    # Several entries can describe the same image.
    objects: dict[str, list[Box]] = {path: [] for path in content.paths.values()}
    around, without = 0, []
    for item in content.annotations:
        if item.bbox and len(item.bbox) != 4:
            content.skip(item, f"bbox has {len(item.bbox)} numbers instead of four")
            continue
        if item.bbox:
            left, top, width, height = item.bbox
            edges: Edges | None = (left, top, left + width, top + height)
        else:
            try:
                edges = _edges_around(item.segmentation)
            except ValueError as error:
                content.skip(item, str(error))
                continue
            around += edges is not None
        if edges is None:
            without.append(f"annotation {item.id}")
        else:
            name, where = content.categories[item.category_id], f"annotation {item.id}"
            box = Box(*edges, name, where, is_ignored=item.iscrowd != 0)
            objects[content.paths[item.image_id]].append(box)
    remarks = []
    if around:
        remarks.append(
            f"{count_of(around, 'object')} without a bbox: the boxes around their shapes are used."
        )
    if without:
        remarks.append(
            f"{count_of(len(without), 'object')} without a bbox or polygon: not used ({first_lines(without)})."
        )
    stated = {path: content.images[number] for number, path in content.paths.items()}
    sizes = {path: declared_size(image.width, image.height) for path, image in stated.items()}
    return Annotations(
        _images(objects, sizes), content.classes, remarks, faults=content.faults, have_sides=True
    )


def _images(objects: dict[str, list[Box]], sizes: dict[str, Size | None]) -> Iterator[AnnotatedImage]:
    for path, boxes in objects.items():
        yield AnnotatedImage(path, boxes, sizes[path])


def _edges_around(raw: Raw) -> Edges | None:
    """Return the edges of the box around polygons or run lengths, None if there are none; raises ValueError."""
    shape: Any = msgspec.json.decode(raw) if bytes(raw) else None
    if not shape:
        return None
    if isinstance(shape, dict):
        lengths = read_run_lengths(shape)
        return edges_of(lengths, size_of(shape)[1])
    parts = polygons_in(shape)
    xs, ys = (list(chain.from_iterable(part[axis::2] for part in parts)) for axis in range(2))
    return min(xs), min(ys), max(xs), max(ys)


FORMAT = Format("coco", "COCO", _open, (".json",), words="COCO (JSON)")
