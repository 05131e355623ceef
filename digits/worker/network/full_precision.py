"""Float32 for the losses of networks that compute in half precision, by the dtype policy of Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def to_float32(value: Any) -> Any:
    """Cast half-precision tensors to float32, including those in lists, tuples and dicts."""
    if isinstance(value, tf.Tensor) and value.dtype in (tf.float16, tf.bfloat16):
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
