"""The colors in which classes are drawn."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

Color = tuple[int, int, int]

# The fraction of the color circle between neighboring classes: never repeats, and neighbors differ clearly.
_GOLDEN_ANGLE = 0.61803398875
BACKGROUND = "background"
# How regions to ignore are drawn.
IGNORED_NAME, IGNORED_COLOR = "ignored", "#a0a0a0"


def distinct_colors(names: Sequence[str]) -> list[Color]:
    """Return distinct colors for classes by their ``names``; black for a background that is the first."""
    return [
        (0, 0, 0) if not index and name.lower() == BACKGROUND else distinct_color(index)
        for index, name in enumerate(names)
    ]


def distinct_color(index: int) -> Color:
    """Return a color for the class ``index`` that differs from those of other classes."""
    hue = (0.02 + index * _GOLDEN_ANGLE) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.75 if index % 2 else 0.95, 0.95 if index % 3 else 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)


def css_color(color: Color) -> str:
    """Return a color for style sheets, such as ``#ff8000``."""
    return "#" + "".join(f"{channel:02x}" for channel in color)
