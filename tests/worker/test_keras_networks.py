"""Networks in the style of Keras 3: losses, metrics, constraints and unsupported calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.core.events import Built
from tests.worker import networks
from tests.worker.conftest import snapshot

SGD = {"type": "SGD", "learning_rate": 0.05}

# A model created once for all stages, with all three kinds of added losses.
HELD_BACK = """
class Held(keras.layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.abs(x)))
        return x

net = keras.Sequential([
    keras.layers.Flatten(),
    keras.layers.Dense(6, activation='relu', kernel_regularizer='l2', activity_regularizer='l2', name='hidden'),
    Held(),
    keras.layers.Dense(4, kernel_regularizer='l1'),
])

class UserModel(Tower):
    @model_property
    def inference(self):
        return net(self.x / 100.0)

    @model_property
    def loss(self):
        data = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(self.y, self.inference, from_logits=True))
        own = tf.add_n(net.losses)
        self.summaries += [tf.summary.scalar('data', data), tf.summary.scalar('own', own)]
        return data
"""


@pytest.mark.parametrize(
    "loss",
    [
        "data + own",
        pytest.param("data + sum(net.losses[:1]) + sum(net.losses[1:])", marks=pytest.mark.nightly),
    ],
)
def test_losses_of_a_model_shared_by_stages_are_separate_and_count_once(train: Any, loss: str) -> None:
    left, added = (
        train(HELD_BACK.replace("return data", f"return {text}"), name=name, epochs=1, solver=SGD)
        for name, text in (("left", "data"), ("added", loss))
    )
    for stage in ("train", "val"):
        data, own, whole = (np.array(left.values(stage, name)) for name in ("data", "own", "loss"))
        assert (own > 0.01).all()
        assert whole == pytest.approx(data + own, rel=1e-5)
    # Those that the network adds itself count once.
    assert added.values("train", "loss") == pytest.approx(left.values("train", "loss"), rel=1e-5)
    first, second = (snapshot(item.job_folder, "snapshot_1.ckpt") for item in (left, added))
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


COUNTED = """
outside = keras.metrics.Mean()
kept = {}

class UserModel(Tower):
    @model_property
    def inference(self):
        return keras.layers.Dense(4)(keras.layers.Flatten()(self.x / 100.0))

    @model_property
    def loss(self):
        inside = keras.metrics.SparseCategoricalAccuracy()
        if not kept:
            kept['average'] = keras.metrics.Mean()
        average = kept['average']
        loss = digits.classification_loss(self.inference, self.y)
        inside.update_state(self.y, self.inference)
        for metric in (outside, average):
            metric.update_state(loss)
        self.summaries += [
            tf.summary.scalar('right', digits.classification_accuracy(self.inference, self.y)),
            tf.summary.scalar('inside', inside.result()),
            tf.summary.scalar('outside', outside.result()),
            tf.summary.scalar('average', average.result()),
        ]
        return loss
"""


def test_keras_metrics_measure_a_batch_and_are_not_weights(train: Any, visualize: Any) -> None:
    outcome = train(COUNTED, epochs=2, solver=SGD)
    for stage in ("train", "val"):
        assert outcome.values(stage, "inside") == pytest.approx(outcome.values(stage, "right"), rel=1e-5)
        for name in ("outside", "average"):
            assert outcome.values(stage, name) == pytest.approx(outcome.values(stage, "loss"), rel=1e-5)
    assert visualize(COUNTED).of(Built)[0].parameters == 144 * 4 + 4


CONSTRAINED = networks.classifier(
    """
x = slim.flatten(self.x / 10.0)
x = keras.layers.Dense(6, activation='relu', kernel_constraint=keras.constraints.MaxNorm(0.5))(x)
w = tf.get_variable('w', [6, 6], constraint=lambda w: tf.clip_by_value(w, -0.2, 0.2))
return tf.layers.dense(tf.matmul(x, w), self.nclasses, kernel_constraint=keras.constraints.NonNeg(), name='out')
"""
)


def test_constraints_are_applied(train: Any) -> None:
    outcome = train(CONSTRAINED, epochs=1, solver=SGD)
    weights = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert np.linalg.norm(weights["model/dense/kernel"], axis=0).max() == pytest.approx(0.5, rel=1e-3)
    assert np.abs(weights["model/w"]).max() == pytest.approx(0.2)
    assert weights["model/out/kernel"].min() == 0


CLEARED = """
keras.utils.clear_session()
tf.keras.backend.clear_session()
dense = keras.Sequential([keras.Input((144,)), keras.layers.Dense(4)])
""" + networks.classifier("return dense(slim.flatten(self.x / 100.0))")


def test_clearing_the_session_keeps_variables(train: Any) -> None:
    outcome = train(CLEARED, epochs=1)
    assert "sequential/dense/kernel" in snapshot(outcome.job_folder, "snapshot_1.ckpt")


def test_a_variable_that_would_not_be_saved_is_reported(fail: Any) -> None:
    lost = "with tf.Graph().as_default():\n    dense = keras"
    failure = fail(CLEARED.replace("dense = keras", lost), epochs=1).failure
    assert "kernel" in failure.message
    assert "never saved" in failure.message


@pytest.mark.parametrize(
    ("line", "words", "hint"),
    [
        ("m.compile('sgd', 'mse'); m.fit(np.zeros([4, 144]), np.zeros([4, 4]))", "fit()", "DIGITS trains"),
        ("x = m.predict(x)", "predict()", "model(x)"),
        ("m.add_metric(tf.reduce_mean(m(x)), name='mean')", "add_metric()", "tf.summary.scalar"),
        ("x = keras.layers.LSTM(4, stateful=True)(x[:, None])", "stateful=True", "stateful=True"),
    ],
)
def test_unsupported_model_calls_are_reported_with_their_line(
    visualize: Any, line: str, words: str, hint: str
) -> None:
    body = f"x = slim.flatten(self.x)\nm = keras.Sequential([keras.layers.Dense(4)])\n{line}\nreturn m(x)"
    failure = visualize(networks.classifier(body)).failure
    assert words in failure.message
    assert hint in failure.hint
    assert failure.line == 7
