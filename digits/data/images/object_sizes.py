"""Objects that almost vanish when their images are resized, and the size of images that keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import MAX_SIDE_PIXELS, CreateDataset
from digits.data.images.conversion import Geometry, Size, padded_size

# Shorter sides are lost. If most objects are not longer than the second number, this counts.
_LOST, _HARDLY_SEEN = 2.0, 4.0
# Sides of images are multiples of this number, which networks halve several times.
_MULTIPLE = 16


@dataclass(frozen=True)
class LostObjects:
    """A sentence about objects that become too small, and the ``size`` of images (width, height) that keeps them."""

    words: str
    size: Size


@dataclass(frozen=True)
class ObjectSizes:
    """The width and height of objects in pixels, float [objects, 2], and of the image of each.

    ``noun`` is the plural of what they are called, with a capital.
    """

    objects: NDArray[np.float64]
    images: NDArray[np.int64]
    noun: str = "Objects"

    @classmethod
    def of(cls, sizes: list[tuple[Size, NDArray[np.floating]]], noun: str = "Objects") -> Self:
        """Return the sizes of the objects in images, [objects, 2] for each size of an image."""
        objects = np.concatenate([np.zeros((0, 2)), *(sides for _, sides in sizes)])
        images = np.repeat(
            np.array([size for size, _ in sizes], np.int64).reshape(-1, 2),
            [len(sides) for _, sides in sizes],
            axis=0,
        )
        return cls(objects, images, noun)

    def lost(self, recipe: CreateDataset, padding: Size | None = None) -> LostObjects | None:
        """Return the objects that are too small in the images of ``recipe``, but not in their own; None without any."""
        if not len(self.objects):
            return None
        kinds, places = np.unique(self.images, axis=0, return_inverse=True)
        scales = np.array([_scale(tuple(size), recipe, padding) for size in kinds.tolist()])[
            places.reshape(-1)
        ]
        sides = self.objects * scales
        shorter, own = sides.min(axis=1), self.objects.min(axis=1)
        are_most = np.mean(shorter < _HARDLY_SEEN) > 0.5
        for least in (_HARDLY_SEEN, _LOST) if are_most else (_LOST,):
            lost = (shorter < least) & (own >= least)
            if lost.any():
                return self._describe(sides[lost], least, recipe)
        return None

    def _describe(self, lost: NDArray[np.float64], least: float, recipe: CreateDataset) -> LostObjects:
        factor = least / lost.min()
        width, height = (
            math.ceil(side * factor / _MULTIPLE) * _MULTIPLE for side in (recipe.width, recipe.height)
        )
        remedy = f"{width}×{height} keeps them all"
        if max(width, height) > MAX_SIDE_PIXELS:
            remedy = f"No size up to {MAX_SIDE_PIXELS} pixels keeps them: cut the images into parts"
        across, down = np.median(lost, axis=0)
        return LostObjects(
            f"{self.noun} smaller than {least:g} pixels in images of {recipe.width}×{recipe.height}: {len(lost):,} of "
            f"{len(self.objects):,}, such as {across:.1f}×{down:.1f}. {remedy}.",
            (width, height),
        )


def _scale(size: Size, recipe: CreateDataset, padding: Size | None) -> tuple[float, float]:
    padded = padded_size(size, padding) if padding else None
    geometry = Geometry(size, recipe.width, recipe.height, recipe.resize_mode, padded)
    left, top, right, bottom = geometry.cut
    return geometry.inner[0] / (right - left), geometry.inner[1] / (bottom - top)
