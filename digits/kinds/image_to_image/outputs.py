"""The images that a network returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from digits.kinds.targets import select_output


def image_output(outputs: Any, shape: Sequence[int | None]) -> tf.Tensor | None:
    """Return the images of ``shape`` [height, width, channels] among all ``outputs`` of a network, float32 [N, …].

    An output with as many numbers per image is reshaped. Returns None for a network with another purpose.
    """
    found = tf.cast(select_output(outputs, shape[2] or 0, rank=4), tf.float32)
    if found.shape[1:].as_list() == list(shape):
        return found
    sizes = found.shape[1:].as_list()
    if None in sizes or None in shape or math.prod(sizes) != math.prod(shape):  # type: ignore[arg-type]
        return None
    return tf.reshape(found, [-1, *shape])
