"""LabelMe and X-AnyLabeling: a JSON file for each image, with a list of ``shapes``."""

from __future__ import annotations

import math
import ntpath
import re
from collections import Counter
from typing import Any

from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_shapes import (
    ellipse,
    items,
    load,
    open_folder,
    pairs,
    polygon,
    rectangle,
    surroundings,
)
from digits.kinds.detection.formats.label_files import InvalidAnnotation, LabelFolder, naming
from digits.kinds.sources.shapes import Form, Rectangle, RunLengths, Shape, from_bitmap

# LabelMe's name of regions without annotations.
_IGNORED = "__ignore__"
# Images in base64 can precede the shapes.
_KEYS = re.compile(rb'"(shapes|imageData)"\s*:')
_POLYGONS = ("polygon", "rotation")


def parse(data: bytes, unused: Counter[str]) -> AnnotatedImage:
    """Parse a file, and count shapes that are ``unused``; raises InvalidAnnotation."""
    content = load(data)
    if not is_labelme(content):
        raise InvalidAnnotation("no list of “shapes”")
    shapes = (
        _shape(item, f"shape {index}", unused) for index, item in enumerate(items(content["shapes"]), 1)
    )
    file = str(content.get("imagePath") or "")
    size = declared_size(content.get("imageWidth"), content.get("imageHeight"))
    return AnnotatedImage(ntpath.basename(file), [shape for shape in shapes if shape], size)


def is_labelme(content: Any) -> bool:
    """Return whether a decoded JSON file has this format."""
    return isinstance(content, dict) and isinstance(content.get("shapes"), list)


def _shape(item: dict[str, Any], where: str, unused: Counter[str]) -> Shape | None:
    name = str(item.get("label") or "").strip()
    if not name:
        raise InvalidAnnotation(f"{where}: no label")
    kind = item.get("shape_type") or "polygon"
    if kind not in (*_POLYGONS, "rectangle", "circle", "mask"):
        unused[str(kind)] += 1
        points = item.get("points")
        return Shape(name, surroundings(pairs(points, where), where), where) if points else None
    form = _form(kind, pairs(item.get("points"), where), item, where)
    return Shape(name, form, where, is_ignored=bool(item.get("difficult")) or name == _IGNORED)


def _form(kind: str, points: list[tuple[float, float]], item: dict[str, Any], where: str) -> Form:
    if kind == "circle":
        if len(points) != 2:
            raise InvalidAnnotation(f"{where}: a circle has {len(points)} points instead of two")
        radius = math.dist(*points)
        return polygon(ellipse(*points[0], radius, radius), where)
    if kind == "mask":
        return _mask(rectangle(points, where), item.get("mask"), where)
    if kind == "rectangle" and len(points) in (2, 4):
        return rectangle(points, where)
    return polygon(points, where)


def _mask(corners: Rectangle, text: Any, where: str) -> RunLengths:
    """Return the pixels of a mask, whose first and last pixels are the ``corners``."""
    with naming(where):
        mask = from_bitmap(text)
    height, width = mask.shape
    across, down = corners.right - corners.left + 1, corners.bottom - corners.top + 1
    if max(abs(width - across), abs(height - down)) > 1:
        raise InvalidAnnotation(
            f"{where}: its mask has {width}×{height} pixels, but its points span {across:g}×{down:g}"
        )
    left, top = round(corners.left), round(corners.top)
    return RunLengths.of(mask, Rectangle(left, top, left + width, top + height))


def _looks_like(head: bytes) -> bool:
    return bool(_KEYS.search(head))


def _open(source: Source) -> Annotations:
    return open_folder(source, LabelFolder(source.labels, source.images, ".json"), parse)


FORMAT = Format(
    "labelme",
    "LabelMe",
    _open,
    (".json",),
    is_folder=True,
    looks_like=_looks_like,
    words="LabelMe, X-AnyLabeling (JSON)",
)
