"""Variables of a network that computes in half precision.

They are float32, and what an operation gets of them has the type that it asks for. A
variable that was asked for in half precision gives half precision to operations that
take any type; so do variables without a type of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

LOW = (tf.float16, tf.bfloat16)

# The type in which the network that is being built computes; empty for float32.
_active: list[tf.DType] = []


class FlexibleVariable(ResourceVariable):
    """A view of the float32 variable ``master``, on the same memory."""

    def __init__(self, master: tf.Variable, dtype: tf.DType) -> None:
        self.__dict__.update(master.__dict__)
        self.master = master
        self._seen_dtype = dtype

    def __del__(self) -> None:
        pass  # the memory belongs to the master

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
        return self.master.assign(_full(value), *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        return self.master.assign_add(_full(delta), *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        return self.master.assign_sub(_full(delta), *args, **kwargs)

    def _dense_var_to_tensor(self, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        wanted = self._seen_dtype if dtype is None else tf.as_dtype(dtype)
        if wanted != tf.float32 and wanted not in LOW:
            raise ValueError(f"The variable {self.name} cannot be used as {wanted.name}.")
        return tf.cast(self.master.value(), wanted)


tf.register_tensor_conversion_function(
    FlexibleVariable,
    lambda variable, dtype=None, name=None, as_ref=False: variable._dense_var_to_tensor(dtype, name, as_ref),
    priority=50,
)


def _full(value: Any) -> tf.Tensor:
    return tf.cast(plain(value), tf.float32)


def is_low() -> bool:
    """Whether the network that is being built computes in half precision."""
    return bool(_active)


def plain(variable: Any) -> Any:
    """The variable behind a flexible one; anything else as it is."""
    return variable.master if isinstance(variable, FlexibleVariable) else variable


def view(variable: tf.Variable, dtype: tf.DType | None = None) -> tf.Variable:
    """``variable`` as the network that is being built shall see it."""
    if not _active or variable.dtype != tf.float32:
        return variable
    return FlexibleVariable(variable, dtype or tf.float32)


@contextmanager
def variables_for(compute_type: tf.DType) -> Iterator[None]:
    """Networks built inside compute in ``compute_type``: ``get_variable`` has it as the usual type."""
    scope = tf.compat.v1.get_variable_scope()
    _active.append(compute_type)
    try:
        with tf.compat.v1.variable_scope(
            scope, custom_getter=_get, dtype=compute_type, auxiliary_name_scope=False
        ):
            yield
    finally:
        _active.pop()


def _get(getter: Callable[..., Any], name: str, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    wanted = tf.as_dtype(dtype or tf.float32)
    if wanted not in LOW or not _active:
        return getter(name, *args, dtype=dtype, **kwargs)
    # Outside of this getter's reach: initial values and regularisation are computed in float32.
    found = getter(name, *args, dtype=tf.float32, **kwargs)
    return view(plain(found), wanted)
