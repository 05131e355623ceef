"""Annotated images, as the readers of all formats return them, and the checks of their boxes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from digits.data.causes import Causes
from digits.data.images import Size
from digits.data.sources import ImageSource, UnusableSource, count_of, first_lines, listed, show
from digits.data.tables import Faults

# The name of regions without annotations, as in KITTI.
DONT_CARE = "dontcare"


@dataclass(frozen=True, slots=True)
class Box:
    """An object: the edges in pixels of the image, the name of its class, and ``where`` it is in the annotations.

    With ``is_relative``, the edges are fractions of the width and height. One that ``is_ignored`` is marked as
    difficult, as a crowd, or as a region without annotations: `DONT_CARE`. ``points`` are the x and y of each corner of
    a polygon, in the units of the edges; a box without a polygon has none. One that ``is_coarse`` surrounds an object
    of another shape, which is not known.
    """

    left: float
    top: float
    right: float
    bottom: float
    name: str
    where: str
    is_relative: bool = False
    is_ignored: bool = False
    points: tuple[float, ...] = ()
    is_coarse: bool = False

    @classmethod
    def around(cls, points: tuple[float, ...], name: str, where: str, is_relative: bool = False) -> Box:
        """Return the smallest box around a polygon; it is not finite if a point is not."""
        xs, ys = points[::2], points[1::2]
        edges = (min(xs), min(ys), max(xs), max(ys)) if math.isfinite(sum(points)) else (math.nan,) * 4
        return cls(*edges, name, where, is_relative, points=points)

    def in_pixels(self, width: int, height: int) -> Box:
        """Return the box in pixels of an image of this size."""
        if not self.is_relative:
            return self
        edges = (self.left * width, self.top * height, self.right * width, self.bottom * height)
        points = tuple(value * (height if index % 2 else width) for index, value in enumerate(self.points))
        return Box(*edges, self.name, self.where, is_ignored=self.is_ignored, points=points)

    def clip(self, width: int, height: int) -> Box:
        """Return the part of the box in an image of this size; its polygon remains whole."""
        return Box(
            max(self.left, 0.0),
            max(self.top, 0.0),
            min(self.right, float(width)),
            min(self.bottom, float(height)),
            self.name,
            self.where,
            is_ignored=self.is_ignored,
            points=self.points,
        )

    def fault(self) -> str:
        """Return the fault of the edges, or an empty string."""
        if not all(map(math.isfinite, (self.left, self.top, self.right, self.bottom))):
            return "not finite"
        if self.right < self.left or self.bottom < self.top:
            return "reversed"
        return "empty" if self.right == self.left or self.bottom == self.top else ""


@dataclass(slots=True)
class AnnotatedImage:
    """An image, by its path relative to the image folder or by its name in `Annotations.stored`, and its objects.

    ``declared`` is the width and height that the annotations state for the image, None if they do not.
    """

    file: str
    boxes: list[Box]
    declared: Size | None = None


def declared_size(width: Any, height: Any) -> Size | None:
    """Return the width and height that a file states as numbers or texts; None unless both are above 0."""
    try:
        sides = float(width), float(height)
    except (TypeError, ValueError):
        return None
    return (round(sides[0]), round(sides[1])) if all(0.5 < side < 1e9 for side in sides) else None


@dataclass
class Annotations:
    """The annotated images of a source, which are read during iteration; this raises UnusableSource.

    ``stored`` are the images that the source itself contains; by default, they are
    files below the image folder. ``classes`` are those that the source declares, in their order, and
    ``remarks`` sentences about files that are not used; both may grow during iteration, and so may ``box_remarks``,
    which are about boxes instead of polygons, and the ``faults``: images and objects that are skipped. Boxes that
    ``have_sides`` are written as left, top, width and height.
    """

    images: Iterator[AnnotatedImage]
    classes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    box_remarks: list[str] = field(default_factory=list, kw_only=True)
    stored: ImageSource | None = None
    faults: list[Faults] = field(default_factory=list)
    have_sides: bool = False


# Corrections of this size, in pixels, are not reported: rounding, and pixels that are counted from 1.
_TOLERANCE = 1.0


@dataclass
class BoxChecks:
    """Check the boxes of images, and collect those that are dropped or clipped."""

    dropped: Causes = field(default_factory=Causes)
    clipped: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)

    def usable(self, image: AnnotatedImage, size: tuple[int, int] | None) -> list[Box]:
        """Return the usable boxes of an image, in pixels and clipped to its ``size``, None if it is unknown."""
        boxes = [box for box in (self._check(box, size) for box in image.boxes) if box]
        if not image.boxes:
            self.empty.append(show(image.file))
        return boxes

    def _check(self, box: Box, size: tuple[int, int] | None) -> Box | None:
        fault = box.fault()
        if not fault and size:
            whole = box.in_pixels(*size)
            box = whole.clip(*size)
            fault = "outside the image" if box.fault() else ""
            if not fault and _extends(whole, box):
                self.clipped.append(whole.where)
        if fault:
            self.dropped.add(box.where, fault)
            return None
        if box.is_ignored:
            self.ignored[box.name] += 1
        return box

    def remarks(self) -> list[str]:
        """Return warnings about the checked images."""
        remarks = []
        if count := self.dropped.count:
            remarks.append(f"{count_of(count, 'box')} cannot be used: {self.dropped.describe()}.")
        if self.clipped:
            remarks.append(
                f"{count_of(len(self.clipped), 'box')} clipped to the image: {first_lines(self.clipped)}."
            )
        if self.ignored:
            remarks.append(
                f"{count_of(self.ignored.total(), 'object')} marked difficult, crowd or don’t care, or of a type that "
                f"KITTI does not define: ignored ({listed(sorted(self.ignored))})."
            )
        if self.empty:
            verb = "has" if len(self.empty) == 1 else "have"
            remarks.append(
                f"{count_of(len(self.empty), 'image')} {verb} no objects: {first_lines(self.empty)}."
            )
        return remarks


def none_usable(ignored: Counter[str]) -> UnusableSource:
    """Return the error for a source without usable objects, given the number of ``ignored`` ones by name."""
    if not ignored:
        return UnusableSource("No image contains a usable object.", "Check the annotations and the classes.")
    return UnusableSource(
        f"No image contains a usable object: {count_of(ignored.total(), 'object')} "
        f"({listed(sorted(ignored))}) would be ignored.",
        "If these are your classes, list them under “Classes”.",
    )


def _extends(whole: Box, clipped: Box) -> bool:
    corrections = (
        clipped.left - whole.left,
        clipped.top - whole.top,
        whole.right - clipped.right,
        whole.bottom - clipped.bottom,
    )
    return max(corrections) > _TOLERANCE
