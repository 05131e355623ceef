"""Convert batches for display: pixels of the network's input, and descriptions of the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.targets.target import Target
from digits.worker.input.preparation import Preparation


def as_pixels(x: NDArray[np.float32], prepare: Preparation) -> NDArray[np.uint8]:
    """Convert the batch ``x`` [N, H, W, C] of the network's input back to pixels, adding the mean.

    Standardized images are shown with a medium brightness and contrast, and arrays with the range of the batch.
    """
    if prepare.image_dtype != "uint8":
        return images.scale_to_pixels(x)
    if prepare.augment.whitening:
        pixels = 128 + 64 * x
    else:
        pixels = x + _mean_of_windows(prepare)
    return pixels.clip(0, 255).round().astype(np.uint8)


def _mean_of_windows(prepare: Preparation) -> NDArray[np.float32]:
    """Return the mean at the crop's position; the mean pixel for random crops."""
    if prepare.mean.ndim == 3 and prepare.crop:
        return prepare.mean.mean((0, 1))
    return prepare.mean


def describe(values: dict[str, Any], target: Target) -> dict[str, Any]:
    """Describe the targets of one image of `Preparation.for_training`.

    A blended image also has the ``other`` label, and the ``share`` of its own.
    """
    note: dict[str, Any] = {"label": target.describe(values["y"])}
    if "others" in values:
        note.update(other=target.describe(values["others"]), share=round(float(values["share"]), 4))
    return note
