"""Detection of NaN and infinity, and of the operation that produces them."""

from __future__ import annotations

from typing import Any

import pytest

from digits.core.events import Warned
from tests.worker import networks

# Divides by zero from the fourth step on, in a separate scope.
DIVIDES = networks.classifier(
    """
x = slim.fully_connected(slim.flatten(self.x) / 100.0, 8, scope='fine')
steps = tf.get_variable('steps', [], initializer=tf.zeros_initializer(), trainable=False)
with tf.variable_scope('shaky'), tf.control_dependencies([steps.assign_add(1.0 if self.is_training else 0.0)]):
    x = x / tf.maximum(4.0 - steps.read_value(), 0.0)
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
)


def test_the_first_operation_that_produces_nan_is_named(fail: Any) -> None:
    outcome = fail(DIVIDES, numerics_checks=True, val_interval=0, xla=True)
    failure = outcome.failure
    assert "model/shaky/truediv (RealDiv) in shaky" in failure.message
    assert "at step 4, at the learning rate 0.01" in failure.message
    assert failure.line == next(
        number for number, line in enumerate(DIVIDES.splitlines(), 1) if "x = x / tf.maximum" in line
    )
    assert "division by zero" in failure.hint
    assert ["without XLA" in event.message for event in outcome.of(Warned)] == [True]


def test_gradients_are_checked_too(fail: Any) -> None:
    network = networks.classifier(
        """
x = slim.fully_connected(slim.flatten(self.x) / 100.0, 8, activation_fn=None, scope='fine')
with tf.name_scope('rooted'):
    x = tf.sqrt(tf.square(x) * 0.0)
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
"""
    )
    outcome = fail(network, numerics_checks=True, val_interval=0)
    assert "rooted" in outcome.failure.message
    assert "while gradients were computed" in outcome.failure.message


def test_checks_do_not_change_the_result_of_a_valid_network(train: Any, trained: Any) -> None:
    network = networks.BATCH_NORM.replace("{arguments}", "")
    plain = trained(network, name="plain", epochs=1)
    checked = train(network, name="checked", epochs=1, numerics_checks=True)
    assert checked.values("val", "loss") == pytest.approx(plain.values("val", "loss"), rel=1e-4)


def test_without_checks_the_loss_is_reported(fail: Any) -> None:
    outcome = fail(DIVIDES, val_interval=0)
    assert "loss became" in outcome.failure.message
    assert "Detect NaN/Inf" in outcome.failure.hint
    assert outcome.failure.remedy == {"rate_factor": "0.1"}
    assert "snapshots" not in outcome.failure.hint


def test_the_hint_names_the_snapshots_that_exist(fail: Any) -> None:
    loss = "digits.classification_loss(self.inference, self.y)"
    late = f"{loss} / tf.cast(tf.train.get_or_create_global_step() < 10, tf.float32)"
    outcome = fail(networks.LINEAR.replace(loss, late), epochs=3, val_interval=0, snapshot_interval=1)
    assert "loss became" in outcome.failure.message
    assert list(outcome.job_folder.glob("snapshot_1.ckpt.index"))
    assert "Earlier snapshots are still valid" in outcome.failure.hint
