"""Dynamic loss scaling, which keeps small gradients from underflowing in float16.

P. Micikevicius et al., "Mixed Precision Training", 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from digits.worker.network.variables import make_state

FIRST_SCALE = 2.0**15
STEPS_BEFORE_LARGER = 2000


class LossScale:
    """The factor by which losses are multiplied before backpropagation, and gradients divided after it.

    A step whose gradients overflow is skipped and halves the factor, down to 1; it doubles after ``patience``
    consecutive steps without overflow. ``state`` contains its variables by name, which begins with ``scope``, for
    snapshots.
    """

    def __init__(
        self, scope: str = "optimizer", first: float = FIRST_SCALE, patience: int = STEPS_BEFORE_LARGER
    ) -> None:
        self._patience = patience
        scale, steps = f"{scope}/loss_scale", f"{scope}/loss_scale_steps"
        self._scale = make_state(scale, [], first)
        self._good_steps = make_state(steps, [], 0, tf.int64)
        self.state = {scale: self._scale, steps: self._good_steps}

    @property
    def value(self) -> tf.Tensor:
        """The current factor, a float32 scalar."""
        return self._scale.read_value()

    def guard(self, gradients: Sequence[tf.Tensor], apply: Callable[[], Any]) -> None:
        """Call ``apply`` in steps whose gradients are all finite, and update the factor in every step."""
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
