"""LabelMe and X-AnyLabeling: a JSON file for each image, with a list of ``shapes``."""

from __future__ import annotations

import math
import ntpath
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box, declared_size
from digits.kinds.detection.format import Format, Source
from digits.kinds.detection.json_shapes import (
    ellipse,
    items,
    load,
    pairs,
    polygon,
    rectangle,
    report_unused,
)
from digits.kinds.detection.label_files import InvalidAnnotation, LabelFolder

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
    boxes = (_box(item, f"shape {index}", unused) for index, item in enumerate(items(content["shapes"]), 1))
    file = str(content.get("imagePath") or "")
    size = declared_size(content.get("imageWidth"), content.get("imageHeight"))
    return AnnotatedImage(ntpath.basename(file), [box for box in boxes if box], size)


def is_labelme(content: Any) -> bool:
    """Return whether a decoded JSON file has this format."""
    return isinstance(content, dict) and isinstance(content.get("shapes"), list)


def _box(item: dict[str, Any], where: str, unused: Counter[str]) -> Box | None:
    name = str(item.get("label") or "").strip()
    if not name:
        raise InvalidAnnotation(f"{where}: no label")
    shape = item.get("shape_type") or "polygon"
    if shape not in (*_POLYGONS, "rectangle", "circle", "mask"):
        unused[str(shape)] += 1
        return None
    points = pairs(item.get("points"), where)
    if shape == "circle":
        if len(points) != 2:
            raise InvalidAnnotation(f"{where}: a circle has {len(points)} points instead of two")
        radius = math.dist(*points)
        box = polygon(ellipse(*points[0], radius, radius), name, where)
    elif shape == "mask" or (shape == "rectangle" and len(points) in (2, 4)):
        box = replace(rectangle(points, name, where), is_coarse=shape == "mask")
    else:
        box = polygon(points, name, where)
    return replace(box, is_ignored=bool(item.get("difficult")) or name == _IGNORED)


def _looks_like(head: bytes) -> bool:
    return bool(_KEYS.search(head))


def _open(source: Source) -> Annotations:
    unused: Counter[str] = Counter()
    folder = LabelFolder(source.labels, source.images, ".json")
    annotations = folder.annotations(lambda data: parse(data, unused))
    annotations.images = report_unused(annotations.images, unused, annotations.remarks)
    return annotations


FORMAT = Format(
    "labelme",
    "LabelMe",
    _open,
    (".json",),
    is_folder=True,
    looks_like=_looks_like,
    words="LabelMe, X-AnyLabeling (JSON)",
)
