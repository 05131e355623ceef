"""Predictions of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_output


class Targets(targets.Targets):
    """The image that a network returns."""

    output_hint = "Only networks that return images can make predictions."

    @property
    def channels(self) -> int:
        return self.target.shape[2]

    def predict(self, outputs: Any) -> tf.Tensor:
        """The images, float32 [N, H, W, C], 0 to 255; other outputs are unchanged."""
        image = image_output(outputs, self.target.shape)
        if image is None:
            image = tf.cast(select_output(outputs, self.target.shape[2], rank=4), tf.float32)
        return tf.clip_by_value(image, 0.0, 255.0)

    def accepts(self, shape: Sequence[int]) -> bool:
        return len(shape) == 3 and shape[2] == self.target.shape[2]

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Accept every network: `accepts` has refused other outputs than images."""

    @property
    def suitable_output(self) -> str:
        height, width, channels = self.target.shape
        return f"[N, {height}, {width}, {channels}]: one image per input"

    def example(self, output: str) -> list[str]:
        return [
            f'found = np.rint(outputs["{output}"][0].reshape({self.target.shape}).clip(0, 255)).astype(np.uint8)',
            'Image.fromarray(found.squeeze()).save("output.png")',
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> dict[str, Any]:
        """The image as a data URI of a PNG file, in the proportions of the user's image, without padding."""
        output = images.as_image(np.rint(predicted).astype(np.uint8))
        if output.size == (geometry.width, geometry.height):
            (x, y), (width, height) = geometry.offset, geometry.inner
            left, top_edge, right, bottom = geometry.cut
            scale = max(width, height) / max(right - left, bottom - top_edge)
            size = max(1, round(scale * (right - left))), max(1, round(scale * (bottom - top_edge)))
            output = output.resize(size, box=(x, y, x + width, y + height))
        picture = images.data_uri(images.encode_image(output, "png"))
        return {"image": picture, "width": output.width, "height": output.height}


def image_output(outputs: Any, shape: Sequence[int | None]) -> tf.Tensor | None:
    """Return the images of ``shape`` [height, width, channels] among all ``outputs`` of a network, float32 [N, …].

    An output with as many numbers per image is reshaped. Returns None for a network with another purpose.
    """
    image = tf.cast(select_output(outputs, shape[2] or 0, rank=4), tf.float32)
    if image.shape[1:].as_list() == list(shape):
        return image
    sizes = image.shape[1:].as_list()
    if None in sizes or None in shape or math.prod(sizes) != math.prod(shape):  # type: ignore[arg-type]
        return None
    return tf.reshape(image, [-1, *shape])
