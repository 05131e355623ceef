"""The mean of the training images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.files import write_bytes
from digits.data.images import images
from digits.data.manifest import MEAN_ARRAY_FILE, MEAN_IMAGE_FILE, MEAN_JPEG_FILE

MAX_UINT16_SUMMANDS = 65535 // 255


class MeanSum:
    """The sum of images of one size; that of uint8 images is exact and does not depend on their order."""

    def __init__(self) -> None:
        self._total: NDArray[np.float64] | None = None
        self._recent = np.zeros(0, np.uint16)
        self._count = 0

    def add(self, pixels: NDArray[Any]) -> None:
        """Add uint8 or float32 [height, width, channels]."""
        if pixels.dtype != np.uint8:
            total = np.zeros(pixels.shape) if self._total is None else self._total
            self._total = np.add(total, pixels, out=total)
            return
        # Adding 16-bit integers is faster than adding float64.
        if self._count == MAX_UINT16_SUMMANDS:
            self._total = self.total()
            self._count = 0
        if self._count:
            np.add(self._recent, pixels, out=self._recent)
        else:
            self._recent = pixels.astype(np.uint16)
        self._count += 1

    def total(self) -> NDArray[np.float64] | None:
        """The sum so far, float64 [height, width, channels]; None without images."""
        if not self._count:
            return self._total
        return self._recent.astype(np.float64) if self._total is None else self._total + self._recent


def save(mean: NDArray[np.float64], dtype: str, job_folder: Path) -> None:
    """Save the ``mean`` [height, width, channels] of images of ``dtype`` as an array and as pictures."""
    file = io.BytesIO()
    np.save(file, mean.astype(np.float32), allow_pickle=False)
    write_bytes(job_folder / MEAN_ARRAY_FILE, file.getvalue())
    is_array = dtype == "float32"
    pixels = images.scale_to_pixels(mean.astype(np.float32)) if is_array else np.rint(mean).astype(np.uint8)
    picture = images.side_by_side(pixels)
    for name in (MEAN_IMAGE_FILE, MEAN_JPEG_FILE):
        write_bytes(job_folder / name, images.encode(picture, Path(name).suffix[1:]))
