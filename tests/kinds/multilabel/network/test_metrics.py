"""Multi-label metrics, compared with their definitions."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import numpy as np, tensorflow as tf
from digits.data.images.images import Geometry
from digits.data.targets.label_set import LabelSet
from digits.kinds.multilabel.network.metrics import Metrics, average_precision
from digits.kinds.multilabel.network.targets import Targets
from digits.kinds.network.targets import UnsuitableOutput
GEOMETRY = Geometry((1, 1), 1, 1, "squash")

def by_definition(scores, true):
    # The precision at each threshold times the increase in recall, from the highest threshold on.
    total, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        hits = (chosen & true).sum()
        total += hits / chosen.sum() * (hits / true.sum() - recall)
        recall = hits / true.sum()
    return total

chance = np.random.default_rng(1)
for count, ties in ((1, False), (7, True), (50, False), (300, True)):
    scores = chance.normal(size=count).astype(np.float32)
    scores = np.round(scores) if ties else scores
    true = chance.random(count) < 0.3
    true[0] = True
    assert np.isclose(average_precision(scores, true), by_definition(scores, true)), count
# The example in the documentation of scikit-learn.
four = np.array([0.1, 0.4, 0.35, 0.8], np.float32), np.array([False, False, True, True])
assert np.isclose(average_precision(*four), 0.8333333)

labels = ["always", "never", "often", "seldom"]
target = LabelSet.of(labels, [1.0, 0.0, 0.5, 0.1], [0.0, 0.0, 0.5, 0.3])
metrics = Metrics(target)
y = np.stack([np.ones(90), np.zeros(90), chance.random(90) < 0.5, chance.random(90) < 0.1], 1).astype(np.float32)
logits = (2 * y - 1 + chance.normal(0, 1.5, y.shape)).astype(np.float32)

def of(batches):
    sums, values = {}, []
    for part in np.array_split(np.arange(90), batches):
        arguments = tf.constant(logits[part]), tf.constant(y[part])
        for name, each in metrics.statistics(*arguments).items():
            sums[name] = sums.get(name, 0.0) + float(tf.reduce_sum(each))
        values.append(metrics.record_values(*arguments).numpy())
    found = metrics.summarize({name: value / 90 for name, value in sums.items()})
    return found | metrics.summarize_records(np.concatenate(values))

predicted, true = logits >= 0, y > 0
both = (predicted & true).sum(0)
f1 = 2 * both / (predicted.sum(0) + true.sum(0))
present = [0, 2, 3]
expected = {
    "f1": 2 * both.sum() / (predicted.sum() + true.sum()),
    "f1_macro": f1[present].mean(),
    "map": np.mean([by_definition(logits[:, place], true[:, place]) for place in present]),
}
for batches in (1, 7):
    found = of(batches)
    assert found.keys() == expected.keys()
    for name in expected:
        assert np.isclose(found[name], expected[name], rtol=1e-5), (name, found, expected)

# Without records or positives, the metrics are defined.
assert metrics.summarize_records(np.zeros((0, 8), np.float32)) == {"map": 0, "f1_macro": 0}
assert metrics.summarize_records(np.zeros((3, 8), np.float32)) == {"map": 0, "f1_macro": 0}
assert metrics.summarize({"predicted": 0.0, "true": 0.0, "both": 0.0}) == {"f1": 0}
# A network with another purpose has none.
assert metrics.statistics(tf.zeros([2, 9]), tf.zeros([2, 4])) == {} == metrics.summarize({})
assert metrics.record_values(tf.zeros([2, 9]), tf.zeros([2, 4])) is None

targets = Targets(target)
found = targets.predict({"other": tf.zeros([3, 9]), "logits": tf.zeros([3, 4])})
assert found.shape == [3, 4] and np.all(found.numpy() == 0.5)
assert targets.describe(np.array([0.25, 1.0, 0.0, 0.5]), 2, GEOMETRY) == [
    ["never", 100.0], ["seldom", 50.0], ["always", 25.0], ["often", 0.0]
]
class Unused:
    is_used = has_cross_entropy = False
for columns, loss in ((9, None), (4, Unused())):
    try:
        targets.check(columns, loss)
    except UnsuitableOutput as error:
        assert f"[N, {columns}]" in error.message
    else:
        raise SystemExit(f"{columns} columns are accepted")
targets.check(4, None)
single = Targets(LabelSet.of(["one"], [0.5], [0.5]))
assert single.predict(tf.zeros([5])).shape == [5, 1]
"""


def test_metrics_match_their_definitions_for_any_batch_size(run_program: Callable[[str], None]) -> None:
    run_program(PROGRAM)
