"""Full precision for parts of a network that computes in half precision.

A network under ``mixed_float16`` or ``mixed_bfloat16`` receives its input in that dtype. Its variables are float32,
also in snapshots; the network gets an `AutocastVariable` of each, which converts to the dtype that an operation
requires. Other float32 tensors are cast where they meet half precision (see `digits.worker.precision.autocast`).
The output and all tensors that the network keeps in ``self`` are cast to float32 before the loss is computed, and
losses of TensorFlow always compute in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from digits.worker.precision import autocast_variable


def to_compute_dtype(value: Any, dtype: tf.DType) -> Any:
    """Cast the tensor ``value`` from float32 to ``dtype``; return tensors of other dtypes unchanged."""
    return tf.cast(value, dtype) if value.dtype == tf.float32 and dtype != tf.float32 else value


def to_float32(value: Any) -> Any:
    """Cast half-precision tensors to float32, including those in lists, tuples and dicts."""
    if isinstance(value, tf.Tensor) and value.dtype in autocast_variable.LOW:
        return tf.cast(value, tf.float32)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_float32(item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(to_float32(item) for item in value)
    if isinstance(value, dict):
        copy = value.copy()  # keeps the type, such as OrderedDict
        copy.update((key, to_float32(item)) for key, item in value.items())
        return copy
    return value


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` to cast half-precision tensors among its arguments to float32 in a build."""

    @functools.wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        if not autocast_variable.is_low():
            return function(*args, **kwargs)
        return function(*to_float32(args), **to_float32(kwargs))

    return computed


def through_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` of a tensor so that it computes in float32 in a build; the result has the tensor's dtype."""

    @functools.wraps(function)
    def computed(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not autocast_variable.is_low():
            return function(input, *args, **kwargs)
        input = tf.convert_to_tensor(input)
        return tf.cast(function(to_float32(input), *args, **kwargs), input.dtype)

    return computed


def functions_in_float32(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions of a ``module``, such as losses, each wrapped by `in_float32`, by name."""
    named = {
        name: getattr(module, name) for name in dir(module) if not name.startswith(("_", "get_", "add_"))
    }
    return {
        name: in_float32(function)
        for name, function in named.items()
        if callable(function) and not isinstance(function, type)
    }
