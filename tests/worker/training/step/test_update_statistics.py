"""The norm of the gradients and the relative size of updates, as metrics of a training."""

from __future__ import annotations

from typing import Any

import numpy as np

from digits.core.events import Measured
from digits.core.recipe import Solver
from tests.worker import networks
from tests.worker.conftest import snapshot
from tests.worker.lazily import tf, timeline, update_statistics

RATE = 0.05
# Two layers, of which the second has a bias, and the norms of their weights before each step.
LAYERS = networks.classifier(
    """
x = slim.flatten(self.x / 100.0)
first = tf.get_variable('first/weights', [x.shape[1], 8])
second = tf.get_variable('second/weights', [8, self.nclasses])
bias = tf.get_variable('second/bias', [self.nclasses], initializer=tf.zeros_initializer())
for name, weights in (('first', first), ('second', second)):
    self.summaries.append(tf.summary.scalar(f'norm_{name}', tf.norm(weights)))
return x @ first @ second + bias
"""
)


def test_updates_are_measured_at_an_interval_and_do_not_change(train: Any, in_child: Any) -> None:
    settings = {"epochs": 3, "solver": Solver(type="SGD", learning_rate=RATE), "snapshot_interval": 3}
    measured, plain = (
        train(LAYERS, name=str(wanted), gradient_metrics=wanted, **settings) for wanted in (True, False)
    )
    rows = [row for row in measured.of(Measured) if row.stage == "train" and "gradient_norm" in row.values]
    assert [row.step for row in rows] == [4, 8, 12, 16, 20, 24]
    for row in rows:
        ratios = {name: row.values[f"update_ratio/{name}"] for name in ("first", "second")}
        assert sum(name.startswith("update_ratio/") for name in row.values) == 2
        # An update of plain gradient descent is the gradient times the learning rate; biases are not in the ratios.
        squares = [(ratios[name] * row.values[f"norm_{name}"] / RATE) ** 2 for name in ratios]
        assert 0 < sum(squares) <= row.values["gradient_norm"] ** 2 * 1.001
        assert sum(squares) > 0.5 * row.values["gradient_norm"] ** 2
    assert not any("gradient_norm" in row.values for row in plain.of(Measured))
    weights = [snapshot(outcome.job_folder, "snapshot_3.ckpt") for outcome in (measured, plain)]
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], rtol=1e-5, atol=1e-6, err_msg=name)
    # A tower of layers shows some of them, the first and the last included.
    shown = in_child(_shown_layers, 100)
    assert (len(shown), shown[0], shown[-1]) == (24, "0", "99")
    assert in_child(_long_name) == "x" * 51


def test_short_trainings_have_short_intervals(in_child: Any) -> None:
    """There are at least 32 measurements unless they would be less than 4 steps apart, and each ends a row."""
    totals = [1, 110, 128, 255, 256, 511, 512, 1023, 1024, 100_000]
    assert in_child(_intervals, totals) == [4, 4, 4, 4, 8, 8, 16, 16, 32, 32]
    assert in_child(_measured_steps, 110) == list(range(4, 111, 4))
    assert in_child(_measured_steps, 1023) == list(range(16, 1024, 16))


def _intervals(totals: list[int]) -> list[int]:
    return [timeline.measuring_interval(total) for total in totals]


def _measured_steps(total: int) -> list[int]:
    steps = [0]
    while (step := timeline.next_measured(steps[-1], timeline.measuring_interval(total))) <= total:
        steps.append(step)
    return steps[1:]


def _shown_layers(count: int) -> list[str]:
    variables = [tf.Variable(tf.zeros([2, 2]), name=f"{number}/weights") for number in range(count)]
    return list(update_statistics._layers(variables))


def _long_name() -> str:
    (name,) = update_statistics._layers([tf.Variable(tf.zeros([2, 2]), name="x" * 90 + "/weights")])
    return name
