"""Decode ordinary JPEG files to arrays, scale these, and write JPEG files: faster than with Pillow's images.

Pillow decodes with libjpeg-turbo too, so the decoded pixels are the same.
"""

from __future__ import annotations

import struct
import threading
from typing import NamedTuple

import numpy as np
import simplejpeg
from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_COLORS = {"L": "GRAY", "RGB": "RGB"}
_TYPES = {1: PixelType.U8, 3: PixelType.U8x3}
_MODES = {1: "L", 3: "RGB"}
_FRAME = struct.Struct(">BHHB")
# Baseline, extended and progressive frames with Huffman coding; tables and restart intervals.
_FRAMES = frozenset((0xC0, 0xC1, 0xC2))
_TABLES = frozenset((0xC4, 0xDB, 0xDD))
_START_OF_SCAN = 0xDA
# Application data without influence on the pixels.
_HARMLESS = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xFE: b""}
_BILINEAR = ResizeAlg.convolution(FilterType.bilinear)


class Header(NamedTuple):
    """The width, height and Pillow mode, L or RGB, of a JPEG file."""

    width: int
    height: int
    mode: str


class _Local(threading.local):
    """One resizer per thread, because its buffers cannot be shared."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_local = _Local()


def read_header(data: bytes) -> Header | None:
    """Return the header of an ordinary JPEG file, else None.

    It has one frame, gray or YCbCr with 8 bits, and no metadata that could rotate it or change its colors.
    """
    if not data.startswith(b"\xff\xd8"):
        return None
    header: Header | None = None
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker, start = data[position + 1], position + 4
        if marker == _START_OF_SCAN:
            return header
        length = int.from_bytes(data[position + 2 : start], "big")
        if marker in _FRAMES:
            if header or start + _FRAME.size > len(data):
                return None
            bits, height, width, channels = _FRAME.unpack_from(data, start)
            if bits != 8 or channels not in _MODES or not width or not height:
                return None
            header = Header(width, height, _MODES[channels])
        elif marker not in _TABLES and not (
            marker in _HARMLESS and data.startswith(_HARMLESS[marker], start)
        ):
            return None
        position += 2 + length
    return None


def decode(data: bytes, mode: str, size: tuple[int, int], factor: int = 1) -> Pixels | None:
    """Decode a JPEG file of Pillow mode L or RGB with the given width and height.

    ``factor`` is 1, 2, 4 or 8: the size is divided by it and rounded up. Returns None if the file is
    unusual or damaged.
    """
    width, height = (-(-side // factor) for side in size)
    color = _COLORS[mode]
    try:
        found_height, found_width, *_ = simplejpeg.decode_jpeg_header(data)
        if (found_width, found_height) != size:
            return None
        pixels: Pixels = simplejpeg.decode_jpeg(
            data, color, min_width=width, min_height=height, min_factor=factor
        )
    except ValueError:
        return None
    return pixels if pixels.shape[:2] == (height, width) else None


def scale(pixels: Pixels, cut: tuple[float, float, float, float], size: tuple[int, int]) -> Pixels:
    """Scale the part ``cut`` (left, top, right, bottom) to ``size`` (width, height), uint8 [height, width, channels].

    The interpolation is bilinear with antialiasing, as with Pillow. Because the coefficients have 16 bits, the values
    differ from Pillow's by at most 1 after each of the two passes: some by 1 in total, hardly any by 2.
    """
    height, width, channels = pixels.shape
    left, top, right, bottom = cut
    source = ImageData(width, height, _TYPES[channels], pixels.tobytes())
    scaled = ImageData(*size, _TYPES[channels])
    box = CropBox(left, top, right - left, bottom - top)
    _local.resizer.resize(source, scaled, ResizeOptions(resize_alg=_BILINEAR, crop_box=box))
    return np.frombuffer(scaled.get_buffer(), np.uint8).reshape(size[1], size[0], channels)


def write(pixels: Pixels, quality: int) -> bytes:
    """Return ``pixels``, uint8 [height, width, 1 or 3], as a JPEG file."""
    if pixels.shape[2] == 1:
        return bytes(simplejpeg.encode_jpeg(pixels, quality, "GRAY", "Gray", fastdct=False))
    return bytes(simplejpeg.encode_jpeg(pixels, quality, "RGB", "420", fastdct=False))
