"""Mixed float32 and half-precision tensors in operations, control flow and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.core.events import Warned
from tests.worker import networks
from tests.worker.conftest import snapshot

HEAD = "import numpy as np\nimport tensorflow as tf\nfrom tensorflow.keras import layers\n"


def classifier(body: str, head: str = "") -> str:
    """Return a network whose ``body`` computes features ``x`` [N, any] and which prints the tensors in ``shown``."""
    return networks.classifier(
        "shown = []\n"
        + body.strip()
        + "\nprint('types', *(item.dtype.name for item in shown))"
        + "\nreturn slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')",
        head=HEAD + head,
    )


def types(outcome: Any) -> list[str]:
    """Return the dtypes of the shown tensors, which must be the same in each stage."""
    assert outcome.code == 0, outcome.output
    (line,) = {line for line in outcome.output.splitlines() if line.startswith("types")}
    return line.split()[1:]


OPERATIONS = classifier(
    """
x = tf.reshape(self.x, [-1, 144])
full, half = tf.constant([2.0]), tf.reduce_mean(x)
shown += [x - full, full + x, x / full, tf.div(full, x + 300.0), full ** 0.5 * x, x * np.float32(2.0)]
shown += [tf.multiply(np.ones([144], np.float32), x), tf.concat([full, x[0]], 0), tf.add_n([x, tf.zeros_like(x, tf.float32)])]
shown += [tf.stack([full[0], half]), tf.convert_to_tensor([half, full[0]]), tf.where(x > full, x, tf.zeros(tf.shape(x)))]
shown += [tf.matmul(tf.random_normal([8, 144]), x, transpose_b=True)]
shown += [tf.one_hot([0], 2, full[0], half), tf.nn.dropout(x, keep_prob=tf.constant(0.9)), tf.Variable(full) * x]
shown += [Dense(8)(x), tf.reshape(self.x, [-1, 12, 12]) @ tf.eye(12), tf.maximum(x, full), tf.keras.layers.Dense(4, dtype='float32')(x) + x[:, :4]]
x = x * 0.01 + tf.add_n([tf.reduce_mean(item) for item in shown]) * tf.constant(1e-3)
""",
    """
class Dense(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.units), dtype=tf.float32)
        self.b = tf.Variable(tf.zeros([self.units]))
    def call(self, x):
        return tf.matmul(x, self.w) * tf.constant(0.1) + self.b
""",
)


@pytest.mark.parametrize(
    "precision", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.nightly)]
)
def test_operations_accept_constants_and_random_numbers(train: Any, precision: str) -> None:
    outcome = train(OPERATIONS, precision=precision, epochs=1)
    low = precision.removeprefix("mixed_")
    assert types(outcome) == [low] * len(types(outcome))
    assert np.isfinite(outcome.values("train", "loss")).all()


CONTROL_FLOW = classifier(
    """
x = tf.reshape(self.x / 100.0, [-1, 144])
rows = tf.reshape(x, [-1, 12, 12])
zeros = tf.zeros([tf.shape(x)[0], 144])
positive = tf.reduce_sum(x) > 0
either = tf.cond(positive, lambda: (x, [zeros]), lambda: (zeros, [x]))
shown += [either[0], either[1][0], tf.switch_case(tf.constant(1), [lambda: x, lambda: zeros])]
_, looped = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, 0.5 * h + x), [tf.constant(0), zeros])
array = tf.TensorArray(tf.float32, size=1).write(0, x).stack()[0]
scanned = tf.scan(lambda h, row: h + row, tf.transpose(rows, [1, 0, 2]), initializer=zeros[:, :12])[-1]
mapped = tf.map_fn(lambda row: row - tf.reduce_mean(row), x, fn_output_signature=tf.float32)
outputs, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(8), rows, dtype=tf.float32)
shown += [looped, array, scanned, mapped, outputs, state.h]
x = tf.concat([x, *shown[:7], state.h], 1)
"""
)


def test_control_flow_preserves_dtypes(train: Any) -> None:
    expected = ["bfloat16"] * 3 + ["float32"] * 6
    assert types(train(CONTROL_FLOW, precision="mixed_bfloat16", epochs=1)) == expected


UNAVAILABLE = {
    "a function with a signature": """
@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
def changed(x):
    return x * tf.constant(0.1)
""",
    "a loop of AutoGraph": """
@tf.function
def changed(x):
    total = tf.zeros([144])
    for i in tf.range(3):
        total = tf.reduce_mean(x, 0)
    return x + total
""",
}


@pytest.mark.parametrize("function", UNAVAILABLE)
def test_a_function_without_half_precision_is_reported(preflight: Any, function: str) -> None:
    network = classifier("x = changed(tf.reshape(self.x / 100.0, [-1, 144]))", UNAVAILABLE[function])
    assert preflight(network).code == 0
    failure = preflight(network, precision="mixed_bfloat16").failure
    assert "or train in float32" in failure.hint and failure.line


EXPLICIT = classifier(
    """
