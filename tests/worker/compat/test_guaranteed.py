"""Which functions of TensorFlow a network can rely on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import digits.networks
from digits.worker.compat.guaranteed import calls_beyond

NETWORKS = sorted(Path(digits.networks.__file__).parent.glob("[!_]*.py"))


@pytest.mark.parametrize("file", NETWORKS, ids=lambda file: file.stem)
def test_standard_networks_call_only_guaranteed_functions(file: Path) -> None:
    assert calls_beyond(ast.parse(file.read_text())) == {}


def test_other_functions_are_listed_with_their_first_line() -> None:
    text = """import tensorflow as tf
x = tf.nn.relu(tf.math.log(tf.compat.v1.get_variable("w", [3])))
y = tf.keras.layers.Dense(3)(slim.flatten(tf.contrib.slim.conv2d(x, 3, 3)))
z = tf.linalg.logdet(tf.eye(3)) + tf.signal.rfft(x)
z = tf.linalg.logdet(z) + slim.new_layer(z)
"""
    assert calls_beyond(ast.parse(text)) == {"tf.linalg.logdet": 4, "tf.signal.rfft": 4, "slim.new_layer": 5}
