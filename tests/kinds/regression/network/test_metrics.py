"""Regression metrics, compared with their formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import json, numpy as np, tensorflow as tf
from digits.data.images.images import Geometry
from digits.data.targets.numbers import Numbers
from digits.kinds.regression.network.metrics import Metrics
from digits.kinds.regression.network.targets import Targets
from digits.kinds.network.targets import UnsuitableOutput
GEOMETRY = Geometry((1, 1), 1, 1, "squash")

chance = np.random.default_rng(1)
y = np.stack([chance.normal(2000, 3, 90), chance.normal(0, 1e-3, 90)], 1).astype(np.float32)
predicted = (y + chance.normal(0, 1, y.shape) * [1, 5e-4]).astype(np.float32)
target = Numbers.of(["year", "tiny"], y.mean(0).astype(float).tolist(), y.std(0).astype(float).tolist())
metrics = Metrics(target)

def of(batches):
    sums, count = {}, 0
    for part in np.array_split(np.arange(90), batches):
        for name, values in metrics.statistics(tf.constant(predicted[part]), tf.constant(y[part])).items():
            sums[name] = sums.get(name, 0.0) + float(tf.reduce_sum(values))
        count += len(part)
    return metrics.summarize({name: value / count for name, value in sums.items()})

error = predicted.astype(np.float64) - y
variance = ((y - y.mean(0)) ** 2).sum(0)
expected = {
    "mae": np.abs(error).mean(),
    "rmse": np.sqrt((error**2).mean()),
    "r2": (1 - (error**2).sum(0) / variance).mean(),
}
whole, parts = of(1), of(7)
for name in expected:
    assert np.isclose(whole[name], expected[name], rtol=1e-3), (name, whole, expected)
    assert np.isclose(parts[name], whole[name], rtol=1e-4), (name, parts, whole)

one = Metrics(Numbers.of(["n"], [4.0], [0.0]))
constant = tf.constant([[4.0], [4.0]])
def only(output):
    return one.summarize({k: float(tf.reduce_mean(v)) for k, v in one.statistics(output, constant).items()})
assert only(constant)["r2"] == 1 and only(constant + 1)["r2"] == 0
assert only(tf.constant([4.0, 4.0]))["mae"] == 0  # an output of shape [N]
assert one.statistics(tf.zeros([2, 8]), constant) == {} and one.summarize({}) == {}

targets = Targets(target)
assert targets.describe(np.array([1.0, 2.0]), 5, GEOMETRY) == [["year", 1.0], ["tiny", 2.0]]
assert targets.predict({"other": tf.zeros([3, 9]), "numbers": tf.ones([3, 2])}).shape == [3, 2]
try:
    targets.check(9, None)
except UnsuitableOutput as error:
    assert "[N, 9]" in error.message and "2 targets" in error.message
else:
    raise SystemExit("9 columns are no predictions of 2 numbers")
"""


def test_metrics_match_their_formulas_for_any_scale_and_batch_size(
    run_program: Callable[[str], None],
) -> None:
    run_program(PROGRAM)
