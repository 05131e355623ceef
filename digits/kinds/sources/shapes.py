"""Objects in images: the name of a class, and a form: a rectangle, polygons, or run lengths (RLE) of pixels.

Coordinates are those of the annotations, in pixels or in fractions of the image, until a `Placement` moves the forms to
the upright image. Run lengths are those of COCO in their compressed form: by columns, beginning with pixels outside.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from pycocotools import mask as coco_masks

from digits.data.images import images
from digits.data.images.images import Size, UnusableImage
from digits.data.images.mask_fit import turned

Inside = NDArray[np.bool_]
_MIN_CORNERS = 3
# A mask has one byte per pixel, unlike an image.
_MAX_MASK_PIXELS = 4 * images.MAX_PIXELS
_MAX_PACKED_BYTES = 16 << 20
# Forms may extend beyond the image by this multiple of its size, and are clipped to it.
_MARGIN = 2
# Numbers in groups of five bits, the lowest first; the last group of each is below 32. All are added to 48.
_COMPRESSED = re.compile(rb"(?:[P-o]{0,6}[0-O])+")

# From a point in the file of this width and height to the upright image, by EXIF orientation.
_TURNS: dict[int, Callable[[Any, Any, float, float], tuple[Any, Any]]] = {
    1: lambda x, y, width, height: (x, y),
    2: lambda x, y, width, height: (width - x, y),
    3: lambda x, y, width, height: (width - x, height - y),
    4: lambda x, y, width, height: (x, height - y),
    5: lambda x, y, width, height: (y, x),
    6: lambda x, y, width, height: (height - y, x),
    7: lambda x, y, width, height: (height - y, width - x),
    8: lambda x, y, width, height: (y, width - x),
}


@dataclass(frozen=True, slots=True)
class Placement:
    """From coordinates of annotations to the upright image.

    They are multiplied by ``across`` and ``down``, which makes them pixels of the file of this ``width`` and
    ``height``, and turned by ``turn``, an EXIF orientation.
    """

    across: float
    down: float
    width: float
    height: float
    turn: int = 1

    def point(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return where points are, given their x and their y."""
        return _TURNS[self.turn](x * self.across, y * self.down, self.width, self.height)


class Raster(NamedTuple):
    """The pixels of an object: COCO's run lengths in a window of the image at ``left`` and ``top``."""

    left: int
    top: int
    run_lengths: Mapping[str, Any]

    @property
    def area(self) -> int:
        """The number of pixels."""
        return int(coco_masks.area(self.run_lengths))

    def draw(self, target: NDArray[np.uint8], value: int) -> None:
        """Set the pixels of the object in ``target`` [height, width] to ``value``."""
        height, width = self.run_lengths["size"]
        inside = _decode(self.run_lengths["counts"], width, height)
        target[self.top : self.top + height, self.left : self.left + width][inside] = value


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The edges of a rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def bounds(self) -> Rectangle:
        """The rectangle itself, as the smallest one around it."""
        return self

    def moved(self, placement: Placement) -> Self:
        """Return the form on the upright image."""
        x, y = placement.point(self.left, self.top)
        other_x, other_y = placement.point(self.right, self.bottom)
        return type(self)(min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y))

    def raster(self, size: Size) -> Raster:
        """Return the pixels in an image of this width and height; raises ValueError if there are none."""
        left, top, right, bottom = self.left, self.top, self.right, self.bottom
        return Rings.of((left, top, right, top, right, bottom, left, bottom)).raster(size)

    def clip(self, width: float, height: float) -> Rectangle:
        """Return the part in an image of this size."""
        return Rectangle(
            max(self.left, 0.0), max(self.top, 0.0), min(self.right, width), min(self.bottom, height)
        )

    def fault(self) -> str:
        """Return the fault of the edges, or an empty string."""
        if not all(map(math.isfinite, (self.left, self.top, self.right, self.bottom))):
            return "not finite"
        if self.right < self.left or self.bottom < self.top:
            return "reversed"
        return "empty" if self.right == self.left or self.bottom == self.top else ""

    def window(self, size: Size) -> tuple[int, int, int, int]:
        """Return the left, top, right and bottom pixels around the rectangle in an image of this width and height.

        Raises ValueError if it is not in the image, or extends far beyond it.
        """
        width, height = size
        if fault := self.fault():
            raise ValueError(fault)
        if self.left >= width or self.top >= height or self.right <= 0 or self.bottom <= 0:
            raise ValueError(f"it is outside the image ({width}×{height} pixels)")
        if (
            min(self.left / width, self.top / height) < -_MARGIN
            or max(self.right / width, self.bottom / height) > _MARGIN + 1
        ):
            raise ValueError(f"it extends far beyond the image ({width}×{height} pixels)")
        left, top = max(0, math.floor(self.left)), max(0, math.floor(self.top))
        return left, top, min(width, math.ceil(self.right) + 1), min(height, math.ceil(self.bottom) + 1)


