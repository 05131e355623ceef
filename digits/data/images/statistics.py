"""Statistics of a dataset's images that the health checks compare, without tensors.

Images whose pixels are equal have the same exact hash. Images that look the same, such as a photo that was resized or
recompressed, have similar perceptual hashes, and similar shapes: their lowest frequencies without the brightness and
contrast.

The perceptual hash is that of `imagehash.phash` (https://github.com/JohannesBuchner/imagehash): whether each of the 64
lowest frequencies of a 32×32 image is above their median. It is computed here, because that package requires SciPy and
PyWavelets for what is a single matrix product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data.images.images import as_image, side_by_side
from digits.data.records.records import Record
from digits.data.targets.target import Target

# The modes of source images; a record contains the index. Others are stored as the last one.
MODES = (
    "",
    *("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"),
    *("I", "I;16", "I;16B", "I;16L", "I;16N", "F", "other"),
)

# ``brightness`` and ``contrast`` are the mean and standard deviation of the gray values, 0 to 255; ``low`` and ``high``
# their first and last percentile. ``width`` and ``height`` are those of the source image, 0 if they are not known.
STATISTICS_DTYPE = np.dtype(
    [
        ("brightness", "<f4"),
        ("contrast", "<f4"),
        ("low", "u1"),
        ("high", "u1"),
        ("mode", "u1"),
        ("width", "<u4"),
        ("height", "<u4"),
        ("pixels_hash", "<u8"),
        ("perceptual_hash", "<u8"),
        ("target_hash", "<u8"),
    ]
)

_SIDE = 32
_FREQUENCIES = 8
_MODE_INDEXES = {mode: index for index, mode in enumerate(MODES)}
SHAPE_LENGTH = _FREQUENCIES**2 - 1
# The type II discrete cosine transform, float32 [frequencies, pixels].
_COSINES = np.cos(
    np.pi / _SIDE * np.arange(_FREQUENCIES)[:, None] * (np.arange(_SIDE) + 0.5)[None, :], dtype=np.float64
).astype(np.float32)
# With these factors, the transform is orthogonal apart from its scale.
_NORM = np.array([0.5**0.5] + [1.0] * (_FREQUENCIES - 1), np.float32)
_NORMS = np.outer(_NORM, _NORM).ravel()
# Rounding errors of frequencies that are zero must not decide on a bit.
_TOLERANCE = 0.5


def describe(records: Iterable[Record], count: int, target: Target) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """Return the statistics of ``count`` records, an array of `STATISTICS_DTYPE`, and their shapes, see `shapes`.

    Raises DamagedRecords.
    """
    statistics = np.zeros(count, STATISTICS_DTYPE)
    histograms = np.zeros((count, 256), np.float64)
    small = np.zeros((count, _SIDE, _SIDE), np.float32)
    for index, record in enumerate(records):
        pixels = record.as_pixels()
        gray = as_image(side_by_side(pixels) if pixels.shape[2] not in (1, 3) else pixels).convert("L")
        histograms[index] = gray.histogram()
        small[index] = np.asarray(gray.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR))
        row = statistics[index]
        row["pixels_hash"] = _hash(
            record.as_array().tobytes() if record.format == "float32" else pixels.tobytes()
        )
        row["target_hash"] = _hash(_target_bytes(record, target))
        row["width"], row["height"] = record.source_size
        row["mode"] = _MODE_INDEXES.get(record.source_mode, len(MODES) - 1)
    _add_histograms(statistics, histograms)
    frequencies = low_frequencies(small)
    statistics["perceptual_hash"] = perceptual_hashes(frequencies)
    return statistics, shapes(frequencies)


def low_frequencies(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the lowest frequencies of gray images, float32 [images, 32, 32], as float32 [images, 64]."""
    frequencies: NDArray[Any] = _COSINES @ images @ _COSINES.T
    return frequencies.reshape(len(images), -1)


def shapes(frequencies: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return the `low_frequencies` without the mean as vectors of about length 127, int8 [images, 63]."""
    vectors = (frequencies * _NORMS)[:, 1:]
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _TOLERANCE)
    rounded: NDArray[np.float32] = np.round(127 * vectors / lengths)
    return rounded.astype(np.int8)


def perceptual_hashes(frequencies: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return the perceptual hashes of the `low_frequencies` of images, uint64 [images]."""
    median = np.median(frequencies, axis=1, keepdims=True)
    bits = np.packbits(frequencies > median + _TOLERANCE, axis=1)
    return bits.view(">u8")[:, 0].astype(np.uint64)


def _add_histograms(statistics: NDArray[Any], histograms: NDArray[np.float64]) -> None:
    values = np.arange(256, dtype=np.float64)
    shares = histograms / histograms.sum(axis=1, keepdims=True)
    mean = shares @ values
    statistics["brightness"] = mean
    statistics["contrast"] = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    cumulative = np.cumsum(shares, axis=1)
    statistics["low"] = (cumulative > 0.01).argmax(axis=1)
    statistics["high"] = (cumulative >= 0.99).argmax(axis=1)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _target_bytes(record: Record, target: Target) -> bytes:
    values = record.features.get(target.feature, ())
    return b"".join(value if isinstance(value, bytes) else repr(value).encode() + b"," for value in values)
