"""Layers of ``tf.contrib.layers`` that tf_slim does not have."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

v1 = tf.compat.v1


def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> tf.Tensor:
    """Every channel of every record normalised by itself."""
    inputs = tf.convert_to_tensor(inputs)
    channels = 1 if data_format.startswith("NC") else inputs.shape.rank - 1
    axes = [axis for axis in range(1, inputs.shape.rank) if axis != channels]
    with v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse):
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        beta, gamma = _parameters(inputs, channels, center, scale, param_initializers, trainable)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return _finished(outputs, activation_fn, outputs_collections)


def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Any = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> tf.Tensor:
    """``groups`` groups of neighbouring channels, each normalised by itself in every record."""
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    channels = channels_axis % rank
    count = inputs.shape[channels]
    if count % groups:
        raise ValueError(f"{count} channels cannot be parted into {groups} groups")
    with v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        beta, gamma = _parameters(inputs, channels, center, scale, param_initializers, trainable)
        sizes = tf.unstack(tf.shape(inputs), rank)
        parted = tf.reshape(inputs, [*sizes[:channels], groups, count // groups, *sizes[channels + 1 :]])
        reduced = [axis % rank for axis in reduction_axes]
        axes = [axis + (axis > channels) for axis in reduced] + [channels + 1]
        mean, variance = tf.nn.moments(parted, axes, keepdims=True)
        parted = (parted - mean) * tf.math.rsqrt(variance + epsilon)
        outputs = tf.ensure_shape(tf.reshape(parted, tf.shape(inputs)), inputs.shape)
        outputs = outputs if gamma is None else outputs * gamma
        outputs = outputs if beta is None else outputs + beta
        return _finished(outputs, activation_fn, outputs_collections)


def _parameters(
    inputs: tf.Tensor, channels: int, center: bool, scale: bool, initializers: Any, trainable: bool
) -> tuple[Any, Any]:
    """Beta and gamma, or None, in a shape that spreads over ``inputs``."""
    initializers = initializers or {}
    shape = [1] * inputs.shape.rank
    shape[channels] = -1

    def parameter(name: str, wanted: bool, initial: Any) -> Any:
        if not wanted:
            return None
        variable = v1.get_variable(
            name,
            [inputs.shape[channels]],
            inputs.dtype.base_dtype,
            initializer=initializers.get(name, initial),
            trainable=trainable,
            collections=[ops.GraphKeys.GLOBAL_VARIABLES, ops.GraphKeys.MODEL_VARIABLES],
        )
        return tf.reshape(variable, shape)

    return (
        parameter("beta", center, v1.zeros_initializer()),
        parameter("gamma", scale, v1.ones_initializer()),
    )


def _finished(outputs: tf.Tensor, activation_fn: Any, collections: Any) -> tf.Tensor:
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    if collections:
        ops.add_to_collections(collections, outputs)
    return outputs