class Surroundings(Rectangle):
    """The rectangle around an object whose outline is not known, such as a line."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rings:
    """The area in one or more polygons, float64 [corners, 2]; ``bounds`` is the smallest rectangle around them."""

    rings: tuple[NDArray[np.float64], ...]
    bounds: Rectangle

    @classmethod
    def of(cls, *rings: ArrayLike) -> Self:
        """Return the area in ``rings``: the x and y of their corners, by turns or as pairs."""
        arrays = tuple(np.asarray(ring, np.float64).reshape(-1, 2) for ring in rings)
        corners = np.concatenate(arrays)
        return cls(arrays, Rectangle(*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist()))

    def moved(self, placement: Placement) -> Self:
        """Return the form on the upright image."""
        return self.of(*(np.stack(placement.point(*ring.T), axis=1) for ring in self.rings))

    def raster(self, size: Size) -> Raster:
        """Return the pixels in an image of this width and height; raises ValueError if there are none."""
        left, top, right, bottom = self.bounds.window(size)
        rings = [(ring - (left, top)).ravel().tolist() for ring in self.rings]
        return Raster(left, top, coco_masks.merge(coco_masks.frPyObjects(rings, bottom - top, right - left)))


@dataclass(frozen=True, slots=True, eq=False)
class RunLengths:
    """The pixels of a mask [height, width] that fills the rectangle ``frame``, by their run lengths ``counts``."""

    frame: Rectangle
    height: int
    width: int
    counts: bytes

    @classmethod
    def of(cls, mask: Inside, frame: Rectangle | None = None) -> Self:
        """Return the pixels of a ``mask`` [height, width]; by default, it is as large as the image."""
        height, width = mask.shape
        return cls(frame or Rectangle(0, 0, width, height), height, width, _encode(mask)["counts"])

    @property
    def _coco(self) -> dict[str, Any]:
        return {"size": [self.height, self.width], "counts": self.counts}

    @property
    def bounds(self) -> Rectangle:
        """The smallest rectangle around the pixels."""
        left, top, width, height = coco_masks.toBbox(self._coco).tolist()
        frame = self.frame
        across, down = (frame.right - frame.left) / self.width, (frame.bottom - frame.top) / self.height
        return Rectangle(
            frame.left + left * across,
            frame.top + top * down,
            frame.left + (left + width) * across,
            frame.top + (top + height) * down,
        )

    def to_coco(self) -> dict[str, Any]:
        """Return the mask as a segmentation of COCO, without its frame; some tools do not read compressed lengths."""
        return {"counts": _decompress(self.counts).tolist(), "size": [self.height, self.width]}

    def moved(self, placement: Placement) -> Self:
        """Return the form on the upright image."""
        frame = self.frame.moved(placement)
        if placement.turn == 1:
            return replace(self, frame=frame)
        mask = Image.fromarray(_decode(self.counts, self.width, self.height).astype(np.uint8))
        return self.of(np.asarray(turned(mask, placement.turn)).astype(np.bool_), frame)

    def raster(self, size: Size) -> Raster:
        """Return the pixels in an image of this width and height; raises ValueError if there are none."""
        left, top, right, bottom = self.bounds.window(size)
        if (self.width, self.height) == size and self.frame == Rectangle(0, 0, *size):
            return Raster(0, 0, self._coco)
        mask = np.pad(_decode(self.counts, self.width, self.height), 1)
        rows = _nearest(top, bottom, self.frame.top, self.frame.bottom, self.height)
        columns = _nearest(left, right, self.frame.left, self.frame.right, self.width)
        return Raster(left, top, _encode(mask[rows[:, None], columns]))


def _nearest(first: int, last: int, low: float, high: float, count: int) -> NDArray[np.int64]:
    """Return which of ``count`` parts from ``low`` to ``high`` each pixel shows, from 1, and others outside."""
    centers = np.arange(first, last) + 0.5
    places: NDArray[np.int64] = np.floor((centers - low) * count / (high - low)).astype(np.int64) + 1
    return places.clip(0, count + 1)


Form = Rectangle | Rings | RunLengths


@dataclass(frozen=True, slots=True)
class Shape:
    """An object: the name of its class, its form, and ``where`` it is in the annotations.

    One that ``is_ignored`` is marked as difficult, as a crowd, or as a region without annotations.
    """

    name: str
    form: Form
    where: str
    is_ignored: bool = False

    @property
    def bounds(self) -> Rectangle:
        """The smallest rectangle around the object."""
        return self.form.bounds

    def moved(self, placement: Placement) -> Shape:
        """Return the object on the upright image."""
        return replace(self, form=self.form.moved(placement))


def check_mask_size(width: int, height: int) -> None:
    """Raise ValueError if a mask of this size is empty or too large to be decoded."""
    if width < 1 or height < 1:
        raise ValueError(f"its mask has no pixels ({width}×{height})")
    if width * height > _MAX_MASK_PIXELS:
        raise ValueError(
            f"its mask of {width}×{height} pixels is too large: raise the setting max_image_pixels"
        )


def from_coco(segmentation: Any) -> Rings | RunLengths | None:
    """Return the form of a segmentation in a COCO file, None if it is empty; raises ValueError.

    Scripts also write a polygon that is not in a list, or the points of polygons as pairs.
    """
    if not segmentation:
        return None
    if isinstance(segmentation, Mapping):
        return _from_run_lengths(segmentation)
    if not isinstance(segmentation, list):
        raise ValueError("the segmentation is neither a list of polygons nor an RLE mask")
    if not all(isinstance(part, list) for part in segmentation) or all(
        len(part) == 2 for part in segmentation
    ):
        segmentation = [segmentation]
    return Rings.of(*map(_polygon, segmentation))


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


def _from_run_lengths(segmentation: Mapping[str, Any]) -> RunLengths:
    try:
        height, width = msgspec.convert(segmentation.get("size"), tuple[int, int], strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"its mask has no size, but {str(segmentation.get('size'))[:40]}") from None
    check_mask_size(width, height)
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        codes = counts.encode("utf-8", "replace")
        if not _COMPRESSED.fullmatch(codes):
            raise ValueError("its compressed run lengths are damaged")
        _check_run_lengths(_decompress(codes), width, height)
    else:
        lengths = _check_run_lengths(counts, width, height).tolist()
        codes = coco_masks.frPyObjects({"size": [height, width], "counts": lengths}, height, width)["counts"]
    return RunLengths(Rectangle(0, 0, width, height), height, width, codes)


def from_rows(lengths: Any, width: int, height: int, frame: Rectangle) -> RunLengths:
    """Return a mask of this size in ``frame`` by the run lengths of its rows, which begin outside.

    Raises ValueError.
    """
    check_mask_size(width, height)
    checked = _check_run_lengths(lengths, width, height)
    inside = np.repeat(np.arange(len(checked)) % 2 == 1, checked)
    return RunLengths.of(inside.reshape(height, width), frame)


def _check_run_lengths(lengths: Any, width: int, height: int) -> NDArray[np.int64]:
    """Return run lengths of all pixels of a mask; raises ValueError."""
    try:
        if not isinstance(lengths, np.ndarray):
            lengths = msgspec.convert(lengths, list[int], strict=False)
        found = np.array(lengths, np.int64)
    except (msgspec.ValidationError, OverflowError):
        raise ValueError("its run lengths are not integers") from None
    total = width * height
    if (found < 0).any() or (found > total).any() or found.sum() != total:
        raise ValueError(f"its run lengths do not add up to {total:,} pixels")
    return found


def _decompress(codes: bytes) -> NDArray[np.int64]:
    """Return the run lengths in COCO's compressed form: from the third, differences to the last but one."""
    bits = np.frombuffer(codes, np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(bits < 32)
    starts = np.concatenate([[0], ends[:-1] + 1])
    shifts = 5 * (np.arange(len(bits)) - np.repeat(starts, ends - starts + 1))
    values = np.add.reduceat((bits & 31) << shifts, starts)
    values -= (bits[ends] & 16) << (shifts[ends] + 1)
    for first in (1, 2):
        values[first::2] = np.cumsum(values[first::2])
    return values


def _encode(mask: Inside) -> dict[str, Any]:
    return coco_masks.encode(np.asfortranarray(mask, np.uint8))  # type: ignore[no-any-return]


def _decode(counts: bytes, width: int, height: int) -> Inside:
    """Return the mask [height, width]: the function of pycocotools relies on behavior that NumPy deprecates."""
    lengths = _decompress(counts)
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(width, height).T


def from_bitmap(text: Any, is_packed: bool = False) -> Inside:
    """Return the mask [height, width] in an image file in base64, which ``is_packed`` with zlib: what is bright.

    In an image with transparent pixels, these are outside, and others inside. Raises ValueError.
    """
    unpacker, is_whole = zlib.decompressobj(), True
    try:
        data = base64.b64decode("".join(str(text or "").split()), validate=True)
        if is_packed:
            data = unpacker.decompress(data, _MAX_PACKED_BYTES)
            is_whole = not unpacker.unconsumed_tail
    except (ValueError, zlib.error):
        raise ValueError("its bitmap is damaged") from None
    if not is_whole:
        raise ValueError(f"its bitmap is larger than {_MAX_PACKED_BYTES >> 20} MB")
    try:
        image = images.open_unconverted(data)
    except UnusableImage as error:
        raise ValueError(f"its bitmap cannot be used: {error.reason}") from None
    if "transparency" in image.info or image.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
        inside: Inside = np.asarray(image.convert("RGBA"))[..., 3] > 0
        if not inside.all():
            return inside
    gray = np.asarray(image if image.mode in ("1", "L", "I", "I;16") else image.convert("L")).astype(np.int64)
    bright: Inside = gray > gray.max() / 2
    return bright


def from_brush(codes: Any, width: int, height: int) -> Inside:
    """Return a mask [height, width] by the run lengths of Label Studio's brush; raises ValueError.

    They are bits: 32 for the number of bytes, 5 for the bits of a byte, and 4 each for the bits of four lengths, all
    less 1 but the first. A run of bytes begins with a bit that says whether they are all equal, and two for its kind
    of length. The bytes are red, green, blue and opacity of each pixel; those with any opacity are inside.
    """
    check_mask_size(width, height)
    try:
        bits = np.unpackbits(np.frombuffer(bytes(msgspec.convert(codes, list[int])), np.uint8))
    except (msgspec.ValidationError, ValueError):
        raise ValueError("its run lengths are not bytes") from None
    place = 0

    def take(count: int) -> int:
        nonlocal place
        place += count
        if place > len(bits):
            raise ValueError("its run lengths are truncated")
        return int.from_bytes(np.packbits(bits[place - count : place]).tobytes(), "big") >> -count % 8

    total = take(32)
    if total != 4 * width * height:
        raise ValueError(f"its mask has {total:,} bytes instead of four for each of {width}×{height} pixels")
    depth = take(5) + 1
    kinds = [take(4) + 1 for _ in range(4)]
    values = np.zeros(total, np.bool_)
    done = 0
    while done < total:
        is_same = take(1)
        count = take(kinds[take(2)]) + 1
        if count > total - done:
            raise ValueError("its run lengths are too long")
        used = depth if is_same else depth * count
        place += used
        if place > len(bits):
            raise ValueError("its run lengths are truncated")
        values[done : done + count] = bits[place - used : place].reshape(-1, depth).any(axis=1)
        done += count
    return values[3::4].reshape(height, width)
