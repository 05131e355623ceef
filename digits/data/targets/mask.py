"""The target of semantic segmentation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from digits.data.images.conversion import Size
from digits.data.targets.palette import Color
from digits.data.targets.picture import PictureTarget
from digits.data.targets.target import DatasetFit, Feature, Read, Target

if TYPE_CHECKING:
    from digits.data.images.images import Geometry

# The index of pixels without a class: the borders of objects, and the padding around an image.
IGNORED = 255
MAX_PIXEL_CLASSES = 255


class Mask(PictureTarget, frozen=True, kw_only=True):
    """The class of each pixel, int64 [height, width], 0 to ``len(names) - 1`` or `IGNORED`.

    Stored as a grayscale PNG. ``mean`` and ``std`` are those of the share of each class in the pixels of a training
    image that have one.
    """

    feature: Feature = "image/segmentation/class/encoded"
    dtype: Literal["int64"] = "int64"
    spatial: Literal["mask"] = "mask"

    noun = "class"

    @classmethod
    def of(
        cls,
        classes: list[str],
        height: int,
        width: int,
        colors: list[Color] | None = None,
        *,
        mean: list[float] | None = None,
        std: list[float] | None = None,
    ) -> Self:
        """Return the target for ``classes`` and images of ``height`` × ``width`` pixels."""
        return cls(shape=[height, width], names=classes, colors=colors or [], mean=mean or [], std=std or [])

    def __post_init__(self) -> None:
        """Raise ValueError for another shape, and for no or too many classes."""
        super().__post_init__()
        if len(self.shape) != 2:
            raise ValueError("target: mask are int64 of rank 2")
        if not 0 < len(self.names) <= MAX_PIXEL_CLASSES:
            raise ValueError(f"target: a mask has 1 to {MAX_PIXEL_CLASSES} classes")

    @property
    def contained_names(self) -> list[str]:
        return self.names

    def contained(self, value: NDArray[Any]) -> NDArray[np.int64]:
        return np.flatnonzero(self._pixels(value))

    def grouping(self, value: NDArray[Any]) -> NDArray[np.int64]:
        return self.count(value)

    def measured(self, value: NDArray[Any]) -> NDArray[np.float64]:
        counts = self._pixels(value)
        shares: NDArray[np.float64] = counts / max(1, counts.sum())
        return shares

    def _pixels(self, value: NDArray[Any]) -> NDArray[np.intp]:
        """Return the number of pixels of each class."""
        pixels = np.ravel(value)
        known = pixels[(pixels >= 0) & (pixels < len(self.names))].astype(np.intp)
        return np.bincount(known, minlength=len(self.names))

    def resize(self, value: NDArray[np.uint8], geometry: Geometry) -> NDArray[np.uint8]:
        from PIL import Image

        from digits.data.images import images

        return images.as_pixels(geometry.resize_mask(Image.fromarray(value), IGNORED))[:, :, 0]

    def moved(self, value: NDArray[np.uint8], places: Sequence[int]) -> NDArray[np.uint8]:
        table = np.full(IGNORED + 1, IGNORED, np.uint8)
        table[: len(places)] = places
        return table[value]

    def _fit_names(self, other: Target) -> DatasetFit:
        return self._fit_classes(other)

    def describe(self, value: Any) -> str:
        """Return the classes that are drawn, the one with the smallest area first; of a single one, also its share."""
        counts = self._pixels(np.asarray(value))
        present = [index for index in np.argsort(counts, kind="stable").tolist() if counts[index]]
        drawn = [index for index in present if any(self.palette[index])]
        if len(self.names) == 2 and len(drawn) == 1:
            return f"{100 * counts[drawn[0]] / counts.sum():.0f}% {self.names[drawn[0]]}"
        return ", ".join(self.names[index] for index in drawn or present) or "no classes"

    def paint(self, pixels: NDArray[np.uint8], value: NDArray[Any]) -> NDArray[np.uint8]:
        painted = np.repeat(pixels, 3 // pixels.shape[2], axis=2)
        for index, color in enumerate(self.palette):
            if any(color):  # the background stays visible
                chosen = np.asarray(value) == index
                painted[chosen] = painted[chosen] // 2 + np.array(color, np.uint8) // 2
        return painted

    def drawings(self, url: str, thumbnail: str, read: Read, size: Size) -> dict[str, Any]:
        return {"mask": url}

    def draw(self, value: NDArray[np.uint8], side: int = 0) -> bytes:
        return draw_mask(value, self.palette)

    def draw_prediction(self, predicted: Any, url: str, size: Size) -> dict[str, Any] | None:
        return {"url": url, "mask": predicted["mask"]}


def draw_mask(mask: NDArray[np.integer], colors: Sequence[Color]) -> bytes:
    """Return a PNG file of ``mask`` [height, width] in the colors of the classes.

    Pixels of a black class and those that are ignored are transparent, so that it can be laid over the image.
    """
    from PIL import Image

    picture = Image.fromarray(
        np.where((mask >= 0) & (mask < len(colors)), mask, IGNORED).astype(np.uint8), "P"
    )
    table = np.zeros((256, 3), np.uint8)
    table[: len(colors)] = colors
    picture.putpalette(table.tobytes())
    opacity = np.zeros(256, np.uint8)
    opacity[: len(colors)] = [255 if any(color) else 0 for color in colors]
    file = io.BytesIO()
    picture.save(file, "PNG", transparency=opacity.tobytes(), compress_level=1)
    return file.getvalue()
