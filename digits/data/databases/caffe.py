"""Records (Datum) and mean images (BlobProto) as written by Caffe and DIGITS 4–6.

Pixels that are not an image file are uint8 [channels, height, width]; those of color images are blue, green and red.
Files in records, such as PNG and JPEG, have the usual order.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain
from digits.data.databases.caffe_pb2 import BlobProto, Datum
from digits.data.images.images import MAX_PIXELS, Pixels, UnusableImage
from digits.data.sources.plan import UnusableSource, show

MAX_MEAN_BYTES = 1 << 30

_BEGINNINGS = {b"\x89PNG": "PNG", b"\xff\xd8": "JPEG"}


class Shape(NamedTuple):
    """The size of an image."""

    width: int
    height: int
    channels: int

    def __str__(self) -> str:
        return f"{self.width}×{self.height}×{self.channels}"


class Entry(NamedTuple):
    """A record of a database, without its pixels. With a ``fault``, it cannot be used."""

    name: str
    label: float
    shape: Shape
    encoding: str
    fault: str = ""


def parse(value: bytes) -> Datum:
    """Return the record in ``value``; raises ValueError if it is invalid."""
    try:
        datum: Datum = Datum.FromString(value)
    except DecodeError:
        raise ValueError("it is not a Caffe Datum") from None
    if not datum.data and not datum.float_data:
        raise ValueError("it is not a Caffe Datum, or has no data")
    return datum


def shape_of(datum: Datum) -> Shape:
    """Return the declared shape of a record."""
    return Shape(datum.width, datum.height, datum.channels)


def check_size(datum: Datum) -> None:
    """Raise ValueError unless a record that is not encoded has as many values as it declares."""
    if datum.encoded:
        return
    declared = datum.channels * datum.height * datum.width
    count = len(datum.data) or len(datum.float_data)
    if min(shape_of(datum)) < 1 or declared != count:
        raise ValueError(f"it declares {shape_of(datum)} values but contains {count:,}")


def encoding_of(datum: Datum) -> str:
    """Return the name of the file format, or ``raw pixels``, or ``numbers``."""
    if datum.encoded:
        return next(
            (name for start, name in _BEGINNINGS.items() if datum.data.startswith(start)), "other files"
        )
    return "raw pixels" if datum.data else "numbers"


def image_file(datum: Datum) -> bytes:
    """Return the image of a record as a file, without loss; raises UnusableImage."""
    if datum.encoded:
        return datum.data
    try:
        check_size(datum)
    except ValueError as error:
        raise UnusableImage(str(error)) from error
    shape = datum.channels, datum.height, datum.width
    if datum.data:
        planes = np.frombuffer(datum.data, np.uint8).reshape(shape)
    else:
        planes = whole_pixels(np.array(datum.float_data, np.float32).reshape(shape))
    return as_file(planes[::-1] if len(planes) == 3 else planes)


def vector_of(datum: Datum) -> list[float]:
    """Return the values of a record as a flat list; raises ValueError if it is an image file, or damaged."""
    check_size(datum)
    if datum.encoded:
        raise ValueError("it is an image")
    return list(datum.float_data) or list(map(float, datum.data))


def whole_pixels(values: NDArray[np.generic]) -> Pixels:
    """Convert integers from 0 to 255 of any type to bytes; raises UnusableImage for other values."""
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).all():
        raise UnusableImage("it contains NaN or infinity")
    low, high = numbers.min(), numbers.max()
    if low < 0 or high > 255:
        raise UnusableImage(f"its values, {low:g} to {high:g}, are not pixel values from 0 to 255")
    if (numbers != np.rint(numbers)).any():
        raise UnusableImage(f"its values, {low:g} to {high:g}, are not integers from 0 to 255")
    return numbers.astype(np.uint8)


def as_file(planes: Pixels) -> bytes:
    """Return the image file (PPM or PGM) of uint8 [channels, height, width], red first; raises UnusableImage."""
    channels, height, width = planes.shape
    if channels not in (1, 3):
        raise UnusableImage(f"images must have 1 or 3 channels, not {channels}")
    if height * width > MAX_PIXELS:
        raise UnusableImage(f"{width}×{height} pixels is more than the limit of {MAX_PIXELS:,} pixels")
    header = f"{'P6' if channels == 3 else 'P5'}\n{width} {height}\n255\n"
    return header.encode() + np.ascontiguousarray(planes.transpose(1, 2, 0)).tobytes()


def read_mean(path: Path, below: Path | None = None) -> NDArray[np.float32]:
    """Return the mean image in ``path``, a ``mean.binaryproto``: [height, width, channels], red first.

    Raises UnusableSource.
    """
    place = show(path.name)
    try:
        with open_plain(path, below=below) as file:
            data = file.read(MAX_MEAN_BYTES + 1)
        blob = BlobProto.FromString(data)
    except (UnreadableFile, OSError) as error:
        raise UnusableSource(f"{place} cannot be read: {error}.") from error
    except DecodeError as error:
        raise _not_a_mean(place) from error
    values = np.array(blob.data or blob.double_data, np.float32)
    dims = list(blob.shape.dim) or [blob.num, blob.channels, blob.height, blob.width]
    if len(dims) == 4 and dims[0] == 1:
        dims = dims[1:]
    if len(dims) != 3 or min(dims) < 1 or math.prod(dims) != len(values) or not np.isfinite(values).all():
        raise _not_a_mean(place)
    planes = values.reshape(dims)
    return (planes[::-1] if dims[0] == 3 else planes).transpose(1, 2, 0)


def _not_a_mean(place: str) -> UnusableSource:
    return UnusableSource(
        f"{place} is damaged or not a Caffe mean image.", "Remove it; the mean image is recomputed anyway."
    )
