"""Decode ordinary JPEG files to arrays, scale these, and write JPEG files: faster than with Pillow's images.

Pillow decodes with libjpeg-turbo too, so the decoded pixels are the same.
"""

from __future__ import annotations

import threading

import numpy as np
import simplejpeg
from cykooz_resizer import CropBox, FilterType, ImageData, PixelType, ResizeAlg, ResizeOptions, Resizer
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_COLORS = {"L": "GRAY", "RGB": "RGB"}
_TYPES = {1: PixelType.U8, 3: PixelType.U8x3}
_BILINEAR = ResizeAlg.convolution(FilterType.bilinear)


class _Local(threading.local):
    """One resizer per thread, because its buffers cannot be shared."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_local = _Local()


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
    differ from Pillow's by 1 at most.
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
