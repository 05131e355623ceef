"""Limits of the work that decoding an image file may take, however small the file is.

A file of some hundred kilobytes can contain thousands of scans of a large image, metadata that is read thousands of
times, or millions of parts. What decoders would do in one call is counted in the structure of the file before. What
they do in many steps is limited while they read the file, by `LimitedFile`.
"""

from __future__ import annotations

import io
import re
import struct
import time
from itertools import islice

from PIL import Image

from digits.core.machine.environment import max_image_pixels
from digits.data.images.conversion import UnusableImage

# Progressive JPEG files have ten, those with unusual scripts some dozens.
MAX_SCANS = 100
# Segments before the pixels of a JPEG file, chunks of a PNG file, and strips or tiles of a TIFF file.
MAX_PARTS = 100_000
# CPU time of this thread for the header of a file, and for all of it: several times that of the largest images.
OPENING_SECONDS = 1.0
SECONDS = 5.0 + max_image_pixels() / 10e6

_PNG = b"\x89PNG\r\n\x1a\n"
# Markers of JPEG files that are followed by a length, and the end of an image.
_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")
_SCAN, _END = 0xDA, 0xD9
_SCANS = re.compile(rb"\xff\xda")  # searches three times as fast as `bytes.count`
_TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_BIG_TIFF_ORDERS = {b"II+\0": "<", b"MM\0+": ">"}
# The tags of the offsets of strips and tiles.
_PARTS = frozenset({273, 324})
# Bytes of a value by its type.
_SIZES = dict(zip((*range(1, 14), 16, 17, 18), (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 8, 8, 8), strict=True))


class LimitedFile(io.BytesIO):
    """The contents of a file that a decoder may read for `OPENING_SECONDS`, and for `SECONDS` after `allow_decoding`.

    Reading later raises UnusableImage.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._allow(OPENING_SECONDS)

    def allow_decoding(self) -> None:
        self._allow(SECONDS)

    def _allow(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.thread_time() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        if time.thread_time() > self._end:
            raise UnusableImage(f"decoding it takes more than {self._seconds:.0f} s: save it as PNG or JPEG")
        return super().read(size)


def open_limited(data: bytes, formats: list[str]) -> Image.Image:
    """Open an image file in one of the ``formats`` with Pillow, whose work is limited.

    Raises UnusableImage, as reading the image later does, and whatever Pillow raises.
    """
    check_structure(data)
    file = LimitedFile(data)
    image = Image.open(file, formats=formats)
    file.allow_decoding()
    return image


def check_exif(image: Image.Image) -> None:
    """Raise UnusableImage for EXIF data from which Pillow would read more than it contains."""
    exif = image.info.get("exif")
    text = image.info.get("Raw profile type exif")
    if exif is None and isinstance(text, str):
        exif = bytes.fromhex("".join(text.split("\n")[3:]))
    if isinstance(exif, bytes):
        check_directory(exif.removeprefix(b"Exif\0\0"))


def check_structure(data: bytes) -> None:
    """Raise UnusableImage if decoding an image file would take too much work for its size."""
    if data.startswith(b"\xff\xd8"):
        _check_segments(data)
    elif data.startswith(_PNG):
        _check_chunks(data)
    elif data[:4] in _TIFF_ORDERS or data[:4] in _BIG_TIFF_ORDERS:
        check_directory(data)


def check_directory(data: bytes) -> None:
    """Raise UnusableImage unless the values of the first directory of a TIFF file, or of EXIF data, fit into it."""
    total = 0
    for tag, type_, count in _directory(data):
        total += _SIZES.get(type_, 1) * count
        if total > len(data):
            raise UnusableImage("damaged: its metadata is larger than the file")
        if tag in _PARTS and count > MAX_PARTS:
            raise UnusableImage(f"it has {count:,} strips or tiles, more than the limit of {MAX_PARTS:,}")


def _directory(data: bytes) -> list[tuple[int, int, int]]:
    """Return the tag, type and number of values of each entry of the first directory; none if it is cut off."""
    order = _TIFF_ORDERS.get(data[:4])
    try:
        if order:
            (start,) = struct.unpack_from(f"{order}I", data, 4)
            (count,) = struct.unpack_from(f"{order}H", data, start)
            start, entry = start + 2, struct.Struct(f"{order}HHI4x")
        else:
            order = _BIG_TIFF_ORDERS[data[:4]]
            (start,) = struct.unpack_from(f"{order}Q", data, 8)
            (count,) = struct.unpack_from(f"{order}Q", data, start)
            start, entry = start + 8, struct.Struct(f"{order}HHQ8x")
    except (struct.error, KeyError, OverflowError):
        return []
    count = min(count, MAX_PARTS, (len(data) - start) // entry.size)
    return [entry.unpack_from(data, start + number * entry.size) for number in range(count)]


def _check_segments(data: bytes) -> None:
    """Count the segments of a JPEG file, and the scans of its first image, not those of previews in its metadata."""
    position = scans = 0
    for _ in range(MAX_PARTS):
        match = _MARKER.search(data, position)
        if match is None or match[1][0] == _END:
            return
        position = match.end()
        if match[1][0] == _SCAN:
            scans += 1
            if scans == 1 and not any(islice(_SCANS.finditer(data, position), MAX_SCANS - 1, None)):
                return
            if scans > MAX_SCANS:
                raise UnusableImage(f"it has more than {MAX_SCANS} scans: save it again in another program")
        position += max(2, int.from_bytes(data[position : position + 2], "big"))
    raise UnusableImage(f"it has more than {MAX_PARTS:,} segments: save it again in another program")


def _check_chunks(data: bytes) -> None:
    """Count the chunks of a PNG file; decoders ignore what follows the last one."""
    position = len(_PNG)
    for _ in range(MAX_PARTS):
        if position + 12 > len(data) or data[position + 4 : position + 8] == b"IEND":
            return
        position += 12 + int.from_bytes(data[position : position + 4], "big")
    raise UnusableImage(f"it has more than {MAX_PARTS:,} chunks: save it again in another program")
