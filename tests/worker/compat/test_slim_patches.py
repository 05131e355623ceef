"""Layers and losses of slim, compared with known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.worker.lazily import compat_module, tf, tower, variables


def _evaluated(text: str) -> Any:
    """Evaluate the last line of ``text``, built like a network."""
    names = compat_module.namespace()
    *lines, last = text.strip().split("\n")

    def value() -> Any:
        with variables.VariableStore().trace(), tower.building(None, tower.Step()):
            exec("\n".join(lines), names)
            return eval(last, names)

    return tf.nest.map_structure(lambda item: item.numpy(), tf.function(value, autograph=False)())


def test_normalizations(in_child: Any) -> None:
    x = "x = tf.constant([[1., 10., 3., 30.], [3., 10., 5., 10.]])[:, None, None, :] * [[[[1.]], [[3.]]]]\n"
    # Each channel has the values c and 3c, so its mean is 2c and its standard deviation c.
    instance = in_child(_evaluated, x + "tf.contrib.layers.instance_norm(tf.reshape(x, [2, 2, 1, 4]))")
    assert instance == pytest.approx(np.broadcast_to([[[[-1.0]], [[1.0]]]], (2, 2, 1, 4)), abs=1e-4)
    groups = in_child(
        _evaluated, x + "tf.contrib.layers.group_norm(tf.reshape(x, [2, 2, 1, 4]), groups=2, center=False)"
    )
    values = np.array([1.0, 10.0, 3.0, 30.0])
    assert groups[0, 0, 0, 0] == pytest.approx((1 - values.mean()) / values.std(), rel=1e-4)


def test_loss_aliases_are_equivalent(in_child: Any) -> None:
    text = "int(slim.losses is tf.contrib.losses is tf.contrib.slim.losses) * tf.constant(1)"
    assert in_child(_evaluated, text) == 1
