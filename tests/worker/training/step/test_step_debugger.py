"""Eager steps: values available to the network, and the reported errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from digits.core.events import Finished
from tests.worker import networks
from tests.worker.conftest import Outcome


@pytest.fixture
def look(preflight: Any) -> Callable[..., Outcome]:
    """Return a function that runs the first steps of a network eagerly."""
    return functools.partial(preflight, eager=True, epochs=1, val_interval=0)


def result(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.output
    return outcome.of(Finished)[0].result


# Its gradients flow through a loop, a branch and a function. Side effects of a function are visible to later operations.
# Only a graph can compute TensorFlow 1's control flow.
LOOPS = networks.classifier(
    """
@tf.function
def doubled(v):
    return v * 2.0
seen = tf.Variable(0.0, trainable=False, name='seen')
@tf.function
def note(v):
    if v > 1e6:
        seen.assign(0.0)
    else:
        seen.assign_add(v)
note(1.0)
def one_of(x):
    sides = control_flow_ops.switch(x, tf.reduce_mean(x) > 0)
    return control_flow_ops.merge([sides[0] * 0.5, sides[1] * 2.0])[0]
net = tf.reshape(tf.map_fn(one_of, self.x / 100.0), [-1, 144]) * tf.convert_to_tensor(seen)
net = slim.fully_connected(net, 8, scope='hidden')
net = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.tanh(v)), [0, net])[1]
net = tf.cond(tf.reduce_mean(net) > 1e6, lambda: net * 0.0, lambda: tf.square(net))
return slim.fully_connected(doubled(net), self.nclasses, activation_fn=None, scope='fc')
""",
    head="from tensorflow.python.ops import control_flow_ops",
)
DROPPED = networks.BATCH_NORM.replace("{arguments}", "").replace(
    "return slim", "x = slim.dropout(x, 0.5)\n        return slim"
)

# Float32 mixed with half precision, in operations and branches.
MIXED = networks.classifier(
    """
x = slim.flatten(self.x) / tf.constant(100.0) + tf.random_normal([144], stddev=0.1)
x = tf.cond(tf.reduce_mean(x) > 0, lambda: x, lambda: tf.zeros(tf.shape(x)))
x = tf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, h * 0.5 + x), [0, tf.zeros(tf.shape(x))])[1]
return slim.fully_connected(tf.concat([x, slim.flatten(self.x)], 1), self.nclasses, activation_fn=None, scope='fc')
"""
)


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        (
            DROPPED,
            {
                "solver": {"type": "ADAM", "learning_rate": 0.001},
                "augment": {"noise": 0.1},
                "batch_accumulation": 2,
                "batch_size": 4,
            },
        ),
        (networks.KERAS_BLOCKS, {"precision": "mixed_float16"}),
        pytest.param(MIXED, {"precision": "mixed_bfloat16"}, marks=pytest.mark.nightly),
        (networks.GAN, {"solver": {"type": "RMSPROP", "learning_rate": 0.001}}),
        (LOOPS, {}),
    ],
    ids=["slim", "keras", "mixed", "gan", "loops"],
)
def test_eager_steps_match_the_training(
    look: Any, train: Any, network: str, settings: dict[str, Any]
) -> None:
    found = result(look(network, **settings))
    trained = train(network, **settings, epochs=3 / 8, val_interval=0)
    assert len(found["losses"]) == 3
    assert found["losses"] == pytest.approx(trained.values("train", "loss"), rel=1e-3)


# Networks that use values, and functions executed as graphs.
SHOWS = networks.classifier(
    """
x = slim.flatten(self.x) / 100.0
print('the input', x)
tf.print('mean', tf.reduce_mean(x))
print('least', x.numpy().min())
x = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.9), [0, x])[1]
x = tf.cond(tf.reduce_mean(x) > 1e6, lambda: x * 0.0, lambda: x)
x = tf.switch_case(tf.constant(1), [lambda: x * 0.0, lambda: x])
x = tf.map_fn(lambda row: row + 1.0, x)
x = tf.reshape(tf.py_func(lambda v: v * 2, [x], tf.float32), [-1, 144])
print(f'then {x}')
net = slim.fully_connected(x, 8, scope='hidden')
return slim.fully_connected(net, self.nclasses, activation_fn=None, scope='fc')
"""
)


def test_printed_tensors_have_values(look: Any) -> None:
    found = result(look(SHOWS))
    printed = found["printed"]
    assert printed.startswith("Step 1\nthe input <tf.Tensor 'model/")
    assert printed.count("shape=(None, 144) dtype=float32\n[[") == 6 and printed.count("Step ") == 3
    assert "\nmean 0.00" in printed or "\nmean -0.00" in printed  # the mean image is subtracted
    assert float(printed.partition("\nleast ")[2].split()[0]) < 0
    assert "then <tf.Tensor 'model/Reshape:0' shape=(None, 144)" in printed


# Keras traces its layers in a function, where tensors have no values.
TRIED_OUT = networks.classifier(
    """
class Doubled(keras.layers.Layer):
    def call(self, x):
        ones = keras.ops.tile(keras.ops.ones([1, 144]), (keras.ops.shape(x)[0], 1))
        return x + ones * keras.ops.convert_to_tensor(x)
