"""Metrics of image-to-image networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.image_to_image.network.targets import image_output
from digits.kinds.image_to_image.views import MAX_PSNR
from digits.kinds.network import metrics

# The side of the window of tf.image.ssim.
_SSIM_SIDE = 11


class Metrics(metrics.Metrics):
    """The peak signal-to-noise ratio (PSNR) in dB, and the structural similarity (SSIM), as means over the images.

    Outputs are clipped to 0 to 255. The PSNR of an image that equals its target is `MAX_PSNR`. The SSIM is for whole
    splits, and for images of at least 11×11 pixels.
    """

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        images = self._images(output, y)
        return {} if images is None else {"psnr": _psnr(images, y)}

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        return {"psnr": means["psnr"]} if means else {}

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """The SSIM of each image, float32 [N, 1]."""
        images = self._images(output, y)
        if images is None or min(images.shape[1:3]) < _SSIM_SIDE:
            return None
        return tf.image.ssim(images, y, max_val=255.0)[:, None]

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        return {"ssim": float(values.mean(dtype=np.float64)) if len(values) else 0.0}

    def _images(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        images = image_output(output, y.shape[1:].as_list())
        return None if images is None else tf.clip_by_value(images, 0.0, 255.0)


def _psnr(images: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.minimum(tf.image.psnr(images, y, max_val=255.0), MAX_PSNR)
