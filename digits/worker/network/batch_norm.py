"""Batch normalization: moments over the records of all workers, and the fused operation for Keras layers.

Keras, slim and ``tf.layers`` get their moments here. Usually, they are those of the worker's own records. If the
recipe synchronizes them, they are those of all workers: their means are exchanged in the forward pass, and the
gradients of the means in the backward pass.

Keras 3 composes batch normalization from a dozen operations, each of which passes over the whole batch. TensorFlow's
fused operation computes the same several times as fast, on CPUs and GPUs. In fine-tuning, where moving averages
normalize, the layer becomes a part of the convolution before it; see `_fold`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from digits.worker import build_context, patched_names
from digits.worker.network.variables import plain_name

_CONVOLUTIONS = {
    "Conv2D": tf.raw_ops.Conv2D,
    "DepthwiseConv2dNative": tf.raw_ops.DepthwiseConv2dNative,
}


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
            x, scale, offset, epsilon=epsilon, data_format=data_format, is_training=is_training, **averages
        )
        return found
    axes, shape = ([0, 2, 3], [1, -1, 1, 1]) if data_format == "NCHW" else ([0, 1, 2], [-1])
    exact = tf.cast(x, tf.float32)
    mean, variance = moments(exact, axes)
    spread = [tf.reshape(tf.cast(value, tf.float32), shape) for value in (mean, variance, offset, scale)]
    output = tf.cast(tf.nn.batch_normalization(exact, *spread, epsilon), x.dtype)
    count = tf.cast(tf.size(x) / tf.size(mean), tf.float32) / reduction.fraction
    return output, mean, variance * count / tf.maximum(count - 1, 1)


@functools.cache
def install() -> None:
    """Make Keras layers use the fused operation where possible, or synchronized moments, once per process."""
    layer = keras.layers.BatchNormalization
    patched_names.install(layer, "call", _fuse(layer.call))
    patched_names.install(layer, "_moments", _synchronize(layer._moments))


def _synchronize(moments: Any) -> Any:
    """Wrap the layer's ``_moments`` of the records of this worker."""

    @functools.wraps(moments)
    def synchronized(*args: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return synchronize(moments(*args))

    return synchronized


def _fuse(call: Any) -> Any:
    """Wrap the layer's ``call``, which remains the fallback for unsupported cases."""

    @functools.wraps(call)
    def fused(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        is_training = training
        if training and _is_in_trunk(self):
            training = False
        if not _is_possible(self, inputs, training, mask):
            return call(self, inputs, training=training, mask=mask)
        channels = [inputs.shape[-1]]
        learns = bool(training and self.trainable)
        if is_training and not learns and (folded := _fold(self, inputs)) is not None:
            return folded
        x = tf.cast(inputs, tf.float32)  # half precision would overflow
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
            # The operation returns the unbiased variance; Keras uses that of the batch.
            count = tf.cast(tf.size(x) / channels[0], tf.float32)
            variance *= tf.maximum(count - 1, 1) / count
            for average, before, now in zip(
                (self.moving_mean, self.moving_variance), moving, (mean, variance), strict=True
            ):
                average.assign(before * self.momentum + now * (1 - self.momentum))
        return tf.cast(y, self.compute_dtype)

    return fused


def _fold(layer: Any, outputs: tf.Tensor) -> tf.Tensor | None:
    """Normalize the ``outputs`` of a convolution by moving averages: a convolution with scaled kernels and a bias.

    Steps save the passes over the outputs and their gradients. Returns None if another operation computed them.
    """
    if tf.executing_eagerly() or outputs.dtype != tf.float32:
        return None
    convolution, bias = outputs.op, 0.0
    if convolution.type == "BiasAdd":
        convolution, bias = convolution.inputs[0].op, convolution.inputs[1]
    compute = _CONVOLUTIONS.get(convolution.type)
    if compute is None:
        return None
    settings = {
        name: convolution.get_attr(name) for name in ("strides", "padding", "data_format", "dilations")
    }
    if settings["data_format"] != b"NHWC" or settings["padding"] == b"EXPLICIT":
        return None
    x, kernel = convolution.inputs
    factor = tf.math.rsqrt(layer.moving_variance + layer.epsilon) * (layer.gamma if layer.scale else 1.0)
    per_channel = factor if convolution.type == "Conv2D" else tf.reshape(factor, kernel.shape[2:])
    offset = (bias - layer.moving_mean) * factor + (layer.beta if layer.center else 0.0)
    return tf.nn.bias_add(compute(input=x, filter=kernel * per_channel, **settings), offset)


def _is_in_trunk(layer: Any) -> bool:
    """Return whether the layer is pretrained, so that the statistics of small batches must not replace its own."""
    trunk = build_context.current().trunk
    return bool(trunk) and plain_name(layer.moving_mean.value) in trunk


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
        and not (training and are_synchronized())
    )