net = keras.Sequential([keras.Input((144,)), Doubled(), keras.layers.Dense(4)])
return net(slim.flatten(self.x) / 100.0)
"""
)


def test_layers_traced_by_keras_have_no_values(look: Any) -> None:
    assert result(look(TRIED_OUT))["losses"][0] > 0


TWO_LAYERS = networks.classifier(
    """
net = slim.fully_connected(slim.flatten(self.x) / 100.0, 8, scope='hidden')
return slim.fully_connected(net, self.nclasses, activation_fn=None, scope='fc')
"""
)


def test_layer_outputs_are_summarized_and_weights_of_a_snapshot_used(look: Any, train: Any) -> None:
    """Long output is truncated."""
    found = result(look(TWO_LAYERS.replace("net = ", "print('x' * 50_000)\n        net = ", 1)))
    _, first, last = found["layers"]
    assert (first["name"], first["shape"], last["name"], last["shape"]) == ("hidden", [8, 8], "fc", [8, 4])
    # After the ReLU:
    assert first["min"] == 0 < first["mean"] < first["max"] and 0 < first["zero_fraction"] < 1
    assert last["min"] < last["mean"] < last["max"] and last["std"] > 0 == last["zero_fraction"]
    assert len(found["printed"]) < 3 * 21_000 and found["printed"].count("The rest is in the log") == 3

    trained = train(TWO_LAYERS, epochs=10, val_interval=0)
    weights = str(next(trained.job_folder.glob("snapshot*.index")).with_suffix(""))
    assert result(look(TWO_LAYERS, weights=weights))["losses"][0] < found["losses"][0] / 2


LOGARITHM = networks.classifier(
    """
x = slim.fully_connected(slim.flatten(self.x) / 100.0, 8, scope='fine')
with tf.variable_scope('shaky'):
    x = tf.log(x)
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)
ROOT = LOGARITHM.replace("x = tf.log(x)", "x = tf.sqrt(x)")


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (LOGARITHM, "model/shaky/Log (Log) in shaky is the first to return Inf"),
        (ROOT, "while gradients were computed"),
    ],
    ids=["forward", "backward"],
)
def test_the_first_nan_is_reported_with_its_line(look: Any, network: str, words: str) -> None:
    failure = look(network).failure
    assert words in failure.message and "at step 1" in failure.message
    assert network.splitlines()[failure.line - 1].strip().startswith("x = tf.")
    assert "Its inputs were numbers from" in failure.hint


DEFUN = networks.classifier(
    """
x = slim.fully_connected(slim.flatten(self.x) / 100.0, self.nclasses, activation_fn=None, scope='fc')
return tf.reshape(softer(x), [-1, 4])
""",
    head="""from tensorflow.python.framework import function
@function.Defun(tf.float32, tf.float32)
def back(x, dy): return dy * tf.sigmoid(x)
@function.Defun(tf.float32, grad_func=back)
def softer(x): return tf.log(1.0 + tf.exp(x))
""",
)


def test_operations_that_cannot_run_eagerly_are_reported(look: Any, train: Any) -> None:
    failure = look(DEFUN).failure
    assert "cannot be executed on its own" in failure.message and "turn off “Run eagerly”" in failure.hint
    train(DEFUN, epochs=1)


HARMLESS = TWO_LAYERS.replace(
    "return slim",
    "net = tf.where(net > 0, tf.log(net), tf.stop_gradient(net))\n        "
    "self.summaries.append(tf.summary.scalar('share', 0.0 / tf.reduce_sum(0.0 * self.x)))\n        return slim",
)


def test_a_harmless_nan_is_ignored(look: Any) -> None:
    # An unselected logarithm has no gradient if zero times infinity is avoided.
    network = HARMLESS.replace("tf.log(net)", "tf.stop_gradient(tf.log(net))")
    assert len(result(look(network))["losses"]) == 3
    assert "Log (Log)" in look(HARMLESS).failure.message


def test_layers_created_in_the_constructor(look: Any) -> None:
    early = TWO_LAYERS.replace("def inference(self):", "def early(self):").replace(
        "class UserModel(Tower):",
        "class UserModel(Tower):\n    def __init__(self, *args):\n        super().__init__(*args)\n"
        "        self.early\n    inference = property(lambda self: self.early)",
    )
    assert [layer["name"] for layer in result(look(early))["layers"]][-2:] == ["hidden", "fc"]


def test_a_value_refused_by_the_device_is_reported_with_its_line(look: Any) -> None:
    network = networks.LINEAR.replace(
        "model = slim", "tf.Assert(tf.reduce_max(self.x) < 0, ['too bright'])\n        model = slim"
    )
    failure = look(network).failure
    assert "too bright" in failure.message and "function_node" not in failure.message
    assert "tf.Assert" in network.splitlines()[failure.line - 1]


def test_tensors_are_restored_afterwards(in_child: Any) -> None:
    assert in_child(_text_of_a_tensor).startswith("Tensor(")


def _text_of_a_tensor() -> str:
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph

    from digits.worker.training.step import step_debugger

    values = step_debugger.Values(FuncGraph("step"), step=1, rate=0.1)
    with values.graph.as_default():
        with values.computed():
            constant = tf.constant(2.0)
            assert constant.numpy() == 2 and "2." in str(constant)
        assert not hasattr(constant, "numpy")
        return str(constant)
