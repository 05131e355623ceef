"""Label images of semantic segmentation: from the pixels of image files to class indexes.

The pixels of a label image are class indexes (a grayscale image, or one with a palette), or colors that a color map
translates. Pixels with the index `IGNORED`, 255, have no class; neither do those in the color that Pascal VOC uses
for the borders of objects. If all grayscale images contain only 0 and 255, these are the classes 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data import images
from digits.data.images import UnusableImage
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import Color, css_color

VOC_BORDER = (224, 224, 192)
_GRAYS = bytes(value for value in range(256) for _ in range(3))

Classes = NDArray[np.uint8]


@dataclass(frozen=True)
class MaskSurvey:
    """The pixel values of a label image, ascending, and the number of pixels of each.

    ``palette`` contains the colors of the indexes, three bytes each; it is empty for an image without a palette.
    """

    values: Sequence[int]
    counts: Sequence[int]
    palette: bytes = b""


@dataclass(frozen=True)
class ColorMap:
    """Label images whose pixels have the color of their class. The place of a color is the index of the class."""

    colors: Sequence[Color]

    def survey(self, image: Image.Image) -> MaskSurvey:
        """Count the pixels of each class; raises UnusableImage."""
        return _survey(self.decode(image))

    def decode(self, image: Image.Image) -> Classes:
        """Return the classes, uint8 [height, width]; raises UnusableImage for a color that is not in the map."""
        pixels = np.asarray(image.convert("RGB"), np.int32)
        packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
        known = {_pack(VOC_BORDER): IGNORED} | {
            _pack(color): place for place, color in enumerate(self.colors)
        }
        codes = np.array(sorted(known))
        places = np.minimum(np.searchsorted(codes, packed), len(codes) - 1)
        unknown = codes[places] != packed
        if unknown.any():
            color = css_color(tuple(pixels[unknown][0].tolist()))
            raise UnusableImage(f"the color {color} is not in the color map")
        classes = np.array([known[code] for code in codes.tolist()], np.uint8)
        return classes[places]


@dataclass(frozen=True)
class IndexCode:
    """Label images whose pixels are class indexes, below ``classes``.

    If they are ``binary``, the values 0 and 255 are the classes 0 and 1. ``palette`` is that of all images with a
    palette: in another one, an index can mean another class.
    """

    classes: int = MAX_PIXEL_CLASSES
    binary: bool = False
    palette: bytes = b""

    @classmethod
    def fitting(cls, surveys: Iterable[MaskSurvey], classes: int = 0) -> IndexCode:
        """Return the code of the surveyed images, by default with as many ``classes`` as their indexes require."""
        values: set[int] = set()
        palette = b""
        for survey in surveys:
            values.update(survey.values)
            palette = max(palette, survey.palette, key=len)
        if not palette and 255 in values and values <= {0, 255}:
            return cls(max(2, classes), binary=True)
        highest = max(values - {IGNORED}, default=0)
        return cls(classes or highest + 1, palette=palette)

    @property
    def colors(self) -> list[Color]:
        """The colors of the classes in the palette; empty without a palette, or if two classes share a color."""
        found = [
            (self.palette[place], self.palette[place + 1], self.palette[place + 2])
            for place in range(0, min(len(self.palette), 3 * self.classes), 3)
        ]
        return found if len(found) == len(set(found)) == self.classes > 1 else []

    def survey(self, image: Image.Image) -> MaskSurvey:
        """Count the pixels of each value; raises UnusableImage."""
        return _survey(_indexes(image), _palette(image))

    def decode(self, image: Image.Image) -> Classes:
        """Return the classes, uint8 [height, width]; raises UnusableImage for an index that is not a class."""
        indexes, palette = _indexes(image), _palette(image)
        if self.binary and palette:
            raise UnusableImage("it has a palette, but the other label images are black and white")
        found = _survey(indexes)
        if self.binary:
            return self._decode_binary(indexes, found)
        for value in found.values:
            if value >= self.classes and value != IGNORED:
                raise UnusableImage(f"the index {value} is not a class: there are {self.classes}")
            own, usual = (colors[3 * value : 3 * value + 3] for colors in (palette, self.palette))
            if own and usual and own != usual and value != IGNORED:
                raise UnusableImage(
                    f"the index {value} has a different color in its palette than in other label images"
                )
        return indexes

    @staticmethod
    def _decode_binary(indexes: Classes, found: MaskSurvey) -> Classes:
        wrong = [value for value in found.values if value not in (0, 255)]
        if wrong:
            raise UnusableImage(f"the value {wrong[0]} is neither 0 (background) nor 255 (foreground)")
        decoded: Classes = (indexes == 255).astype(np.uint8)
        return decoded


Code = ColorMap | IndexCode


def open_mask(source: images.Source) -> Image.Image:
    """Decode a label image; raises UnusableImage and OSError."""
    return images.open_unconverted(source)


def _indexes(image: Image.Image) -> Classes:
    """Return the values of a grayscale image or of one with a palette, uint8 [height, width]."""
    if image.mode in ("1", "L", "P"):
        return np.asarray(image).astype(np.uint8, copy=False)
    if image.mode in ("LA", "PA", "La"):
        return np.asarray(image)[..., 0]
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > IGNORED:
            raise UnusableImage(
                f"an index is above {IGNORED}: at most {MAX_PIXEL_CLASSES} classes are supported"
            )
        return values.astype(np.uint8)
    if image.mode in ("RGB", "RGBA", "RGBX"):
        pixels = np.asarray(image)
        if (pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 0] == pixels[..., 2]).all():
            return pixels[..., 0]
        raise UnusableImage("its pixels are colors instead of class indexes; choose a color map")
    raise UnusableImage(f"label images of the color mode {image.mode} are not supported")


def _palette(image: Image.Image) -> bytes:
    """Return the colors of the indexes; none if they are the shades of gray with these values."""
    colors = bytes(image.getpalette("RGB") or []) if image.mode in ("P", "PA") else b""
    return b"" if _GRAYS.startswith(colors) else colors


def _survey(pixels: Classes, palette: bytes = b"") -> MaskSurvey:
    counts = np.bincount(pixels.ravel(), minlength=256)
    values = np.flatnonzero(counts)
    return MaskSurvey(values.tolist(), counts[values].tolist(), palette)


def _pack(color: Color) -> int:
    return color[0] << 16 | color[1] << 8 | color[2]
