"""Variables of a network that computes in half precision.

They are stored in float32 and converted to the dtype that an operation requires. Operations that accept any dtype
get the dtype in which the network requested the variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_library
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from digits.worker import build_context

LOW = (tf.float16, tf.bfloat16)


class AutocastVariable(ResourceVariable):
    """A view of the float32 variable ``master``, on the same memory, with the dtype ``dtype``."""

    def __init__(self, master: tf.Variable, dtype: tf.DType) -> None:
        self.__dict__.update(master.__dict__)
        self.master = master
        self._seen_dtype = dtype

    def __del__(self) -> None:
        pass  # the master owns the memory

    @property
    def dtype(self) -> tf.DType:
        return self._seen_dtype

    @property
    def op(self) -> Any:
        return self.master.op

    def value(self) -> tf.Tensor:
        return tf.cast(self.master.value(), self._seen_dtype)

    def read_value(self) -> tf.Tensor:
        return tf.cast(self.master.read_value(), self._seen_dtype)

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        return tf.cast(self.master.sparse_read(indices, name), self._seen_dtype)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        return tf.cast(self.master.gather_nd(indices, name), self._seen_dtype)

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return self.master.assign(in_float32(value), *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        return self.master.assign_add(in_float32(delta), *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        return self.master.assign_sub(in_float32(delta), *args, **kwargs)

    def _dense_var_to_tensor(self, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        wanted = self._seen_dtype if dtype is None else tf.as_dtype(dtype)
        if wanted != tf.float32 and wanted not in LOW:
            raise ValueError(f"The variable {self.name} cannot be used as {wanted.name}.")
        return tf.cast(self.master.value(), wanted)


tf.register_tensor_conversion_function(
    AutocastVariable,
    lambda variable, dtype=None, name=None, as_ref=False: variable._dense_var_to_tensor(dtype, name, as_ref),
    priority=50,
)


# The operations that moving averages consist of.
_RECOMPUTED = {"Add", "AddV2", "Sub", "Mul", "Neg", "RealDiv", "Identity"}
_RECOMPUTED_DEPTH = 6


def in_float32(value: Any, depth: int = _RECOMPUTED_DEPTH) -> tf.Tensor:
    """Cast ``value`` to float32, and recompute the arithmetic that led to it in float32.

    In half precision, the small updates of a moving average would be rounded away.
    """
    value = plain(value)
    if not isinstance(value, tf.Tensor) or value.dtype not in LOW or tf.executing_eagerly():
        return tf.cast(value, tf.float32)
    operation = value.op
    if operation.type == "Cast" and operation.inputs[0].dtype == tf.float32:
        return operation.inputs[0]
    if depth == 0 or operation.type not in _RECOMPUTED:
        return tf.cast(value, tf.float32)
    inputs = [in_float32(item, depth - 1) for item in operation.inputs]
    return op_def_library.apply_op(operation.type, **dict(zip(_names(operation), inputs, strict=True)))


def _names(operation: tf.Operation) -> list[str]:
    return [argument.name for argument in operation.op_def.input_arg]


def is_low() -> bool:
    """Return whether the network being built computes in half precision, its loss included."""
    return build_context.current().compute_dtype is not None


def compute_type() -> tf.DType:
    """Return the dtype in which the current part of the build computes: the network's, or float32 for its loss."""
    dtype: tf.DType | None = build_context.current().compute_dtype
    return tf.float32 if dtype is None else dtype


def plain(variable: Any) -> Any:
    """Return the float32 variable behind an `AutocastVariable`; other values are returned unchanged."""
    return variable.master if isinstance(variable, AutocastVariable) else variable


def view(variable: tf.Variable, dtype: tf.DType | None = None) -> tf.Variable:
    """Return the view of ``variable`` with ``dtype`` for the network being built."""
    if not is_low() or variable.dtype != tf.float32:
        return variable
    return AutocastVariable(variable, dtype or tf.float32)


@contextmanager
def variables_for(dtype: tf.DType) -> Iterator[None]:
    """Make ``dtype`` the compute dtype inside, and the default dtype of ``get_variable``."""
    scope = tf.compat.v1.get_variable_scope()
    with (
        build_context.extend(compute_dtype=dtype),
        tf.compat.v1.variable_scope(scope, custom_getter=_get, dtype=dtype, auxiliary_name_scope=False),
    ):
        yield


def _get(getter: Callable[..., Any], name: str, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    wanted = tf.as_dtype(dtype or tf.float32)
    if wanted not in LOW or not is_low():
        return getter(name, *args, dtype=dtype, **kwargs)
    # Initial values and regularization are computed in float32.
    variable = getter(name, *args, dtype=tf.float32, **kwargs)
    return view(plain(variable), wanted)
