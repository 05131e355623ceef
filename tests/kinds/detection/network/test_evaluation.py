"""Evaluations of detections: ignored regions as in COCO, and images with many objects."""

from __future__ import annotations

from collections.abc import Callable

MATCHING = """
import contextlib, io
import numpy as np
from digits.data.targets.box_matching import FALSE, IGNORED_BOX, IN_IGNORED, match
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

def coco_status(detections, objects):
    '''Whether COCO counts each detection as found (1), false (0) or ignored (-1) at an IoU of 0.5.'''
    classes = sorted({*objects[objects[:, 4] >= 0, 4].astype(int).tolist(), 0, 1})
    box = lambda row: [float(row[0]), float(row[1]), float(row[2] - row[0]), float(row[3] - row[1])]
    truth = COCO()
    annotations = []
    for row in objects:
        for category in classes if row[4] == IGNORED_BOX else [int(row[4])]:
            annotations.append({"id": len(annotations) + 1, "image_id": 1, "category_id": category, "bbox": box(row),
                "area": float(np.prod(box(row)[2:])), "iscrowd": int(row[4] == IGNORED_BOX)})
    truth.dataset = {"images": [{"id": 1}], "categories": [{"id": each} for each in classes], "annotations": annotations}
    found = {}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        results = truth.loadRes([{"image_id": 1, "category_id": int(row[5]), "bbox": box(row), "score": float(row[4])}
            for row in detections])
        evaluation = COCOeval(truth, results, "bbox")
        evaluation.params.areaRng = evaluation.params.areaRng[:1]
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        for image in filter(None, evaluation.evalImgs):
            for number, matched, ignored in zip(image["dtIds"], image["dtMatches"][0], image["dtIgnore"][0]):
                found[number - 1] = -1 if ignored else int(matched > 0)
    return [found[number] for number in range(len(detections))]

random = np.random.default_rng(1)
statuses = set()
for _ in range(300):
    low = random.integers(0, 30, (12, 2))
    boxes = np.concatenate([low, low + random.integers(4, 20, (12, 2))], 1).astype(np.float32)
    objects = np.concatenate([boxes[:6], random.choice([0, 1, IGNORED_BOX], (6, 1))], 1).astype(np.float32)
    moved = np.concatenate([boxes[:6] + random.integers(-3, 4, (6, 4)), boxes[6:]])
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    scores = random.permutation(12)[:, None] / 12 + 0.01
    detections = np.concatenate([moved, scores, random.integers(0, 2, (12, 1))], 1).astype(np.float32)
    own = [-1 if each == IN_IGNORED else int(each != FALSE) for each in match(detections, objects)]
    assert own == coco_status(detections, objects), (detections, objects)
    statuses |= set(own)
assert statuses == {-1, 0, 1}
"""

CROWDS = """
import numpy as np
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import Boxes
from digits.kinds.detection.network.evaluation import Evaluation
from digits.kinds.detection.network.metrics import Metrics
from digits.kinds.network.evaluation import SplitResults

target = Boxes.of(["bee"], 2)
metrics = Metrics(target)

def results_of(detections, objects):
    values = np.concatenate([np.reshape(detections, [1, -1]), np.reshape(objects, [1, -1])], 1).astype(np.float32)
    return SplitResults(1, values=values)

# One bee that is found, and a large crowd with three confident detections of single bees.
objects = [[0, 0, 10, 10, 0], [20, 0, 100, 100, IGNORED_BOX]]
inside = [[30 + 20 * k, 10, 40 + 20 * k, 20, 0.9, 0] for k in range(3)]
results = results_of([[0, 0, 10, 10, 0.3, 0], *inside], objects)
evaluation = Evaluation(target)
details = evaluation.details(results)["detections"]
assert details["false"] == [0] * 19 and details["hits"][0] == 1
assert details["best"] == 0.05, details["best"]  # the only bee counts
assert details["matrices"][0] == [[1, 0], [0, 0]]
assert evaluation.errors(results).tolist() == [0.0]
assert metrics.summarize_records(results.values)["map"] > 0.99
# Detections that are mostly outside are false.
outside = [[5 + 20 * k, 90, 21 + 20 * k, 104, 0.9, 0] for k in range(1)]
assert Evaluation(target).details(results_of(outside, objects))["detections"]["false"][0] == 1
"""

MANY = """
import numpy as np, tensorflow as tf
from digits.data.targets.box_matching import count_detections
from digits.data.targets.boxes import Boxes
from digits.kinds.detection.network.evaluation import Evaluation
from digits.kinds.detection.network.metrics import Metrics
from digits.kinds.detection.network.targets import Targets
from digits.kinds.network.evaluation import SplitResults

assert [count_detections(most) for most in (0, 1, 100, 101, 150, 200, 2000)] == [100, 100, 100, 200, 200, 200, 2000]
for count in (99, 101, 150, 1000):
    target = Boxes.of(["bee"], count)
    place = np.arange(count)
    left, top = 11 * (place % 40), 11 * (place // 40)
    edges = np.stack([left, top, left + 9, top + 9], 1)
    objects = np.concatenate([edges, np.zeros((count, 1))], 1).astype(np.float32)[None]
    scores = 1 - place[:, None] / 2000
    detections = np.concatenate([edges, scores, np.zeros((count, 1))], 1).astype(np.float32)[None]
    metrics = Metrics(target)
    values = metrics.record_values(tf.constant(detections), tf.constant(objects)).numpy()
    assert metrics.summarize_records(values) == {"map": 1.0, "map50": 1.0}, count
    details = Evaluation(target).details(SplitResults(1, values=values))["detections"]
    assert (details["limit"], details["most_objects"]) == (count, count)
    assert not Targets(target).remark([count, 6])
    assert "up to" in Targets(target).remark([count - 1, 6])
"""


def test_detections_match_as_in_coco(run_program: Callable[[str], None]) -> None:
    run_program(MATCHING)


def test_detections_in_crowds_are_ignored_everywhere(run_program: Callable[[str], None]) -> None:
    run_program(CROWDS)


def test_a_perfect_detector_of_many_objects_gets_a_map_of_1(run_program: Callable[[str], None]) -> None:
    run_program(MANY)
