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


# Its gradients flow through a loop, a branch and a function, and one of its losses is in a collection.
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
net = tf.reshape(tf.map_fn(tf.square, self.x / 100.0), [-1, 144]) * tf.convert_to_tensor(seen)
net = slim.fully_connected(net, 8, scope='hidden', weights_regularizer=slim.l2_regularizer(0.01))
net = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.tanh(v)), [0, net])[1]
net = tf.cond(tf.reduce_mean(net) > 1e6, lambda: net * 0.0, lambda: tf.square(net))
return slim.fully_connected(doubled(net), self.nclasses, activation_fn=None, scope='fc')
"""
)
IN_COLLECTIONS = LOOPS.replace(
    "return digits.classification_loss(self.inference, self.y)",
    "tf.losses.sparse_softmax_cross_entropy(tf.cast(self.y, tf.int32), self.inference)\n"
    "        return tf.losses.get_total_loss()",
)
PENALTY = networks.LINEAR.replace(
    "return digits.classification_loss(self.inference, self.y)",
    "loss = digits.classification_loss(self.inference, self.y)\n"
    "        slope, = tf.gradients(loss, tf.trainable_variables()[:1])\n"
    "        return loss + tf.reduce_sum(tf.square(slope))",
)


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        (
            networks.BATCH_NORM.replace("{arguments}", ""),
            {
                "solver": {"type": "ADAM", "learning_rate": 0.001},
                "augment": {"noise": 0.1},
                "batch_accumulation": 2,
                "batch_size": 4,
            },
        ),
        (networks.KERAS_LENET.replace("x = layers.Dropout(0.5)(x)", ""), {}),
        (LOOPS, {}),
        (IN_COLLECTIONS, {}),
        (PENALTY, {}),
    ],
    ids=["slim", "keras", "loops", "collections", "penalty"],
)
def test_eager_steps_match_the_training(
    look: Any, train: Any, network: str, settings: dict[str, Any]
) -> None:
    found = result(look(network, **settings))
    trained = train(network, **settings, epochs=3 / 8, val_interval=0)
    assert len(found["losses"]) == 3
    assert found["losses"] == pytest.approx(trained.values("train", "loss"), rel=1e-3)


SHOWS = networks.classifier(
    """
x = slim.flatten(self.x) / 100.0
@tf.function
def doubled(v):
    print('in a function', v.numpy().shape)
    return v * 2.0
print('the input', doubled(x))
print('least', x.numpy().min())
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)


def test_printed_tensors_have_values(look: Any) -> None:
    """Long output is truncated."""
    printed = result(look(SHOWS))["printed"]
    assert printed.startswith("Step 1\nin a function (8, 144)\nthe input tf.Tensor(\n[[")
    assert printed.count("Step ") == 3
    assert float(printed.partition("\nleast ")[2].split()[0]) < 0
    long = result(look(SHOWS.replace("print('least'", "print('x' * 50_000)\n        print('least'")))[
        "printed"
    ]
    assert len(long) < 21_000 and "The rest is in the log" in long


BROKEN = networks.LINEAR.replace(
    "model = slim", "tf.matmul(self.x[0, 0], self.x[0, 0])\n        model = slim"
)
ASSERTS = networks.LINEAR.replace(
    "model = slim", "tf.Assert(tf.reduce_max(self.x) < 0, ['too bright'])\n        model = slim"
)
PLACEHOLDER = networks.LINEAR.replace("model = slim", "tf.placeholder(tf.float32, [])\n        model = slim")
INPUTS = networks.LINEAR.replace("model = slim", "self.x.op.inputs\n        model = slim")
SLOPE = networks.LINEAR.replace(
    "return digits", "tf.gradients(tf.reduce_sum(self.inference), self.x)\n        return digits"
)


@pytest.mark.parametrize(
    ("network", "culprit", "words"),
    [
        (BROKEN, "tf.matmul", "Matrices of shapes [12,1] and [12,1]"),
        (ASSERTS, "tf.Assert", "too bright"),
        (PLACEHOLDER, "tf.placeholder", "Run eagerly"),
        (INPUTS, "op.inputs", "Run eagerly"),
        (SLOPE, "tf.gradients", "Run eagerly"),
    ],
    ids=["shapes", "assertion", "placeholder", "inputs", "gradients"],
)
def test_an_error_names_its_line(look: Any, network: str, culprit: str, words: str) -> None:
    failure = look(network).failure
    assert words in f"{failure.message} {failure.hint}"
    assert culprit in network.splitlines()[failure.line - 1]


GROUPED = networks.classifier(
    """
net = keras.layers.Conv2D(4, 3, groups=2)(tf.tile(self.x / 100.0, [1, 1, 1, 2]))
return keras.layers.Dense(self.nclasses)(slim.flatten(net))
"""
)


def test_what_only_a_graph_can_run_is_reported(look: Any) -> None:
    failure = look(GROUPED).failure
    assert "grouped convolutions" in failure.message and "Run eagerly" in failure.hint


def test_a_loss_that_is_no_number_is_reported(look: Any) -> None:
    network = networks.LINEAR.replace("return slim", "model = tf.log(model * 0.0)\n        return slim")
    failure = look(network).failure
    assert "not a number (NaN) at the first step" in failure.message and "Detect NaN/Inf" in failure.hint


def test_weights_of_a_snapshot_are_used(look: Any, train: Any) -> None:
    trained = train(networks.LINEAR, epochs=10, val_interval=0)
    weights = str(next(trained.job_folder.glob("snapshot*.index")).with_suffix(""))
    first = result(look(networks.LINEAR))["loss"]
    assert result(look(networks.LINEAR, weights=weights))["loss"] < first / 2
