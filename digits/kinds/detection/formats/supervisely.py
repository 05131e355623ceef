"""Supervisely: folders ``img`` of images and ``ann`` with a JSON file for each, and the classes in ``meta.json``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digits.data.sources.plan import read_bounded
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_shapes import (
    items,
    load,
    open_folder,
    pairs,
    polygon,
    rectangle,
    surroundings,
)
from digits.kinds.detection.formats.label_files import MAX_LABEL_BYTES, InvalidAnnotation, LabelFolder, naming
from digits.kinds.sources.shapes import Rectangle, RunLengths, Shape, from_bitmap

_META = "meta.json"
_OBJECTS = re.compile(rb'"objects"\s*:\s*\[')


def parse(data: bytes, unused: Counter[str]) -> AnnotatedImage:
    """Parse a file, and count objects that are ``unused``; raises InvalidAnnotation."""
    content = load(data)
    if not isinstance(content, dict) or not isinstance(content.get("objects"), list):
        raise InvalidAnnotation("no list of “objects”")
    shapes = (
        _shape(item, f"object {index}", unused) for index, item in enumerate(items(content["objects"]), 1)
    )
    size = content.get("size")
    size = size if isinstance(size, dict) else {}
    return AnnotatedImage(
        "", [shape for shape in shapes if shape], declared_size(size.get("width"), size.get("height"))
    )


def _shape(item: dict[str, Any], where: str, unused: Counter[str]) -> Shape | None:
    name = str(item.get("classTitle") or "").strip()
    if not name:
        raise InvalidAnnotation(f"{where}: no classTitle")
    kind = item.get("geometryType")
    if kind == "bitmap":
        return Shape(name, _bitmap(item.get("bitmap"), where), where)
    points = item.get("points")
    points = points if isinstance(points, dict) else {}
    exterior = pairs(points["exterior"], where) if points.get("exterior") else []
    if kind not in ("rectangle", "polygon"):
        unused[str(kind)] += 1
        return Shape(name, surroundings(exterior, where), where) if exterior else None
    if kind == "rectangle":
        return Shape(name, rectangle(exterior, where), where)
    for hole in points.get("interior") or []:
        # One line leads to the hole and back: with it, a single outline has the area without the hole.
        inner = pairs(hole, where)
        exterior = [*exterior, exterior[0], *inner, inner[0], exterior[0]] if inner and exterior else exterior
    return Shape(name, polygon(exterior, where), where)


def _bitmap(value: Any, where: str) -> RunLengths:
    """Return the pixels of a bitmap, whose ``origin`` is its corner at the top left."""
    bitmap = value if isinstance(value, dict) else {}
    ((left, top),) = pairs([bitmap.get("origin")], f"{where}, origin of the bitmap")
    with naming(where):
        mask = from_bitmap(bitmap.get("data"), is_packed=True)
    height, width = mask.shape
    return RunLengths.of(mask, Rectangle(left, top, left + width, top + height))


class _Project(LabelFolder):
    """The files in the folders ``ann``, whose images are in folders ``img`` beside them."""

    def label_files(self) -> list[str]:
        names = super().label_files()
        return [name for name in names if os.path.basename(name) != _META] if names else names


def _classes(labels: Path, images: Path) -> Iterator[str]:
    """Yield the classes of the ``meta.json`` in the folder of labels or above it, up to that of the project."""
    for folder in (labels, *labels.parents[:2], images):
        try:
            content = load(read_bounded(folder / _META, MAX_LABEL_BYTES))
        except (OSError, ValueError):
            continue
        for item in items(content.get("classes") if isinstance(content, dict) else None):
            if item.get("title"):
                yield str(item["title"])
        return


def _looks_like(head: bytes) -> bool:
    return bool(_OBJECTS.search(head)) and (
        b'"classTitle"' in head or (b'"size"' in head and b'"tags"' in head)
    )


def _open(source: Source) -> Annotations:
    classes = dict.fromkeys(_classes(source.labels, source.images))
    return open_folder(source, _Project(source.labels, source.images, ".json"), parse, classes)


FORMAT = Format(
    "supervisely",
    "Supervisely",
    _open,
    (".json",),
    is_folder=True,
    looks_like=_looks_like,
    words="Supervisely (JSON)",
)
