"""Metrics and predictions of object detection, on cases with known results."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import numpy as np, tensorflow as tf
from digits.data.images.images import Geometry
from digits.data.targets.boxes import Boxes
from digits.kinds.detection.network.metrics import Metrics, mean_average_precision
from digits.kinds.detection.network.targets import Targets

target = Boxes.of(["cat", "dog", "cow"], 3)
none = [-1.0] * 5
y = np.array([
    [[10, 10, 30, 30, 0], [40, 40, 60, 60, 1], none],
    [[0, 0, 20, 10, 0], none, none],
    [none, none, none],
], np.float32)
perfect = np.array([
    [[10, 10, 30, 30, 0.9, 0], [40, 40, 60, 60, 0.8, 1]],
    [[0, 0, 20, 10, 0.7, 0], [0, 0, 0, 0, 0, 0]],
    [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
], np.float32)
metrics = Metrics(target)

def of(outputs, batches=1, true=y):
    parts = np.array_split(np.arange(len(true)), batches)
    values = [metrics.record_values(tf.constant(outputs[part]), tf.constant(true[part])).numpy() for part in parts]
    return metrics.summarize_records(np.concatenate(values))

def near(found, whole, half):
    assert np.isclose(found["map"], whole, atol=1e-3) and np.isclose(found["map50"], half, atol=1e-3), found

near(of(perfect), 1, 1)
assert of(perfect, 3) == of(perfect)  # independent of the batches
near(of(np.zeros_like(perfect)), 0, 0)  # no detections
near(of(perfect, true=np.full_like(y, -1)), 0, 0)  # no objects
near(metrics.summarize_records(np.zeros((0, 27), np.float32)), 0, 0)  # no records
nan = perfect.copy()
nan[0, 0, :4] = np.nan
assert of(nan)["map"] < 1
# An IoU of 0.75 is enough for six of the ten thresholds, 0.5 to 0.75.
shifted = perfect.copy()
shifted[0, 1, 2] = 55
near(of(shifted), (1 + 0.6) / 2, 1)
# A confident false positive before both cats: the precision is 1/2 and 2/3, so 2/3 at all recalls.
wrong = perfect.copy()
wrong[2, 0] = [1, 1, 9, 9, 0.99, 0]
near(of(wrong), (2 / 3 + 1) / 2, (2 / 3 + 1) / 2)
# Detections of another class do not count, and neither do classes without objects.
other = perfect.copy()
other[0, 1, 5] = 2
near(of(other), 0.5, 0.5)
# Resampling images, also with repetitions, is equivalent to resampling their values.
values = metrics.record_values(tf.constant(wrong), tf.constant(y)).numpy()
for places in ([0, 1, 2], [2, 0, 0], [1, 1, 1], [2, 2, 2]):
    assert metrics.resampler(values)(np.array(places)) == metrics.summarize_records(values[places]), places
# A region to ignore around that false positive: it is neither right nor wrong. Objects in a region still count.
ignoring = y.copy()
ignoring[2, 1] = [0, 0, 12, 12, -2]
near(of(wrong, true=ignoring), 1, 1)
near(of(perfect, true=ignoring), 1, 1)
ignoring[1, 1] = [0, 0, 40, 40, -2]
near(of(perfect, true=ignoring), 1, 1)
near(of(other, true=ignoring), 0.5, 0.5)
wrong[2, 0, :4] = [20, 20, 29, 29]  # beside the region
near(of(wrong, true=ignoring), (2 / 3 + 1) / 2, (2 / 3 + 1) / 2)
only = np.full_like(y, -1)
only[:, 0] = [0, 0, 12, 12, -2]
near(of(perfect, true=only), 0, 0)
assert metrics.record_values(tf.zeros([3, 7]), tf.constant(y)) is None

targets = Targets(target)
outputs = {"maps": tf.zeros([1, 4, 6]), "boxes": tf.constant(perfect[:1])}
predicted = targets.predict(outputs)
assert predicted.shape == (1, 2, 6) and targets.accepts([2, 6]) and not targets.accepts([6])
assert np.array_equal(targets.predict([tf.zeros([1, 3]), tf.constant(perfect)]), perfect)
geometry = Geometry((200, 100), 100, 100, "squash")
found = targets.describe(predicted[0].numpy(), 5, geometry)
assert [(item["label"], item["score"], item["box"]) for item in found] == [
    ("cat", 0.9, [20, 10, 60, 30]), ("dog", 0.8, [80, 40, 120, 60])
]
assert len({item["color"] for item in found}) == 2
beyond = np.array([[-50, -50, 500, 20, 0.5, 2], [0, 0, 9, 9, np.nan, 0], [0, 0, 9, 9, 0.4, 7]], np.float32)
assert [item["box"] for item in targets.describe(beyond, 5, geometry)] == [[0, 0, 200, 20]]
assert "[N, K, 6]" in str(targets.refuse([10]))
"""


def test_metrics_and_predictions(run_program: Callable[[str], None]) -> None:
    run_program(PROGRAM)
