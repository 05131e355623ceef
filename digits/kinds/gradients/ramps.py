"""Images that get brighter in one direction: generated from their slopes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images

# The maximum absolute value of a slope.
LARGEST_SLOPE = 0.5


def draw_ramp(x: float, y: float, width: int, height: int) -> images.Pixels:
    """Return an image, uint8 [height, width, 1], that gets brighter by ``x`` · 255 from left to right.

    ``y`` is the same from top to bottom. The mean brightness is 127.5.
    """
    across = (np.arange(width) + 0.5) / width - 0.5
    down = (np.arange(height) + 0.5) / height - 0.5
    brightness = 255 * (0.5 + x * across[None, :] + y * down[:, None])
    return np.rint(brightness).clip(0, 255).astype(np.uint8)[:, :, None]


@dataclass(frozen=True)
class Ramps:
    """An `ImageSource` of the ramps with the ``slopes`` [images, 2], horizontal and vertical, by number."""

    slopes: NDArray[np.float32]
    width: int
    height: int

    def read(self, name: str) -> bytes:
        x, y = self.slopes[int(name)]
        return images.encode(draw_ramp(float(x), float(y), self.width, self.height), "png")

    def describe(self) -> str:
        return f"{len(self.slopes):,} generated images"

    def is_available(self) -> bool:
        return True
