"""Batch normalization of Keras in one operation.

Keras 3 puts it together from a dozen small ones, each of which goes through the whole batch;
TensorFlow has one that does the same several times as fast, on processors and on GPUs.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf


@functools.cache
def install() -> None:
    """Let layers of Keras use it where they can; once for this process."""
    kind = keras.layers.BatchNormalization
    kind.call = _fused(kind.call)


def _fused(call: Any) -> Any:
    """``call`` of the layer, which stays the way for what the one operation cannot."""

    @functools.wraps(call)
    def fused(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not _is_possible(self, inputs, training, mask):
            return call(self, inputs, training=training, mask=mask)
        x = tf.cast(inputs, tf.float32)  # half precision overflows here
        channels = [x.shape[-1]]
        learns = bool(training and self.trainable)
        moving = [tf.cast(value, tf.float32) for value in (self.moving_mean, self.moving_variance)]
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=tf.cast(self.gamma, tf.float32) if self.scale else tf.ones(channels),
            offset=tf.cast(self.beta, tf.float32) if self.center else tf.zeros(channels),
            mean=tf.zeros([0]) if learns else moving[0],
            variance=tf.zeros([0]) if learns else moving[1],
            epsilon=self.epsilon,
            is_training=learns,
        )
        if learns:
            # The operation gives the variance of the population that the batch was drawn from; Keras keeps the batch's.
            count = tf.cast(tf.size(x) / channels[0], tf.float32)
            variance *= tf.maximum(count - 1, 1) / count
            for average, before, now in zip(
                (self.moving_mean, self.moving_variance), moving, (mean, variance), strict=True
            ):
                average.assign(before * self.momentum + now * (1 - self.momentum))
        return tf.cast(y, self.compute_dtype)

    return fused


def _is_possible(layer: Any, inputs: Any, training: Any, mask: Any) -> bool:
    return (
        isinstance(inputs, tf.Tensor)
        and inputs.shape.rank == 4
        and inputs.shape[-1] is not None
        and layer.axis in (-1, 3)
        and mask is None
        and not isinstance(training, tf.Tensor)
        and not layer.renorm
        and not layer.synchronized
    )
