"""Visualization of targets: colored masks, and the colors of classes."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from digits.data.target import IGNORED, IGNORED_BOX, NO_BOX, TargetSpec

Color = tuple[int, int, int]

# The fraction of the color circle between neighboring classes: never repeats, and neighbors differ clearly.
_GOLDEN_ANGLE = 0.61803398875
BACKGROUND = "background"
# How regions to ignore are drawn.
_IGNORED_NAME, _IGNORED_COLOR = "ignored", "#a0a0a0"


def class_colors(target: TargetSpec) -> list[Color]:
    """Return the colors of the classes: those of the source, or else distinct ones; black for a background."""
    if target.colors:
        return list(target.colors)
    return [
        (0, 0, 0) if not place and name.lower() == BACKGROUND else distinct_color(place)
        for place, name in enumerate(target.names)
    ]


def distinct_color(place: int) -> Color:
    """Return the color of the class number ``place``, unlike those of other classes."""
    hue = (0.02 + place * _GOLDEN_ANGLE) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.75 if place % 2 else 0.95, 0.95 if place % 3 else 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)


def css_color(color: Color) -> str:
    """Return a color for style sheets, such as ``#ff8000``."""
    return "#" + "".join(f"{channel:02x}" for channel in color)


def legend(target: TargetSpec, *, has_ignored: bool = False) -> list[tuple[str, str]]:
    """Return the names and the CSS colors of the classes of masks and boxes; those that are not drawn have none.

    With ``has_ignored``, regions to ignore are the last.
    """
    if target.spatial not in ("mask", "boxes"):
        return []
    classes = [
        (name, css_color(color) if any(color) else "")
        for name, color in zip(target.names, class_colors(target), strict=False)
    ]
    return [*classes, (_IGNORED_NAME, _IGNORED_COLOR)] if has_ignored else classes


@dataclass(frozen=True)
class Outline:
    """A box to draw; the edges are percentages of the width and height of the image.

    One that is ``ignored`` is not an object, but a region to ignore.
    """

    left: float
    top: float
    width: float
    height: float
    name: str
    color: str
    ignored: bool = False


def outlines(
    boxes: Iterable[Sequence[float]], target: TargetSpec, width: float, height: float
) -> list[Outline]:
    """Return how to draw ``boxes``, rows of left, top, right, bottom and class, on images of this size in pixels.

    Empty rows are omitted.
    """
    styles = {place: (*style, False) for place, style in enumerate(_styles(target))}
    styles[IGNORED_BOX] = (_IGNORED_NAME, _IGNORED_COLOR, True)
    return [
        Outline(
            100 * left / width,
            100 * top / height,
            100 * (right - left) / width,
            100 * (bottom - top) / height,
            *styles[int(place)],
        )
        for left, top, right, bottom, place in boxes
        if place != NO_BOX
    ]


def _styles(target: TargetSpec) -> list[tuple[str, str]]:
    return list(zip(target.names, map(css_color, class_colors(target)), strict=True))


def draw_mask(mask: NDArray[np.integer], colors: Sequence[Color]) -> bytes:
    """Return a PNG file of ``mask`` [height, width] in the colors of the classes.

    Pixels of a black class and those that are ignored are transparent, so that it can be laid over the image.
    """
    picture = Image.fromarray(
        np.where((mask >= 0) & (mask < len(colors)), mask, IGNORED).astype(np.uint8), "P"
    )
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colors)] = colors
    picture.putpalette(palette.tobytes())
    shown = np.zeros(256, np.uint8)
    shown[: len(colors)] = [255 if any(color) else 0 for color in colors]
    file = io.BytesIO()
    picture.save(file, "PNG", transparency=shown.tobytes(), compress_level=1)
    return file.getvalue()


def draw_over(
    image: Image.Image,
    *,
    mask: bytes | None = None,
    boxes: Iterable[Outline] = (),
    arrow: Sequence[float] = (),
) -> Image.Image:
    """Return a copy of ``image`` in RGB with a half transparent ``mask``, a PNG file, and with ``boxes``.

    An ``arrow`` is a line from the center toward (x, y), fractions of the sides from -0.5 to 0.5.
    """
    drawn = image.convert("RGB")
    width, height = drawn.size
    if mask is not None:
        with Image.open(io.BytesIO(mask), formats=["PNG"]) as file:
            layer = file.convert("RGBA").resize(drawn.size, Image.Resampling.NEAREST)
        drawn.paste(layer, mask=layer.getchannel("A").point(lambda alpha: alpha // 2))
    draw = ImageDraw.Draw(drawn)
    for box in boxes:
        left, top = box.left * width / 100, box.top * height / 100
        right, bottom = left + box.width * width / 100, top + box.height * height / 100
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=box.color, width=2)
    if arrow:
        center = (width / 2, height / 2)
        draw.line((center, (center[0] + arrow[0] * width, center[1] + arrow[1] * height)), "#e02020", 2)
    return drawn
