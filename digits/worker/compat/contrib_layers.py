"""Functions of ``tf.contrib.layers``, ``framework``, ``losses`` and ``metrics`` that tf_slim does not
have.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

v1 = tf.compat.v1

# The limit of `tf.nn.selu` at minus infinity.
_LEAST_SELU = -1.7580993408473766


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
    """Normalize each channel of each record (instance normalization, https://arxiv.org/abs/1607.08022)."""
    inputs = tf.convert_to_tensor(inputs)
    channels = 1 if data_format.startswith("NC") else inputs.shape.rank - 1
    axes = [axis for axis in range(1, inputs.shape.rank) if axis != channels]
    with v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse):
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        beta, gamma = _parameters(inputs, channels, center, scale, param_initializers, trainable)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return _finish(outputs, activation_fn, outputs_collections)


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
    """Normalize each of ``groups`` groups of adjacent channels per record (group normalization,
    https://arxiv.org/abs/1803.08494).
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    channels = channels_axis % rank
    count = inputs.shape[channels]
    if count % groups:
        raise ValueError(f"{count} channels cannot be divided into {groups} groups")
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
        return _finish(outputs, activation_fn, outputs_collections)


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> tf.Tensor:
    """Return the embeddings [N, T, ``embed_dim``] of ``ids`` [N, T], integers below ``vocab_size``."""
    if vocab_size is None or embed_dim is None:
        if not reuse:
            raise ValueError("embed_sequence requires vocab_size and embed_dim")
        shape = None
    else:
        shape = [vocab_size, embed_dim]
    with v1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = v1.get_variable(
            "embeddings", shape, initializer=initializer, regularizer=regularizer, trainable=trainable
        )
        return v1.nn.embedding_lookup(embeddings, ids)


def bow_encoder(
    ids: Any,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> tf.Tensor:
    """Return the mean [N, ``embed_dim``] of the embeddings of ``ids`` [N, T] (bag of words)."""
    sparse = isinstance(ids, tf.SparseTensor)
    with v1.variable_scope(scope, "bow_encoder", [] if sparse else [ids], reuse=reuse):
        embeddings = v1.get_variable(
            "embeddings",
            [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        if sparse:
            return v1.nn.embedding_lookup_sparse(embeddings, ids, None, combiner="mean")
        return tf.reduce_mean(v1.nn.embedding_lookup(embeddings, ids), 1)


def alpha_dropout(
    x: Any, keep_prob: Any, noise_shape: Any = None, seed: Any = None, name: Any = None
) -> tf.Tensor:
    """Dropout that preserves mean and variance of ``tf.nn.selu`` (https://arxiv.org/abs/1706.02515)."""
    with tf.name_scope(name or "alpha_dropout"):
        x = tf.convert_to_tensor(x)
        keep_prob = tf.cast(keep_prob, x.dtype)
        shape = tf.shape(x) if noise_shape is None else noise_shape
        kept = tf.floor(keep_prob + tf.random.uniform(shape, seed=seed, dtype=x.dtype))
        scale = tf.math.rsqrt(keep_prob + _LEAST_SELU**2 * keep_prob * (1 - keep_prob))
        return scale * (x * kept + _LEAST_SELU * (1 - kept) - _LEAST_SELU * (1 - keep_prob))


def smart_cond(pred: Any, true_fn: Any = None, false_fn: Any = None, name: Any = None, **old: Any) -> Any:
    """Return ``true_fn()`` or ``false_fn()``, without a conditional if ``pred`` is constant."""
    true_fn, false_fn = old.get("fn1", true_fn), old.get("fn2", false_fn)
    known = tf.get_static_value(pred) if isinstance(pred, tf.Tensor) else pred
    if known is None or isinstance(known, tf.Variable):
        return v1.cond(tf.cast(pred, tf.bool), true_fn, false_fn, name=name)
    return true_fn() if known else false_fn()


def with_shape(expected_shape: Any, tensor: Any) -> tf.Tensor:
    """Return ``tensor`` with the static shape ``expected_shape``, checked at run time if it is unknown."""
    return tf.ensure_shape(tensor, expected_shape)


def _decorator(*args: Any, **kwargs: Any) -> Any:
    """Replace a decorator of TensorFlow, such as ``deprecated(date, instructions)``, by one that does
    nothing.
    """
    return lambda function: function


def framework() -> dict[str, Any]:
    """Return the names of ``tf.contrib.framework``."""
    decorators = ("deprecated", "deprecated_args", "deprecated_arg_values", "experimental")
    checkpoints = ("list_variables", "load_variable", "load_checkpoint", "checkpoints_iterator")
    return {
        **dict.fromkeys(decorators, _decorator),
        **{name: getattr(tf.train, name) for name in checkpoints},
        "smart_cond": smart_cond,
        "smart_constant_value": tf.get_static_value,
        "with_shape": with_shape,
        "with_same_shape": lambda expected, tensor: tf.ensure_shape(tensor, expected.shape),
    }


def losses(slim_losses: Any) -> dict[str, Any]:
    """Return the names of ``tf.contrib.losses`` and ``slim.losses``, including those from before 1.0."""
    functions = {name: value for name, value in vars(slim_losses).items() if inspect.isfunction(value)}
    functions["sum_of_squares"] = functions["mean_squared_error"]
    functions["sum_of_pairwise_squares"] = functions["mean_pairwise_squared_error"]
    return {name: _accept_weight(function) for name, function in functions.items()}


def _accept_weight(function: Any) -> Any:
    """Return ``function`` with ``weight`` accepted as another name of its argument ``weights``."""
    if "weights" not in inspect.signature(function).parameters:
        return function

    @functools.wraps(function)
    def accept_weight(*args: Any, **kwargs: Any) -> Any:
        if "weight" in kwargs:
            kwargs["weights"] = kwargs.pop("weight")
        return function(*args, **kwargs)

    return accept_weight


def metrics() -> dict[str, Any]:
    """Return the names of ``tf.contrib.metrics``."""
    return {
        "confusion_matrix": v1.confusion_matrix,
        "set_size": tf.sets.size,
        "set_intersection": tf.sets.intersection,
        "set_union": tf.sets.union,
        "set_difference": tf.sets.difference,
    }


def _parameters(
    inputs: tf.Tensor, channels: int, center: bool, scale: bool, initializers: Any, trainable: bool
) -> tuple[Any, Any]:
    """Return beta and gamma, or None for each, in a shape that broadcasts over ``inputs``."""
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


def _finish(outputs: tf.Tensor, activation_fn: Any, collections: Any) -> tf.Tensor:
    outputs = outputs if activation_fn is None else activation_fn(outputs)
    if collections:
        ops.add_to_collections(collections, outputs)
    return outputs
