"""Metrics and predictions of segmentation, compared with their definitions."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import base64, io
import numpy as np, tensorflow as tf
from PIL import Image
from digits.data.images.images import Geometry
from digits.data.targets.mask import Mask
from digits.kinds.segmentation.network.metrics import Metrics
from digits.kinds.segmentation.network.targets import Targets

names = ["background", "often", "never", "wrong"]
target = Mask.of(names, 5, 6)
metrics = Metrics(target)
chance = np.random.default_rng(1)
y = chance.choice([0, 1, 255], (30, 5, 6), p=[0.6, 0.3, 0.1])
scores = chance.normal(size=(30, 5, 6, 4)).astype(np.float32)
scores[..., 2] = -9
predicted = scores.argmax(-1)
counted = y != 255
each = []
for index in range(4):
    both = ((y == index) & (predicted == index) & counted).sum()
    either = (((y == index) | (predicted == index)) & counted).sum()
    each.append(both / either if either else 0)
expected = {f"iou/{name}": value for name, value in zip(names, each)}
expected |= {"miou": np.mean([each[0], each[1], each[3]]), "pixel_accuracy": (y == predicted)[counted].mean()}

def of(batches, compiled=False):
    @tf.function(autograph=False, jit_compile=compiled)
    def evaluate(scores, y):
        return metrics.statistics(scores, y), metrics.record_values(scores, y)
    sums, values = {}, []
    for part in np.array_split(np.arange(30), batches):
        statistics, found = evaluate(tf.constant(scores[part]), tf.constant(y[part]))
        values.append(found.numpy())
        for name, value in statistics.items():
            sums[name] = sums.get(name, 0.0) + float(tf.reduce_sum(value))
    found = metrics.summarize({name: value / 30 for name, value in sums.items()})
    return found | metrics.summarize_records(np.concatenate(values))

for found in (of(1), of(7), of(1, True)):
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name in expected:
        assert np.isclose(found[name], expected[name], rtol=1e-5), (name, found, expected)
assert set(metrics.summarize_records(np.zeros((0, 8), np.float32)).values()) == {0.0}
# A network with another purpose has none.
for other in (tf.zeros([2, 9]), tf.zeros([2, 5, 6, 3]), tf.zeros([2, 3, 3, 4])):
    assert metrics.statistics(other, tf.constant(y[:2])) == {} == metrics.summarize({})
    assert metrics.record_values(other, tf.constant(y[:2])) is None

targets = Targets(target)
found = targets.predict({"logits": tf.constant(scores), "other": tf.zeros([30, 4])})
assert np.array_equal(found.numpy(), predicted) and targets.accepts(found.shape[1:])
assert not targets.accepts([4]) and "[N, 4]" in targets.refuse([4]).message

def described(found, geometry):
    answer = targets.describe(found, 5, geometry)
    image = Image.open(io.BytesIO(base64.b64decode(answer["mask"].partition(",")[2])))
    return answer["classes"], np.asarray(image)

one = np.zeros((5, 6), np.int32)
one[:, 3:] = 1
classes, shown = described(one, Geometry((12, 20), 6, 5, "squash"))
assert shown.shape == (20, 12) and (shown[:, 6:] == 1).all() and (shown[:, :6] == 0).all()
assert [(item["name"], item["percent"]) for item in classes] == [("background", 50), ("often", 50)]
assert classes[0]["color"] == "#000000"
# A network that sees a crop: the rest of the image has no class.
classes, shown = described(np.ones((3, 4), np.int32), Geometry((6, 5), 6, 5, "squash"))
assert (shown == 1).sum() == 12 and (shown == 255).sum() == 18 and (shown[1:4, 1:5] == 1).all()
assert [item["percent"] for item in classes] == [100]
"""


def test_metrics_and_predictions_match_their_definitions(run_program: Callable[[str], None]) -> None:
    run_program(PROGRAM)
