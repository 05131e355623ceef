"""What the four numbers of boxes mean, as far as the numbers of all boxes of a source show it.

They can be edges, or a center or corner with a width and a height, in pixels, fractions, percent or thousandths of the
image. A single box rarely shows which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from digits.data.images.images import Size
from digits.kinds.sources.shapes import Rectangle, Shape

Numbers = tuple[float, float, float, float]
# Edges may exceed the image by this factor, because of rounding.
ROUNDED = 1.01
# Fractions may exceed the image slightly, because of rounding.
LARGEST_FRACTION = 1.1
# Units other than pixels and fractions, by the number of them in the width or height of the image.
UNITS = {100: "percent", 1000: "thousandths"}
# Boxes in a unit reach almost to the right and bottom edges of some image.
_REACHED = 0.9
# A unit is not concluded from boxes beyond fewer images.
_FEWEST_IMAGES = 3
# Pixels of all boxes are near the top left corner by chance only with a lower probability.
_UNLIKELY = 1e-3


class Order(Enum):
    """The order of the four numbers, in words."""

    EDGES = "left, top, right and bottom edges"
    SIDES = "left, top, width and height"
    CENTERS = "center, width and height"

    def rectangle(self, numbers: Numbers) -> Rectangle:
        """Return the edges of the box with these numbers."""
        x, y, a, b = numbers
        if self is Order.EDGES:
            return Rectangle(x, y, a, b)
        if self is Order.SIDES:
            return Rectangle(x, y, x + a, y + b)
        return Rectangle(x - a / 2, y - b / 2, x + a / 2, y + b / 2)

    def numbers(self, edges: Rectangle) -> Numbers:
        """Return the numbers of a box; the inverse of `rectangle`."""
        left, top, right, bottom = edges.left, edges.top, edges.right, edges.bottom
        if self is Order.EDGES:
            return left, top, right, bottom
        if self is Order.SIDES:
            return left, top, right - left, bottom - top
        return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


# Tools mix these up.
SIDES = (Order.SIDES, Order.EDGES, Order.CENTERS)


def reorder(boxes: Sequence[Shape], read: Order, meant: Order) -> list[Rectangle]:
    """Return the edges of rectangles whose numbers were ``read`` in one order, but are ``meant`` in another."""
    forms = (box.form for box in boxes)
    return [meant.rectangle(read.numbers(form)) for form in forms if isinstance(form, Rectangle)]


def are_inside(boxes: Sequence[Rectangle], size: Size, slack: float) -> bool:
    """Return whether boxes are in an image of this size, except for rounding and ``slack``, and not empty."""
    width, height = (side * ROUNDED + slack for side in size)
    return all(
        edges.right <= width
        and edges.bottom <= height
        and min(edges.left, edges.top) >= -2 * slack - (ROUNDED - 1) * max(size)
        and not edges.fault()
        for edges in boxes
    )


def unit_of(boxes: Sequence[Sequence[Rectangle]], sizes: Sequence[Size], slack: float) -> tuple[int, bool]:
    """Return the unit of the ``boxes`` of each image, a number in `UNITS` or 1 for pixels, and whether that is clear.

    ``sizes`` are those of the images, in which pixels must be, except for ``slack``.
    """
    edges = [each for of_image in boxes for each in of_image]
    if not edges:
        return 1, True
    right, bottom = max(each.right for each in edges), max(each.bottom for each in edges)
    beyond = sum(not are_inside(of_image, size, slack) for of_image, size in zip(boxes, sizes, strict=True))
    unit = next((unit for unit in UNITS if max(right, bottom) <= unit * ROUNDED), 0)
    if not unit or max(right, bottom) <= LARGEST_FRACTION:
        return 1, True
    chance = math.prod(min(1, unit / width) * min(1, unit / height) for width, height in sizes)
    is_many = 2 * beyond >= len(boxes) >= _FEWEST_IMAGES
    if not is_many and chance >= _UNLIKELY:
        return 1, True
    if min(right, bottom) >= _REACHED * unit:
        return unit, True
    return 1, is_many or all(
        number.is_integer() for each in edges for number in map(float, Order.EDGES.numbers(each))
    )
