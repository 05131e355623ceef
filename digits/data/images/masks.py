"""Label images of semantic segmentation: from the pixels of image files to class indexes.

The pixels of a label image are class indexes (a grayscale image, or one with a palette), or colors that a color map
translates. Pixels with the index `IGNORED`, 255, have no class; neither do those in the color that Pascal VOC uses
for the borders of objects. `digits.data.images.mask_values` finds out what other values mean, such as black and white.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import Color, css_color

VOC_BORDER = (224, 224, 192)
WHITE = 255
# Indexes below are common; higher values may be shades of gray.
FIRST_SHADE = 16
# The maximum number of colors to count in a label image.
MAX_COUNTED_COLORS = 256
_GRAYS = bytes(value for value in range(256) for _ in range(3))
# Of higher images, every fourth row is examined for areas.
_MAX_HEIGHT_COUNTED = 256
# These formats can change the channels of a gray pixel by this much.
_TINTING = ("JPEG", "WEBP")
_MAX_TINT = 16

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class MaskSurvey:
    """The pixel values of a label image, ascending, and the number of pixels of each.

    ``palette`` contains the colors of the indexes, three bytes each; it is empty for an image without a palette.
    ``solid`` are the numbers of pixels of each value whose neighbors have the same one, for images with values that may
    be shades of gray. ``colors`` are the numbers of pixels by color, as red << 16 | green << 8 | blue, for images whose
    pixels are colors; they have no values. ``is_cut`` if these are only a part, ``is_rgb`` for images that could have
    colors, ``is_bits`` for images of one bit per pixel.
    """

    values: Sequence[int]
    counts: Sequence[int]
    palette: bytes = b""
    solid: Mapping[int, int] = field(default_factory=dict)
    colors: Mapping[int, int] = field(default_factory=dict)
    is_cut: bool = False
    is_rgb: bool = False
    is_bits: bool = False
    is_jpeg: bool = False

    def histogram(self) -> NDArray[np.int64]:
        """Return the number of pixels of each value, int64 [256]."""
        counts = np.zeros(256, np.int64)
        counts[list(self.values)] = self.counts
        return counts


@dataclass(frozen=True)
class ColorMap:
    """Label images whose pixels have the color of their class. The place of a color is the index of the class."""

    colors: Sequence[Color]

    def survey(self, image: Image.Image) -> MaskSurvey:
        """Count the pixels of each class; raises UnusableImage."""
        classes = self.decode(image)
        return _survey(_histogram(classes))

    def count(self, survey: MaskSurvey) -> NDArray[np.int64]:
        """Return the number of pixels of each class in an image of `survey`, int64 [256]."""
        return survey.histogram()

    def decode(self, image: Image.Image) -> Pixels:
        """Return the classes, uint8 [height, width]; raises UnusableImage for a color that is not in the map."""
        pixels = self._colors_in(image).astype(np.int32)
        packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
        known = self._known
        codes = np.array(sorted(known))
        places = np.minimum(np.searchsorted(codes, packed), len(codes) - 1)
        unknown = codes[places] != packed
        if unknown.any():
            color = css_color(tuple(pixels[unknown][0].tolist()))
            raise UnusableImage(f"the color {color} is not in the color map")
        classes = np.array([known[code] for code in codes.tolist()], np.uint8)
        return classes[places]

    def _colors_in(self, image: Image.Image) -> Pixels:
        """Return the colors of pixels, uint8 [height, width, 3]."""
        return np.asarray(image.convert("RGB"))

    @cached_property
    def _known(self) -> dict[int, int]:
        """The classes of the packed colors."""
        return {pack(VOC_BORDER): IGNORED} | {pack(color): index for index, color in enumerate(self.colors)}


class FoundColors(ColorMap):
    """The colors of label images without a color map, which `IndexCode` surveyed."""

    def count(self, survey: MaskSurvey) -> NDArray[np.int64]:
        counts = np.zeros(256, np.int64)
        for color, pixels in colors_of(survey).items():
            if color in self._known:
                counts[self._known[color]] += pixels
        return counts

    def _colors_in(self, image: Image.Image) -> Pixels:
        return _without_transparent(np.asarray(image.convert("RGBA")))[..., :3]


@dataclass(frozen=True)
class IndexCode:
    """Label images whose pixels are class indexes, below ``classes``.

    If there are ``values``, these are the gray values of the classes instead. With a ``threshold``, lower values are
    the class 0, and others 1. ``palette`` is that of all images with a palette: in another one, an index can mean
    another class.
    """

    classes: int = MAX_PIXEL_CLASSES
    values: tuple[int, ...] = ()
    threshold: int = 0
    palette: bytes = b""

    @property
    def is_gray(self) -> bool:
        """Whether pixels are shades of gray instead of indexes."""
        return bool(self.values or self.threshold)

    @property
    def colors(self) -> list[Color]:
        """The colors of the classes in the palette; empty without a palette, or if two classes share a color."""
        colors = [
            (self.palette[index], self.palette[index + 1], self.palette[index + 2])
            for index in range(0, min(len(self.palette), 3 * self.classes), 3)
        ]
        return colors if len(colors) == len(set(colors)) == self.classes > 1 else []

    def survey(self, image: Image.Image) -> MaskSurvey:
        """Count the pixels of each value, or of each color; raises UnusableImage."""
        is_jpeg = image.format == "JPEG"
        is_rgb = image.mode.startswith("RGB")
        pixels = pixels_of(image)
        if pixels.ndim == 3:
            colors, is_cut = _count_colors(pixels)
            return MaskSurvey([], [], colors=colors, is_cut=is_cut, is_rgb=True, is_jpeg=is_jpeg)
        counts = _histogram(pixels)
        palette = _palette(image)
        highest = int(np.flatnonzero(counts[:IGNORED]).max(initial=0))
        is_plain = palette or highest < FIRST_SHADE or highest < self.classes < MAX_PIXEL_CLASSES
        solid = {} if is_plain and not is_jpeg else _count_solid(pixels)
        return _survey(
            counts, palette=palette, solid=solid, is_rgb=is_rgb, is_bits=image.mode == "1", is_jpeg=is_jpeg
        )

    def count(self, survey: MaskSurvey) -> NDArray[np.int64]:
        """Return the number of pixels of each class in an image of `survey`, int64 [256]."""
        counts = survey.histogram()
        if not self.is_gray:
            return counts
        if survey.is_bits:
            counts[WHITE], counts[1] = counts[1], 0
        classes, known = self._table
        return np.bincount(classes[known], counts[known], minlength=256).astype(np.int64)

    def decode(self, image: Image.Image) -> Pixels:
        """Return the classes, uint8 [height, width]; raises UnusableImage for an index that is not a class."""
        pixels, palette = pixels_of(image), _palette(image)
        if pixels.ndim == 3:
            raise UnusableImage("its pixels are colors instead of class indexes; choose a color map")
        if self.is_gray:
            return self._decode_gray(pixels * np.uint8(WHITE) if image.mode == "1" else pixels, palette)
        for value in np.flatnonzero(_histogram(pixels)).tolist():
            if value >= self.classes and value != IGNORED:
                raise UnusableImage(f"the index {value} is not a class: there are {self.classes}")
            own, usual = (colors[3 * value : 3 * value + 3] for colors in (palette, self.palette))
            if own and usual and own != usual and value != IGNORED:
                raise UnusableImage(
                    f"the index {value} has a different color in its palette than in other label images"
                )
        return pixels

    def _decode_gray(self, pixels: Pixels, palette: bytes) -> Pixels:
        if palette:
            raise UnusableImage("it has a palette, but the other label images are shades of gray")
        classes, known = self._table
        unknown = np.flatnonzero(_histogram(pixels)[~known])
        if unknown.size:
            value = int(np.flatnonzero(~known)[unknown[0]])
            if self.values == (0, WHITE):
                raise UnusableImage(f"the value {value} is neither 0 (background) nor 255 (foreground)")
            raise UnusableImage(
                f"the value {value} is not that of a class: {', '.join(map(str, self.values))}"
            )
        decoded = pixels.tobytes().translate(classes.tobytes())
        return np.frombuffer(decoded, np.uint8).reshape(pixels.shape)

    @cached_property
    def _table(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The class of each gray value, and whether there is one."""
        if self.threshold:
            return (np.arange(256) >= self.threshold).astype(np.uint8), np.ones(256, np.bool_)
        classes, known = np.full(256, IGNORED, np.uint8), np.zeros(256, np.bool_)
        classes[list(self.values)] = np.arange(len(self.values))
        known[[*self.values, IGNORED]] = True
        return classes, known


