"""Pictures of records with their targets, as galleries draw them, without files or URLs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from digits.core.results.augmentation_preview import Picture
from digits.data.images import images
from digits.data.images.conversion import Size
from digits.data.targets.boxes import Boxes
from digits.data.targets.mask import Mask, draw_mask
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage

# Pixels of the longer side: larger pictures are scaled down, and only those of photos are compressed.
LARGEST_SIDE = 192
LARGEST_LOSSLESS_SIDE = 64


def picture_of(pixels: NDArray[np.uint8], value: Any, target: Target, label: str) -> Picture:
    """Return the picture of a record with ``pixels`` [H, W, C] and the ``value`` of its ``target``."""
    height, width = pixels.shape[:2]
    picture = Picture(url=_uri(pixels), width=width, height=height, label=label)
    if pixels.shape[2] not in (1, 3):
        picture = structs.replace(picture, width=images.side_by_side(pixels).shape[1])
    draw = _DRAWINGS.get(type(target))
    return structs.replace(picture, **draw(target, np.asarray(value), (width, height))) if draw else picture


def _draw_mask(target: Target, mask: NDArray[Any], size: Size) -> dict[str, Any]:
    rows, columns = (_sampled(side, _scale(mask.shape)) for side in mask.shape)
    return {"mask": images.data_uri(draw_mask(mask[np.ix_(rows, columns)], target.palette))}


def _draw_image(target: Target, image: NDArray[Any], size: Size) -> dict[str, Any]:
    return {"target": _uri(image.clip(0, 255).round().astype(np.uint8))}


def _draw_boxes(target: Target, rows: NDArray[Any], size: Size) -> dict[str, Any]:
    return target.drawings("", "", lambda: rows, size)


_DRAWINGS = {Boxes: _draw_boxes, Mask: _draw_mask, TargetImage: _draw_image}


def _uri(pixels: NDArray[np.uint8]) -> str:
    """Return a file of an image [H, W, C] as a data URI; images stacked along the channels are side by side."""
    if pixels.shape[2] not in (1, 3):
        pixels = images.side_by_side(pixels)
    height, width = pixels.shape[:2]
    scale = _scale((height, width))
    if scale < 1:
        pixels = images.resize(pixels, max(1, round(width * scale)), max(1, round(height * scale)), "squash")
    if max(height, width) <= LARGEST_LOSSLESS_SIDE:
        return images.data_uri(images.encode(pixels, "png"))
    return images.data_uri(images.encode(pixels, "jpg"), "image/jpeg")


def _scale(sides: Sequence[int]) -> float:
    return min(1.0, LARGEST_SIDE / max(sides))


def _sampled(side: int, scale: float) -> NDArray[np.intp]:
    count = max(1, round(side * scale))
    return ((np.arange(count) + 0.5) * side / count).astype(np.intp)
