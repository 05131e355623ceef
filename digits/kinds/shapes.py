"""Shapes of objects in COCO files: polygons, and run lengths (RLE) of pixels by columns, which begin outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from digits.data.images import Size

RunLengths = NDArray[np.int64]
_MIN_CORNERS = 3


def polygons_in(segmentation: Any) -> list[list[float]]:
    """Return the polygons of a segmentation, x and y by turns; raises ValueError.

    Scripts also write a polygon that is not in a list, or the points of polygons as pairs.
    """
    if not isinstance(segmentation, list):
        raise ValueError("the segmentation is neither a list of polygons nor an RLE mask")
    if not all(isinstance(part, list) for part in segmentation) or all(
        len(part) == 2 for part in segmentation
    ):
        segmentation = [segmentation]
    return [_polygon(part) for part in segmentation]


def _polygon(part: list[Any]) -> list[float]:
    values = [value for point in part for value in point] if all(map(_is_pair, part)) else part
    try:
        numbers = msgspec.convert(values, list[float], strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"a polygon is not a list of numbers ({error})") from None
    if len(numbers) % 2 or len(numbers) < 2 * _MIN_CORNERS:
        raise ValueError(f"a polygon has {len(numbers)} coordinates: at least three pairs are required")
    return numbers


def _is_pair(point: Any) -> bool:
    return isinstance(point, list) and len(point) == 2


def read_run_lengths(segmentation: Mapping[str, Any], image: Size | None = None) -> RunLengths:
    """Return the run lengths of a segmentation; raises ValueError, also unless it has the size of the ``image``."""
    width, height = image or size_of(segmentation)
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if size_of(segmentation) != (width, height):
        raise ValueError(
            f"its mask has size {size}, but the image has size [{height}, {width}] (height, width)"
        )
    if isinstance(counts, str):
        counts = decompress(counts.encode("utf-8", "replace"))
    try:
        lengths = np.array(msgspec.convert(counts, list[int], strict=False), np.int64)
    except (msgspec.ValidationError, OverflowError):
        raise ValueError("its run lengths are not integers") from None
    if (lengths < 0).any() or (lengths > width * height).any() or lengths.sum() != width * height:
        raise ValueError(f"its run lengths do not add up to {width * height:,} pixels")
    return lengths


def size_of(segmentation: Mapping[str, Any]) -> Size:
    """Return the width and height of a mask, (0, 0) if they are not known."""
    try:
        height, width = msgspec.convert(segmentation.get("size"), tuple[int, int], strict=False)
    except msgspec.ValidationError:
        return 0, 0
    return width, height


def edges_of(lengths: RunLengths, height: int) -> tuple[int, int, int, int] | None:
    """Return the left, top, right and bottom edges of an object in an image of this height; None if it is empty."""
    ends = np.cumsum(lengths)[1::2]
    starts = ends - lengths[1::2]
    starts, ends = starts[ends > starts], ends[ends > starts]
    if not len(ends):
        return None
    (left, top), (right, bottom) = divmod(starts, height), divmod(ends - 1, height)
    spans = right > left
    return (
        int(left.min()),
        0 if spans.any() else int(top.min()),
        int(right.max()) + 1,
        height if spans.any() else int(bottom.max()) + 1,
    )


def decompress(codes: bytes) -> list[int]:
    """Return the run lengths in COCO's compressed form: differences in groups of five bits, the lowest first."""
    counts: list[int] = []
    value = shift = 0
    for code in codes:
        bits = code - 48
        if not 0 <= bits < 64 or shift > 60:
            raise ValueError("its compressed run lengths are damaged")
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:
            if bits & 0x10:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError("its compressed run lengths are truncated")
    return counts
