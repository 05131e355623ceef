"""Write PNG files, and decode simple ones, several times faster than Pillow.

The format: https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import struct
import zlib

import deflate
import numpy as np
import pyspng
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_LEVEL = 1
_UP = 2
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
_FORMATS = {0: (pyspng.c.SPNG_FMT_G8, 1), 2: (pyspng.c.SPNG_FMT_RGB8, 3)}
_RGB = 2
_WIDE_COLORS = (_RGB, 4, 6)
_HEADER = struct.Struct(">IIBBBBB")
_HEADER_END = 33
_CHUNK_START = struct.Struct(">I4s")
_HARMLESS = {b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"tIME", b"tEXt"}
_KEYS_OF_METADATA = (b"Raw profile type ", b"XML:", b"xmp")


def write(pixels: NDArray[np.uint8]) -> bytes:
    """Return ``pixels``, uint8 [height, width, 1, 3 or 4], as a PNG file: gray, RGB or RGBA.

    Each row is stored as its difference from the row above. For photos, the files are as large as those with the best
    filter for each row.
    """
    height, width, channels = pixels.shape
    rows = pixels.reshape(height, width * channels)
    filtered = np.empty((height, 1 + width * channels), np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = _HEADER.pack(width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return b"".join(
        (
            SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", deflate.zlib_compress(filtered, _LEVEL)),
            _chunk(b"IEND", b""),
        )
    )


def decode_simple(data: bytes, max_pixels: int) -> NDArray[np.uint8] | None:
    """Decode a PNG file that all decoders interpret identically to uint8 [height, width, 1 or 3], else return None.

    It has 8 bits per channel, gray or RGB, without interlacing, a palette, transparency, a color profile or metadata
    that could rotate it, all checksums are correct, and it has at most ``max_pixels``.
    """
    if not data.startswith(SIGNATURE) or len(data) < _HEADER_END:
        return None
    width, height, bits, color, *methods = _HEADER.unpack_from(data, 16)
    if bits != 8 or color not in _FORMATS or any(methods) or not 0 < width * height <= max_pixels:
        return None
    compressed = _simple_contents(data)
    if compressed is None:
        return None
    format_, channels = _FORMATS[color]
    try:
        # libspng does not verify the checksum of the decompressed rows.
        deflate.zlib_decompress(compressed, height * (1 + width * channels))
        pixels: NDArray[np.uint8] = pyspng.c.spng_decode_image_bytes(data, format_)
    except (deflate.DeflateError, RuntimeError):
        return None
    return pixels


def decode_wide_color(data: bytes) -> NDArray[np.uint16] | None:
    """Decode a PNG file with 16 bits per channel to uint16 [height, width, 3 or 4]: RGB, or RGBA for all with alpha.

    Return None for other files, such as gray ones without alpha, and damaged ones.
    """
    if not data.startswith(SIGNATURE) or len(data) < _HEADER_END:
        return None
    _, _, bits, color, *_ = _HEADER.unpack_from(data, 16)
    if bits != 16 or color not in _WIDE_COLORS:
        return None
    try:
        wanted = pyspng.c.SPNG_FMT_AUTO if color == _RGB else pyspng.c.SPNG_FMT_RGBA16
        values: NDArray[np.uint16] = pyspng.c.spng_decode_image_bytes(data, wanted)
    except RuntimeError:
        return None
    return values


def _simple_contents(data: bytes) -> bytes | None:
    """Return the compressed rows of a PNG file with simple and intact chunks only, else None."""
    parts: list[bytes] = []
    position, kind = len(SIGNATURE), b""
    while kind != b"IEND":
        if position + 12 > len(data):
            return None
        length, kind = _CHUNK_START.unpack_from(data, position)
        start = position + 8
        stop = start + length
        # Pillow does not verify the checksums of pixel data; stricter decoders do.
        if zlib.crc32(data[position + 4 : stop]) != int.from_bytes(data[stop : stop + 4], "big"):
            return None
        if kind == b"IDAT":
            parts.append(data[start:stop])
        elif kind == b"IHDR":
            if position != len(SIGNATURE):
                return None
        elif kind != b"IEND" and (kind not in _HARMLESS or data.startswith(_KEYS_OF_METADATA, start, stop)):
            return None
        position = stop + 4
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _chunk(kind: bytes, data: bytes | bytearray) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))
