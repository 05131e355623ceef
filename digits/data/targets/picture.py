"""Targets that are stored as PNG files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from digits.data.targets.target import Features, Target


class PictureTarget(Target, frozen=True, kw_only=True):
    """A target of the size of the image, [height, width, …], which is stored as a PNG file and decoded to uint8."""

    in_image = True

    @property
    def decoded_dtype(self) -> str:
        return "uint8"

    @property
    def stored_shape(self) -> list[int]:
        return []

    def decode(self, values: Sequence[Any]) -> NDArray[np.uint8]:
        from digits.data.images.limits import (
            open_limited,  # imported late: most readers of records do not need it
        )

        with open_limited(values[0], ["PNG"]) as picture:
            return np.asarray(picture, np.uint8).reshape(self.shape)

    def encode(self, value: Any, width: int, height: int) -> Features:
        from digits.data.images import images

        return {self.feature: [images.encode(value if value.ndim == 3 else value[:, :, np.newaxis], "png")]}

    def sized(self, width: int, height: int) -> Self:
        return replace(self, shape=[height, width, *self.shape[2:]])

    @abstractmethod
    def draw(self, value: NDArray[np.uint8], side: int = 0) -> bytes:
        """Return a target as a PNG file; an image with ``side`` as a JPEG file whose sides are at most as long."""
