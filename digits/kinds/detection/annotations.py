"""Annotated images, as the readers of all formats return them, and the checks of their boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from digits.data.images.images import Size
from digits.data.numbers import parse_number
from digits.data.sources.causes import Causes
from digits.data.sources.plan import ImageSource, UnusableSource, count_of, first_lines, listed, show
from digits.data.tables.tables import Faults
from digits.kinds.detection.formats.box_order import Order
from digits.kinds.sources.shapes import Rectangle, Shape

# The name of regions without annotations, as in KITTI.
DONT_CARE = "dontcare"


@dataclass(slots=True)
class AnnotatedImage:
    """An image, by its path relative to the image folder or by its name in `Annotations.stored`, and its objects.

    ``declared`` is the width and height that the annotations state for the image, None if they do not. With
    ``is_relative``, the coordinates of the objects are fractions of the width and height. ``split`` is the one that the
    annotations declare for the image, if any.
    """

    file: str
    boxes: list[Shape]
    declared: Size | None = None
    is_relative: bool = False
    split: str = ""


def declared_size(width: Any, height: Any) -> Size | None:
    """Return the width and height that a file states as numbers or texts; None unless both are above 0."""
    try:
        sides = parse_number(width), parse_number(height)
    except ValueError:
        return None
    return (round(sides[0]), round(sides[1])) if all(0.5 < side < 1e9 for side in sides) else None


@dataclass
class Annotations:
    """The annotated images of a source, which are read during iteration; this raises UnusableSource.

    ``stored`` are the images that the source itself contains; by default, they are
    files below the image folder. ``classes`` are those that the source declares, in their order, and
    ``remarks`` sentences about files that are not used; both may grow during iteration, and so may ``box_remarks``,
    which are about boxes instead of polygons, and the ``faults``: images and objects that are skipped. ``orders`` are
    those that the numbers of boxes can have; they are read in the first one, which only counts without a doubt if it
    ``needs_proof``. ``split_note`` says how they declare splits, if they do.
    """

    images: Iterator[AnnotatedImage]
    classes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    box_remarks: list[str] = field(default_factory=list, kw_only=True)
    stored: ImageSource | None = None
    faults: list[Faults] = field(default_factory=list)
    orders: tuple[Order, ...] = (Order.EDGES,)
    needs_proof: bool = False
    split_note: str = ""


# Corrections of this size, in pixels, are not reported: rounding, and pixels that are counted from 1.
_TOLERANCE = 1.0


@dataclass
class BoxChecks:
    """Check the boxes of images, and collect those that are dropped or clipped."""

    dropped: Causes = field(default_factory=Causes)
    clipped: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)

    def usable(self, image: AnnotatedImage, size: Size | None) -> list[Shape]:
        """Return the usable objects of an image as rectangles, clipped to its ``size``, None if it is unknown."""
        boxes = [box for box in (self._check(box, size) for box in image.boxes) if box]
        if not image.boxes:
            self.empty.append(show(image.file))
        return boxes

    def _check(self, box: Shape, size: Size | None) -> Shape | None:
        whole = edges = box.bounds
        fault = whole.fault()
        if not fault and size:
            edges = whole.clip(*size)
            fault = "outside the image" if edges.fault() else ""
            if not fault and _extends(whole, edges):
                self.clipped.append(box.where)
        if fault:
            self.dropped.add(box.where, fault)
            return None
        if box.is_ignored:
            self.ignored[box.name] += 1
        return replace(box, form=edges)

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


def _extends(whole: Rectangle, clipped: Rectangle) -> bool:
    corrections = (
        clipped.left - whole.left,
        clipped.top - whole.top,
        whole.right - clipped.right,
        whole.bottom - clipped.bottom,
    )
    return max(corrections) > _TOLERANCE
