"""Which networks can compute in half precision."""

from __future__ import annotations

from pathlib import Path

import pytest

import digits.networks
from tests.worker.lazily import half_precision

# The names are looked up in TensorFlow itself.
pytestmark = pytest.mark.usefixtures("tensorflow")

NETWORKS = sorted(Path(digits.networks.__file__).parent.glob("[!_]*.py"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x = tf.nn.relu(tf.keras.layers.Dense(3)(x)) + tf.image.resize(x, [2, 2])", []),
        ("tf.summary.merge_all(); tf.losses.softmax_cross_entropy(y, x); tf.logging.info(x)", []),
        ("import tensorflow.compat.v1 as tf\nx = tf.nn.relu(tf.keras.Input([3]))", []),
        ("import numpy as np\nx = np.Variable", []),
        ("x = slim.flatten(x)", ["slim.flatten (line 1)"]),
        ("x = 1\nw = tf.Variable(tf.zeros([3]))", ["tf.Variable (line 2)"]),
        ("from tensorflow.contrib import layers as l\nl.conv2d(x, 3, 3)", ["l.conv2d (line 2)"]),
        ("import tensorflow.contrib.slim as s\ns.conv2d(x, 3, 3)", ["s.conv2d (line 2)"]),
        ("import tf_slim\ntf_slim.conv2d(x, 3, 3)", ["tf_slim.conv2d (line 2)"]),
        ("import tensorflow.compat.v1 as t\nt.layers.dense(x, 3)", ["t.layers.dense (line 2)"]),
        ("w = tf.compat.v1.get_variable('w', [3])", ["tf.compat.v1.get_variable (line 1)"]),
        ("a.b(tf.random_normal([3])).c", ["tf.random_normal (line 1)"]),
        ("\n".join(f"slim.conv{n}d(x)" for n in range(5)), ["slim.conv0d (line 1)", "slim.conv2d (line 3), …."]),
        ("x = (", []),
    ],
)  # fmt: skip
def test_slim_tensorflow_1_and_own_variables_need_float32(text: str, named: list[str]) -> None:
    reason = half_precision.reason_for_float32(text)
    assert bool(reason) is bool(named)
    assert all(each in reason for each in named)
    assert "conv3d" not in reason


def test_all_standard_networks_but_lenet_can_compute_in_half_precision() -> None:
    assert [file.stem for file in NETWORKS if half_precision.reason_for_float32(file.read_text())] == [
        "lenet"
    ]