Code = ColorMap | IndexCode


def open_mask(source: images.Source) -> Image.Image:
    """Decode a label image; raises UnusableImage and OSError."""
    return images.open_unconverted(source)


def colors_of(survey: MaskSurvey) -> Mapping[int, int]:
    """Return the number of pixels of each packed color, also for gray images and those with a palette."""
    if survey.colors:
        return survey.colors
    colors: dict[int, int] = {}
    for value, count in zip(survey.values, survey.counts, strict=True):
        gray = WHITE * value if survey.is_bits else value
        color = tuple(survey.palette[3 * value : 3 * value + 3]) or (gray, gray, gray)
        colors[pack(color)] = colors.get(pack(color), 0) + count
    return colors


def pack(color: Sequence[int]) -> int:
    """Return ``red << 16 | green << 8 | blue``."""
    return color[0] << 16 | color[1] << 8 | color[2]


def unpack(color: int) -> Color:
    """Return the red, green and blue of a packed color."""
    return color >> 16, color >> 8 & 255, color & 255


def pixels_of(image: Image.Image) -> Pixels:
    """Return the values, uint8 [height, width], or the colors if they are not gray, [height, width, 3].

    Transparent pixels are black. Raises UnusableImage.
    """
    if image.mode in ("1", "L", "P"):
        return np.asarray(image).astype(np.uint8, copy=False)
    if image.mode == "PA":
        return np.asarray(image)[..., 0]
    if image.mode in ("LA", "La"):
        return _without_transparent(np.asarray(image))[..., 0]
    if image.mode.startswith(("I", "F")):
        return _narrow(np.asarray(image))
    if image.mode in ("RGB", "RGBA", "RGBX"):
        pixels = np.asarray(image)
        if image.mode == "RGBA":
            pixels = _without_transparent(pixels)
        red, green, blue = (pixels[..., channel] for channel in range(3))
        if (red == green).all() and (red == blue).all():
            return red
        if image.format in _TINTING and int(np.ptp(pixels.astype(np.int16), axis=2).max()) <= _MAX_TINT:
            return green
        return pixels[..., :3]
    raise UnusableImage(f"label images of the color mode {image.mode} are not supported")