x = tf.reshape(self.x / 100.0, [-1, 144])
full = tf.cast(x, tf.float32) + 1000.0
squares = tf.matmul(full, full, transpose_b=True) * tf.constant(1e-9)
kept = tf.get_variable('kept', [144], tf.float32) * tf.constant(2.0)
mask = tf.nn.softmax(x + tf.cast(tf.range(144) > 99, tf.float32) * -1e9)
shown += [full, squares, kept, x + kept, mask]
self.summaries += [tf.summary.scalar('squares', tf.reduce_max(squares)), tf.summary.scalar('mask', tf.reduce_sum(mask[:, :100]) / tf.reduce_sum(mask))]
x = x + tf.reduce_mean(squares) + kept
"""
)


def test_explicit_casts_hold_until_mixed_with_half_precision(train: Any) -> None:
    outcome = train(EXPLICIT, precision="mixed_float16", epochs=1)
    assert types(outcome) == ["float32"] * 3 + ["float16"] * 2
    assert min(outcome.values("train", "squares")) == pytest.approx(
        0.144, rel=0.05
    )  # multiplied by 1e9, which is infinite in float16
    assert outcome.values("train", "mask") == pytest.approx([1.0] * 8, abs=0.01)


FULL_ONLY = classifier(
    """
kept.append(tf.reshape(self.x, [-1, 144]))
x = tf.reshape(self.x / 255.0, [-1, 12, 12])
shown += [tf.einsum('nij,njk->nik', x, x)]
shown += [tf.image.resize_images(self.x, [6, 6]), tf.py_func(lambda a: np.float32(a.itemsize), [x], tf.float32)]
x = tf.concat([tf.reshape(item, [-1, item.shape[1] * item.shape[2]]) for item in shown[:2]], 1)
""",
    "kept = []\n",
).replace(
    "return digits",
    "far = tf.reduce_sum(tf.square(kept[-1] + tf.constant(300.0)))\n"
    "        print('far', far.dtype.name)\n        return 1e-9 * far + digits",
)


def test_operations_without_half_precision_and_the_loss_compute_in_float32(train: Any) -> None:
    """The loss does so for tensors that it receives in half precision by other means than ``self``."""
    outcome = train(FULL_ONLY, precision="mixed_float16", epochs=1)
    assert types(outcome) == ["float16"] + ["float32"] * 2
    assert "far float32" in outcome.output
    assert np.isfinite(outcome.values("train", "loss")).all()


GRADIENTS = classifier(
    """
x = tf.reshape(self.x, [-1, 144])
mean = tf.reduce_mean(x / 10.0 + 200.0)
first = tf.get_variable('first', [], tf.float32, tf.constant_initializer(100.0), trainable=False)
second = tf.get_variable('second', [], tf.float32, tf.constant_initializer(100.0), trainable=False)
third = tf.get_variable('third', [], initializer=tf.constant_initializer(100.0), trainable=False)
average = tf.train.ExponentialMovingAverage(0.999)
if self.is_training:
    updates = [tf.assign(first, first * 0.999 + mean * 0.001), tf.assign_sub(second, (second - mean) * 0.001)]
    updates += [third.assign(tf.constant(0.999) * third + 0.001 * mean), outside.assign(outside * 0.999 + mean * 0.001)]
    with tf.control_dependencies(updates):
        x = tf.identity(x)
tf.scatter_add(tf.get_variable('counts', [2], initializer=tf.zeros_initializer(), trainable=False), [0], mean[None] * 0.0 + 1.0)
x = slim.fully_connected(x / 100.0, 16, scope='dense')
slope = tf.gradients(tf.reduce_sum(x * x * tf.constant(0.5)), x)[0]
with tf.GradientTape() as tape:
    tape.watch(x)
    value = tf.reduce_sum(tf.linalg.logdet(tf.eye(16) + x[:, :, None] * x[:, None] * tf.constant(0.01)) + tf.math.lgamma(tf.abs(x) + tf.constant(1.0))[:, 0])
shown += [reversed(x), slope, tape.gradient(value, x)]
x = tf.concat(shown, 1)
""",
    """
outside = tf.Variable(100.0, trainable=False, name='outside')
@tf.custom_gradient
def reversed(x):
    scale = tf.constant(-0.5)
    return tf.identity(x), lambda change: change * scale
""",
)


def test_gradients_flow_through_casts_and_moving_averages_are_in_float32(train: Any) -> None:
    """Steps of 0.001 of the averages would be lost to rounding in half precision."""
    full, half = (
        train(GRADIENTS, name=name, precision=name, epochs=2) for name in ("float32", "mixed_bfloat16")
    )
    assert set(types(half)) == {"bfloat16"}
    (warning,) = half.of(Warned)
    assert "tf.linalg.logdet (line" in warning.message and "float32" in warning.message
    assert not full.of(Warned)
    assert half.values("val", "loss") == pytest.approx(full.values("val", "loss"), rel=0.05)
    expected, found = (snapshot(outcome.job_folder, "snapshot_2.ckpt") for outcome in (full, half))
    for name in ("model/first", "model/second", "model/third", "model/counts", "outside"):
        assert found[name].dtype == np.float32
        start = 0.0 if name == "model/counts" else 100.0
        assert found[name] - start == pytest.approx(expected[name] - start, rel=0.05), name
        assert np.abs(expected[name] - start).max() > 0


def test_float32_networks_are_not_autocast(fail: Any) -> None:
    network = classifier("x = tf.cast(tf.reshape(self.x, [-1, 144]), tf.float16) + tf.constant(1.0)")
    outcome = fail(network)
    assert outcome.failure.detail.startswith("TypeError: Input 'y' of 'AddV2' Op has type float32")
