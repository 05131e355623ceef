"""Prepare images for a network: convert them to 8 bits per channel and resize them to uint8 [height, width, channels].

Conversion to 8-bit grayscale or RGB: rotated according to the EXIF orientation; the upper 8 of the bits that 16-bit
values use; floating-point pixels from 0 to 1 become 0 to 255; palettes are resolved; transparency is composited on
white; CMYK, YCbCr, LAB and HSV are converted to RGB; grayscale from RGB is ITU-R 601 luma. Other floating-point
pixels and integers beyond 16 bits have no defined brightness.

Exports of models contain a copy of this file, so that other programs prepare images in the same way: it requires only
NumPy and Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RESIZE_MODES = ("squash", "crop", "fill", "half_crop")

Pixels = NDArray[np.uint8]
# Width and height.
Size = tuple[int, int]

ORIENTATION = 0x0112
# From the pixels of a file to the upright image, by EXIF orientation.
TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_HOLDERS_OF_EXIF = {"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"}
WIDE_GRAY = {"I", "I;16", "I;16B", "I;16L", "I;16N"}
# Cameras, scanners and microscopes use fewer bits of 16-bit values.
FULL_BITS = 16
# Interpolation leaves values slightly beyond the ends of a range.
_TOLERANCE = 0.01
_BITS_IN_USE = (8, 10, 12, 14, FULL_BITS)


class UnusableImage(ValueError):
    """A file cannot be used as an image; ``reason`` is for users."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Geometry:
    """How an image of ``size`` (width, height) is resized to ``width`` × ``height``; for the modes, see `resize`.

    The part ``cut`` of the image (left, top, right, bottom) is scaled to ``inner`` (width, height) and placed at
    ``offset`` (x, y); the rest is padding. ``padded`` is the size of the image after `pad`, if it is padded before it
    is resized.
    """

    size: tuple[int, int]
    width: int
    height: int
    mode: str
    padded: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown mode or an invalid size."""
        if self.mode not in RESIZE_MODES:
            raise ValueError(f"{self.mode!r} is not one of {', '.join(RESIZE_MODES)}")
        if self.width < 1 or self.height < 1:
            raise ValueError(f"{self.width}×{self.height} is not a size")

    @property
    def cut(self) -> tuple[float, float, float, float]:
        scaled_width, scaled_height = self._scaled
        width, height = self._source
        left, right = _cut(width, scaled_width, self.width)
        top, bottom = _cut(height, scaled_height, self.height)
        return left, top, right, bottom

    def cut_of(self, reduced: tuple[int, int]) -> tuple[float, float, float, float]:
        """Return the ``cut`` of an image that was decoded at a reduced size (width, height)."""
        across, down = reduced[0] / self._source[0], reduced[1] / self._source[1]
        left, top, right, bottom = self.cut
        return left * across, top * down, min(right * across, reduced[0]), min(bottom * down, reduced[1])

    @property
    def inner(self) -> tuple[int, int]:
        scaled_width, scaled_height = self._scaled
        return min(scaled_width, self.width), min(scaled_height, self.height)

    @property
    def offset(self) -> tuple[int, int]:
        return (self.width - self.inner[0]) // 2, (self.height - self.inner[1]) // 2

    @property
    def _scaled(self) -> tuple[int, int]:
        return scaled_size(self._source, self.width, self.height, self.mode)

    @property
    def _source(self) -> tuple[int, int]:
        return self.padded or self.size

    def resize_mask(self, mask: Image.Image, padding: int) -> Image.Image:
        """Resize the class indexes of an image's pixels, without interpolation. ``mask`` has the mode L."""
        if mask.size == (self.width, self.height) == self.size:
            return mask
        scaled = mask.resize(self.inner, Image.Resampling.NEAREST, box=self.cut)
        padded = Image.new("L", (self.width, self.height), padding)
        padded.paste(scaled, self.offset)
        return padded

    def restore_mask(self, mask: Image.Image, padding: int) -> Image.Image:
        """Undo `resize_mask`: return a mask of ``size``. What was cropped has the index ``padding``."""
        left, top, right, bottom = (round(edge) for edge in self.cut)
        x, y = self.offset
        scaled = mask.resize(
            (max(1, right - left), max(1, bottom - top)),
            Image.Resampling.NEAREST,
            box=(x, y, x + self.inner[0], y + self.inner[1]),
        )
        restored = Image.new("L", self.size, padding)
        restored.paste(scaled, (left, top))
        return restored

    def move_boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Move boxes, rows of left, top, right and bottom in the image, to the resized image.

        They may then extend beyond it.
        """
        scale, shift = self._scale_and_shift
        return (boxes * scale + shift).astype(np.float32)

    def restore_boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Undo `move_boxes`."""
        scale, shift = self._scale_and_shift
        return ((boxes - shift) / scale).astype(np.float32)

    @property
    def _scale_and_shift(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        left, top, right, bottom = self.cut
        scale = np.array([self.inner[0] / (right - left), self.inner[1] / (bottom - top)])
        shift = np.array(self.offset) - np.array([left, top]) * scale
        return np.tile(scale, 2), np.tile(shift, 2)


def prepare(
    file: str | BinaryIO,
    width: int,
    height: int,
    channels: int,
    mode: str,
    padding: Size | None = None,
    bits: int = FULL_BITS,
) -> Pixels:
    """Return the pixels of an image file, uint8 [height, width, channels] with 1 or 3 channels.

    ``mode`` is that of `resize`. With ``padding``, the image is padded to at least this width and height before.
    ``bits`` are those that 16-bit images use.
    Raises UnusableImage for images without a defined brightness, and whatever Pillow raises for other files.
    """
    with Image.open(file) as image:
        if (
            bits != FULL_BITS
            and image.mode not in WIDE_GRAY
            and any(";16" in str(part) for part in image.tile)
        ):
            raise UnusableImage(
                "Pillow reads only the upper 8 of 16 bits of colors: convert the image to 8 bits"
            )
        image.load()
        converted = convert(image, "L" if channels == 1 else "RGB", bits)
    padded = pad(converted, *padding) if padding else converted
    return as_pixels(resize_image(padded, width, height, mode))


def convert(image: Image.Image, mode: str, bits: int = FULL_BITS) -> Image.Image:
    """Convert an image of any mode to the mode L or RGB: upright, and on white if it is transparent."""
    converted = opaque(upright(image), bits)
    return converted if converted.mode == mode else converted.convert(mode)


def resize(pixels: Pixels, width: int, height: int, mode: str, *, seed: int = 0) -> Pixels:
    """Resize ``pixels`` to uint8 [height, width, channels] by bilinear interpolation with antialiasing.

    - ``squash`` stretches the image.
    - ``crop`` covers the target size and crops the excess.
    - ``fill`` fits the image into the target size and pads with noise.
    - ``half_crop`` is halfway between ``crop`` and ``fill``.

    The noise (uniform, 0 to 254) depends only on ``seed``. Images of the target size are unchanged. The modes are
    those of https://github.com/NVIDIA/DIGITS. Raises ValueError for an unknown mode or an invalid size.
    """
    return as_pixels(resize_image(as_image(pixels), width, height, mode, seed=seed))


def resize_image(image: Image.Image, width: int, height: int, mode: str, *, seed: int = 0) -> Image.Image:
    """Resize a Pillow image of mode L or RGB; see `resize`."""
    geometry = Geometry(image.size, width, height, mode)
    if image.size == (width, height):
        return image
    scaled = scale_part(image, geometry)
    return (
        scaled
        if scaled.size == (width, height)
        else as_image(surround_with_noise(as_pixels(scaled), geometry, seed))
    )


def pad(image: Image.Image, width: int, height: int) -> Image.Image:
    """Add black pixels on the right and at the bottom of a Pillow image of mode L or RGB, up to this size.

    Longer sides remain unchanged.
    """
    size = padded_size(image.size, (width, height))
    return image if size == image.size else image.crop((0, 0, *size))


def padded_size(size: Size, least: Size) -> Size:
    """Return the width and height of an image of this ``size`` after `pad` to at least the size ``least``."""
    return max(size[0], least[0]), max(size[1], least[1])


def as_image(pixels: Pixels) -> Image.Image:
    """Convert uint8 [height, width, 1 or 3] to a Pillow image of mode L or RGB."""
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def as_pixels(image: Image.Image) -> Pixels:
    """Convert a Pillow image of mode L or RGB to uint8 [height, width, 1 or 3]."""
    return np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, -1)