def _without_transparent(pixels: Pixels) -> Pixels:
    """Return pixels [height, width, channels] in which those with an opacity of 0 are black, unless all are."""
    transparent = pixels[..., -1] == 0
    if not transparent.any() or transparent.all():
        return pixels
    opaque = pixels.copy()
    opaque[transparent] = 0
    return opaque


def _narrow(values: NDArray[np.number]) -> Pixels:
    """Return values of 16 bits and more, or fractions of 1, as uint8; raises UnusableImage."""
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and (values == np.round(values)).all()):
        raise UnusableImage("its pixels are fractions instead of class indexes")
    if values.min() >= 0 and IGNORED < values.max() <= 65535 and not (values % 257).any():
        values = values // 257  # black and white, or shades of gray
    if values.min() < 0 or values.max() > IGNORED:
        raise UnusableImage(
            f"an index is above {IGNORED}: at most {MAX_PIXEL_CLASSES} classes are supported, and objects (instances) "
            "must not be numbered"
        )
    return values.astype(np.uint8)


def _palette(image: Image.Image) -> bytes:
    """Return the colors of the indexes; none if they are the shades of gray with these values."""
    colors = bytes(image.getpalette("RGB") or []) if image.mode in ("P", "PA") else b""
    return b"" if _GRAYS.startswith(colors) else colors


def _survey(counts: NDArray[np.integer], **facts: object) -> MaskSurvey:
    values = np.flatnonzero(counts)
    return MaskSurvey(values.tolist(), counts[values].tolist(), **facts)  # type: ignore[arg-type]


def _histogram(pixels: Pixels) -> NDArray[np.int64]:
    return np.array(Image.fromarray(np.ascontiguousarray(pixels)).histogram(), np.int64)


def _count_solid(pixels: Pixels) -> dict[int, int]:
    """Return about how many pixels of each value are the centers of 3×3 pixels with that value."""
    step = 4 if pixels.shape[0] > _MAX_HEIGHT_COUNTED else 1
    middle, above, below = pixels[1:-1:step], pixels[:-2:step], pixels[2::step]
    centers = middle[:, 1:-1]
    if not centers.size:
        return {}
    solid = (centers == above[:, 1:-1]) & (centers == below[:, 1:-1])
    for rows in (middle, above, below):
        solid &= (rows[:, 1:-1] == rows[:, :-2]) & (rows[:, 1:-1] == rows[:, 2:])
    mask = Image.fromarray(solid.view(np.uint8))
    counts = Image.fromarray(np.ascontiguousarray(centers)).histogram(mask)
    return {value: step * count for value, count in enumerate(counts) if count}


def _count_colors(pixels: Pixels) -> tuple[dict[int, int], bool]:
    """Return the numbers of pixels by packed color, and whether these are only a part."""
    counted = Image.fromarray(np.ascontiguousarray(pixels)).getcolors(MAX_COUNTED_COLORS)
    if counted is not None:
        return {pack(color): count for count, color in counted}, False  # type: ignore[arg-type]
    sample = pixels[::4, ::4].astype(np.int32)
    packed = sample[..., 0] << 16 | sample[..., 1] << 8 | sample[..., 2]
    colors, counts = np.unique(packed, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MAX_COUNTED_COLORS]
    return dict(zip(colors[most].tolist(), (16 * counts[most]).tolist(), strict=True)), True
