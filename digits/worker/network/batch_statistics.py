"""Statistics over the records of a batch of which every worker has a part.

Batch normalization of Keras, slim and ``tf.layers`` gets its moments here. Usually, they are those of the worker's own
records. If the recipe synchronizes them, they are those of all workers: their means are exchanged in the forward pass,
and the gradients of the means in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from digits.worker import build_context


def are_synchronized() -> bool:
    """Return whether the network being built normalizes by the records of all workers."""
    return build_context.current().reduction is not None


def synchronize(moments: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and variance of the records of all workers, given those of this one, if they are synchronized."""
    reduction = build_context.current().reduction
    if reduction is None:
        return moments
    # The variance is a small difference of large numbers, which float32 would round away.
    mean, variance = (tf.cast(value, tf.float64) for value in moments)
    mean, square = tf.unstack(reduction.mean(tf.stack([mean, variance + mean**2])))
    return tf.cast(mean, moments[0].dtype), tf.cast(square - mean**2, moments[1].dtype)


def moments(x: tf.Tensor, axes: Sequence[int], *args: Any, **settings: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Like ``tf.compat.v1.nn.moments``, over the records of all workers if one of the ``axes`` is that of the batch."""
    found = tf.compat.v1.nn.moments(x, axes, *args, **settings)
    return synchronize(found) if 0 in axes else found


def weighted_moments(*args: Any, **settings: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Like ``tf.compat.v1.nn.weighted_moments``, for the weights of the records of a batch."""
    if are_synchronized():
        raise NotImplementedError("synchronized batch normalization does not support batch_weights")
    found: tuple[tf.Tensor, tf.Tensor] = tf.compat.v1.nn.weighted_moments(*args, **settings)
    return found


def fused_batch_norm(
    x: tf.Tensor,
    scale: Any,
    offset: Any,
    *,
    epsilon: float,
    data_format: str = "NHWC",
    is_training: bool = True,
    **averages: Any,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Like ``tf.compat.v1.nn.fused_batch_norm``: return the output, the mean and the unbiased variance."""
    reduction = build_context.current().reduction
    if reduction is None or not is_training:
        found: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = tf.compat.v1.nn.fused_batch_norm(
            x,
            scale,
            offset,
            epsilon=epsilon,
            data_format=data_format,
            is_training=is_training,
            **averages,
        )
        return found
    axes, shape = ([0, 2, 3], [1, -1, 1, 1]) if data_format == "NCHW" else ([0, 1, 2], [-1])
    exact = tf.cast(x, tf.float32)
    mean, variance = moments(exact, axes)
    spread = [tf.reshape(tf.cast(value, tf.float32), shape) for value in (mean, variance, offset, scale)]
    output = tf.cast(tf.nn.batch_normalization(exact, *spread, epsilon), x.dtype)
    count = tf.cast(tf.size(x) / tf.size(mean), tf.float32) / reduction.fraction
    return output, mean, variance * count / tf.maximum(count - 1, 1)
