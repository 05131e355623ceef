"""Computing in half precision, on weights that stay float32.

A network under ``mixed_float16`` or ``mixed_bfloat16`` gets its input in that type. A
variable that it asks for is float32 and stays so in snapshots; the network gets a
`Flexible` view of it, which gives its value in the type that an operation wants. Other
float32 tensors are cast where they meet half precision, by `autocast`. The output goes back
to float32 before the loss is computed, and so does every other tensor that the network keeps
in ``self``; losses of TensorFlow compute in float32 wherever they stand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from digits.worker.network.variables import make_state
from digits.worker.precision import autocast_variable

FIRST_SCALE = 2.0**15
STEPS_BEFORE_LARGER = 2000


def lowered(value: Any, dtype: tf.DType) -> Any:
    """The float32 tensor ``value`` in the type in which the network computes."""
    return tf.cast(value, dtype) if value.dtype == tf.float32 and dtype != tf.float32 else value


def restored(value: Any) -> Any:
    """``value`` with tensors of half precision as float32, also those in lists, tuples and dicts."""
    if isinstance(value, tf.Tensor) and value.dtype in autocast_variable.LOW:
        return tf.cast(value, tf.float32)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(restored(item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(restored(item) for item in value)
    if isinstance(value, dict):
        found = value.copy()  # of the same kind, such as an OrderedDict
        found.update((key, restored(item)) for key, item in value.items())
        return found
    return value


def in_full(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which gets tensors of half precision as float32 while a network is built for it."""

    @functools.wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        if not autocast_variable.is_low():
            return function(*args, **kwargs)
        return function(*restored(args), **restored(kwargs))

    return computed


def through_full(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of a tensor, computing in float32 while a network is built; its result has the tensor's type."""

    @functools.wraps(function)
    def computed(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not autocast_variable.is_low():
            return function(input, *args, **kwargs)
        input = tf.convert_to_tensor(input)
        return tf.cast(function(restored(input), *args, **kwargs), input.dtype)

    return computed


def functions_in_full(*sources: Any) -> dict[str, Callable[..., Any]]:
    """The functions of modules such as those of losses, computing `in_full`."""
    found: dict[str, Callable[..., Any]] = {}
    for source in reversed(sources):
        for name in dir(source):
            function = getattr(source, name)
            computes = not name.startswith(("_", "get_", "add_")) and callable(function)
            if computes and not isinstance(function, type):
                found[name] = in_full(function)
    return found


class LossScale:
    """The number that losses are multiplied by before the way back, and gradients divided by after it.

    A step whose gradients overflow is left out and halves the number; after
    `STEPS_BEFORE_LARGER` steps without one it doubles. ``state`` belongs into snapshots.
    """

    def __init__(self, first: float = FIRST_SCALE, patience: int = STEPS_BEFORE_LARGER) -> None:
        self._patience = patience
        self._scale = make_state("optimizer/loss_scale", [], first)
        self._good_steps = make_state("optimizer/loss_scale_steps", [], 0, tf.int64)
        self.state = {"optimizer/loss_scale": self._scale, "optimizer/loss_scale_steps": self._good_steps}

    @property
    def value(self) -> tf.Tensor:
        return self._scale.read_value()

    def guard(self, gradients: Sequence[tf.Tensor], apply: Callable[[], Any]) -> None:
        """Build ``apply``, for steps whose gradients are all finite, and the change of the scale."""
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def step() -> tf.Tensor:
            apply()
            return tf.constant(0)

        tf.cond(finite, step, lambda: tf.constant(0))
        good_steps = tf.where(finite, self._good_steps.read_value() + 1, tf.constant(0, tf.int64))
        is_enough = good_steps >= self._patience
        scale = self._scale.read_value()
        larger = tf.where(is_enough, scale * 2, scale)
        self._scale.assign(tf.where(finite, larger, tf.maximum(scale / 2, 1.0)))
        self._good_steps.assign(tf.where(is_enough, tf.constant(0, tf.int64), good_steps))
