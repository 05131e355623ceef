"""Expressions of TensorFlow 1 on tensors and shapes, which `digits.core.network.tensor_expressions` rewrites."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from digits.core.network.tensor_expressions import IS_IN, VALUE
from digits.worker import patched_names


def make_tensors_hashable() -> None:
    """Make graph tensors hashable, for dict keys such as ``{placeholder: value}`` and sets.

    TensorFlow forbids it because ``==`` compares tensors element-wise; dicts compare identity first.
    """
    patched_names.install(ops.SymbolicTensor, "__hash__", object.__hash__)


def names() -> dict[str, Any]:
    """Return the functions that rewritten text calls, and ``xrange``, which is common in old networks."""
    return {VALUE: _value, IS_IN: _is_in, "xrange": range}


def _value(owner: Any) -> Any:
    if owner is None or (
        isinstance(owner, int) and not isinstance(owner, bool) and not hasattr(owner, "value")
    ):
        return owner
    return owner.value


def _is_in(item: Any, container: Any) -> Any:
    if not isinstance(container, (list, tuple)) or not any(map(_is_tensor, (item, *container))):
        return item in container
    if not _is_tensor(item):
        return any(other == item for other in container if not _is_tensor(other))
    return any(other is item for other in container)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Tensor, tf.Variable))
