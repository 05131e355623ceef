"""Predictions: the raw numbers that a network returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import in_order

MAX_VALUES = 100
_MIN_SIDE = 2


class Targets(targets.Targets):
    """The output of a network of any shape."""

    takes_image = False

    def predict(self, outputs: Any) -> tf.Tensor:
        """The first output, or one with a usual name such as ``logits``, float32 [N, …].

        Outputs of a list or tuple that all have the same shape are returned together, float32 [N, outputs, …].
        """
        ordered = in_order(outputs)
        if isinstance(outputs, (list, tuple)) and len({tuple(item.shape) for item in ordered}) == 1 < len(
            ordered
        ):
            return tf.stack([tf.cast(item, tf.float32) for item in ordered], axis=1)
        return tf.cast(ordered[0], tf.float32)

    def accepts(self, shape: Sequence[int]) -> bool:
        return True

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> dict[str, Any]:
        """The shape and the first numbers, their range, and a picture of an output that looks like an image."""
        finite = predicted[np.isfinite(predicted)]
        return {
            "shape": list(predicted.shape),
            "values": [float(value) for value in predicted.ravel()[:MAX_VALUES]],
            "count": predicted.size,
            "min": float(finite.min()) if finite.size else None,
            "max": float(finite.max()) if finite.size else None,
            "mean": float(finite.mean(dtype=np.float64)) if finite.size else None,
            "image": _picture(predicted),
        }


def _picture(values: NDArray[Any]) -> str:
    """Return [height, width] or [height, width, 1 or 3] as a URI, scaled unless the numbers are pixels."""
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or min(values.shape[:2]) < _MIN_SIDE:
        return ""
    if not np.isfinite(values).all():
        return ""
    are_pixels = values.min() >= 0 and 1 < values.max() <= 255
    pixels = np.rint(values).astype(np.uint8) if are_pixels else images.scale_to_pixels(values)
    return images.data_uri(images.encode(pixels, "png"))
