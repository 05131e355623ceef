"""A record of a database of Caffe or DIGITS 4 to 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from digits.data.databases.caffe_pb2 import Datum
from digits.data.images.images import MAX_PIXELS, UnusableImage

Array = NDArray[Any]

_BEGINNINGS = {b"\x89PNG": "PNG", b"\xff\xd8": "JPEG"}


@dataclass
class Stored:
    """The record ``name`` with a ``label``: an image ``file``, or an ``array`` of pixels or numbers.

    Pixels are [channels, height, width], red first. A record with a ``fault`` has neither.
    """

    name: str
    label: float = -1
    file: bytes = b""
    array: Array | None = None
    fault: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array; empty for a file."""
        return () if self.array is None else self.array.shape

    @property
    def encoding(self) -> str:
        """The name of the format of the file, or ``raw pixels``, or ``numbers``."""
        if self.array is not None:
            return "raw pixels" if self.array.dtype == np.uint8 else "numbers"
        return next(
            (name for start, name in _BEGINNINGS.items() if self.file.startswith(start)), "other files"
        )

    def image(self) -> bytes:
        """Return the image as a file, without loss; raises UnusableImage."""
        if self.fault:
            raise UnusableImage(self.fault)
        if self.array is None:
            return self.file
        if self.array.ndim != 3 or len(self.array) not in (1, 3):
            raise UnusableImage(f"images must have 1 or 3 channels, not the shape {sizes_of(self.shape)}")
        channels, height, width = self.array.shape
        if height * width > MAX_PIXELS:
            raise UnusableImage(f"{width}×{height} pixels is more than the limit of {MAX_PIXELS:,} pixels")
        header = f"{'P6' if channels == 3 else 'P5'}\n{width} {height}\n255\n"
        return header.encode() + whole_pixels(self.array).transpose(1, 2, 0).tobytes()

    def numbers(self) -> list[float]:
        """Return the values of the array; raises ValueError if there is none."""
        if self.fault or self.array is None:
            raise ValueError(self.fault or "it is an image")
        values: list[float] = self.array.astype(np.float64).ravel().tolist()
        return values


def parse(name: str, value: bytes) -> Stored:
    """Return the record in ``value``, a ``Datum``, whose raw pixels are blue first."""
    try:
        datum = Datum.FromString(value)
    except DecodeError:
        return Stored(name, fault="it is not a Caffe Datum")
    label = float(datum.label)
    if not datum.data and not datum.float_data:
        return Stored(name, label, fault="it is not a Caffe Datum, or has no data")
    if datum.encoded:
        return Stored(name, label, datum.data)
    shape = datum.channels, datum.height, datum.width
    flat = np.frombuffer(datum.data, np.uint8) if datum.data else np.array(datum.float_data, np.float32)
    if min(shape) < 1 or np.prod(shape, dtype=object) != len(flat):
        return Stored(name, label, fault=f"it declares {sizes_of(shape)} values but contains {len(flat):,}")
    planes = flat.reshape(shape)
    return Stored(name, label, array=planes[::-1] if len(planes) == 3 else planes)


def whole_pixels(values: Array) -> NDArray[np.uint8]:
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


def sizes_of(shape: tuple[int, ...]) -> str:
    """Return a shape for messages, such as ``3×28×28``."""
    return "×".join(f"{size:,}" for size in shape) or "of a single value"