def upright(image: Image.Image) -> Image.Image:
    """Rotate an image according to its EXIF orientation."""
    method = TRANSPOSITIONS.get(image.getexif().get(ORIENTATION, 1)) if has_exif(image) else None
    return image if method is None else image.transpose(method)


def is_turned(image: Image.Image) -> bool:
    """Return whether the EXIF orientation of an image says that it is not upright."""
    return has_exif(image) and image.getexif().get(ORIENTATION, 1) != 1


def has_exif(image: Image.Image) -> bool:
    """Return whether an image may have EXIF data, without reading it."""
    return image.format == "TIFF" or not _HOLDERS_OF_EXIF.isdisjoint(image.info)


def opaque(image: Image.Image, bits: int | None = FULL_BITS) -> Image.Image:
    """Convert ``image`` to an 8-bit mode without transparency.

    ``bits`` are those that 16-bit values use; None means the ones that this image uses.
    """
    if image.mode == "F":
        return _from_fractions(np.asarray(image))
    if image.mode in WIDE_GRAY:
        values = np.asarray(image)
        return Image.fromarray(high_bits(values, bits_of(values) if bits is None else bits))
    if image.mode in ("LA", "La"):
        return _over_white(image.convert("LA"), "L")
    if image.mode in ("PA", "RGBA", "RGBa") or "transparency" in image.info:
        return _over_white(image.convert("RGBA"), "RGB")
    if image.mode == "1":
        return image.convert("L")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")


