"""The shapes of annotation tools that write JSON: objects of rectangles, polygons, circles and ellipses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from digits.data import loose_json
from digits.data.numbers import parse_number
from digits.data.sources.plan import UnusableSource
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.formats.format import Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation, LabelFolder, naming
from digits.kinds.sources.shapes import Rectangle, Rings, Surroundings

# A multiple of four, so that the box around a circle is exact.
_CORNERS_OF_ELLIPSES = 64
_MIN_CORNERS = 3


def load(data: bytes) -> Any:
    """Return the contents of a JSON file; raises InvalidAnnotation."""
    try:
        return loose_json.load(data)
    except loose_json.InvalidJson as error:
        raise InvalidAnnotation(f"not valid JSON: {error}") from error


def items(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list, or the values of an object; none for anything else."""
    values = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [item for item in values if isinstance(item, dict)]


def number(value: Any, where: str) -> float:
    """Return a finite number, which may be written as a text; raises InvalidAnnotation."""
    with naming(where):
        return parse_number(value)


def numbers(item: dict[str, Any], keys: Iterable[str], where: str) -> list[float]:
    """Return the numbers ``keys`` of an object; raises InvalidAnnotation."""
    return [number(item.get(key), f"{where}, {key}") for key in keys]


def pairs(value: Any, where: str) -> list[tuple[float, float]]:
    """Return a list of points; raises InvalidAnnotation."""
    if not isinstance(value, list) or not all(isinstance(point, list) and len(point) >= 2 for point in value):
        raise InvalidAnnotation(f"{where}: no list of points")
    return [(number(point[0], where), number(point[1], where)) for point in value]


def rectangle(points: list[tuple[float, float]], where: str) -> Rectangle:
    """Return the box around points; raises InvalidAnnotation if there are none."""
    if not points:
        raise InvalidAnnotation(f"{where}: no points")
    xs, ys = zip(*points, strict=True)
    return Rectangle(min(xs), min(ys), max(xs), max(ys))


def polygon(points: list[tuple[float, float]], where: str) -> Rings:
    """Return the area with the outline ``points``; raises InvalidAnnotation."""
    if len(points) < _MIN_CORNERS:
        raise InvalidAnnotation(f"{where}: a polygon has {len(points)} corners instead of at least three")
    return Rings.of(points)


def surroundings(points: list[tuple[float, float]], where: str) -> Surroundings:
    """Return the pixels around points that are no outline; raises InvalidAnnotation if there are none."""
    box = rectangle(points, where)
    return Surroundings(box.left - 0.5, box.top - 0.5, box.right + 0.5, box.bottom + 0.5)


def ellipse(x: float, y: float, width: float, height: float, angle: float = 0.0) -> list[tuple[float, float]]:
    """Return the outline of an ellipse with half the ``width`` and ``height``, rotated by ``angle`` in radians."""
    turns = (2 * math.pi * step / _CORNERS_OF_ELLIPSES for step in range(_CORNERS_OF_ELLIPSES))
    return rotate([(width * math.cos(turn), height * math.sin(turn)) for turn in turns], x, y, angle)


def rotate(points: list[tuple[float, float]], x: float, y: float, angle: float) -> list[tuple[float, float]]:
    """Return ``points``, which are relative to ``x`` and ``y``, rotated around these by ``angle`` in radians."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return [(x + a * cosine - b * sine, y + a * sine + b * cosine) for a, b in points]


def open_folder(
    source: Source,
    folder: LabelFolder,
    parse: Callable[[bytes, Counter[str]], AnnotatedImage],
    classes: Iterable[str] = (),
) -> Annotations:
    """Return the annotations in the files of ``folder``; ``parse`` counts the shapes that are not used by name."""
    unused: Counter[str] = Counter()
    found = folder.annotations(lambda data: parse(data, unused), classes)
    found.images = report_unused(found.images, unused, found.remarks, source.needs_outlines)
    return found


def report_unused(
    images: Iterator[AnnotatedImage], unused: Counter[str], remarks: list[str], keeps_surroundings: bool
) -> Iterator[AnnotatedImage]:
    """Yield ``images``, then add the numbers of ``unused`` shapes by name to the ``remarks``.

    Their `Surroundings` are removed from the images unless it ``keeps_surroundings``. Raises UnusableSource if there
    are no other shapes.
    """
    are_used = False
    for image in images:
        used = [shape for shape in image.boxes if not isinstance(shape.form, Surroundings)]
        are_used = are_used or bool(used)
        image.boxes = image.boxes if keeps_surroundings else used
        yield image
    if unused:
        counts = ", ".join(f"{count} × {shape}" for shape, count in unused.most_common())
        remedy = "Draw rectangles or polygons instead."
        if not are_used:
            raise UnusableSource(f"The annotations contain only shapes that are not used: {counts}.", remedy)
        remarks.append(f"Shapes that are not used: {counts}. {remedy}")