def _over_white(image: Image.Image, mode: str) -> Image.Image:
    white = Image.new(mode, image.size, "white")
    white.paste(image.convert(mode), mask=image.getchannel("A"))
    return white


def bits_of(values: NDArray[np.integer]) -> int:
    """Return the number of bits that 16-bit ``values`` use: 8, 10, 12, 14 or 16. Raises UnusableImage for others."""
    largest = int(values.max())
    if values.min() < 0 or largest >> FULL_BITS:
        raise UnusableImage("integers beyond 16 bits are not supported as pixels")
    return next(bits for bits in _BITS_IN_USE if not largest >> bits)


def high_bits(values: NDArray[np.integer], bits: int) -> Pixels:
    """Return the upper 8 of the ``bits`` that 16-bit ``values`` use; larger ones become 255."""
    bits_of(values)
    high: Pixels = np.minimum(values >> (bits - 8), 255).astype(np.uint8)
    return high


def _from_fractions(values: NDArray[np.float32]) -> Image.Image:
    low, high = values.min(), values.max()
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):  # also NaN
        raise UnusableImage(
            f"floating-point pixels are supported from 0 to 1 only, but range from {low:g} to {high:g}"
        )
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))


def scaled_size(size: tuple[int, int], width: int, height: int, mode: str) -> tuple[int, int]:
    """Return the size that an image is scaled to before cropping and padding to width × height."""
    across, down = size[0] / width, size[1] / height
    if mode == "squash" or across == down:
        return width, height
    ratio = {"crop": min(across, down), "fill": max(across, down), "half_crop": (across + down) / 2}[mode]
    return _scaled_side(size[0], ratio, width), _scaled_side(size[1], ratio, height)


def _scaled_side(side: int, ratio: float, target: int) -> int:
    scaled = max(1, round(side / ratio))
    # Padding is symmetric, so an odd remainder goes to the image.
    return scaled + 1 if scaled < target and (target - scaled) % 2 else scaled


def _cut(side: int, scaled: int, target: int) -> tuple[float, float]:
    """Return the part of a source's side that remains when its scaled form is cropped to ``target`` pixels."""
    if scaled <= target:
        return 0.0, float(side)
    start = round((scaled - target) / 2)
    return start * side / scaled, min(float(side), (start + target) * side / scaled)


def scale_part(image: Image.Image, geometry: Geometry) -> Image.Image:
    """Scale the part ``geometry.cut`` of an image to ``geometry.inner``."""
    # The resampling box crops, so that a long thin image never becomes a huge one.
    return image.resize(geometry.inner, Image.Resampling.BILINEAR, box=geometry.cut_of(image.size))


def surround_with_noise(pixels: Pixels, geometry: Geometry, seed: int) -> Pixels:
    """Place the pixels of a scaled image in one of the size of ``geometry`` filled with noise."""
    height, width, channels = pixels.shape
    shape = (geometry.height, geometry.width, channels)
    padded = np.random.default_rng(seed).integers(0, 255, shape, np.uint8)
    left, top = geometry.offset
    padded[top : top + height, left : left + width] = pixels
    return padded
