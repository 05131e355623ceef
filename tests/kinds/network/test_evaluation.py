"""The arithmetic of evaluations, compared with definitions on small cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage

Evaluate = Callable[..., tuple[Any, dict[str, Any], dict[str, Any]]]


@pytest.fixture
def evaluate(in_child: Callable[..., Any]) -> Evaluate:
    """Return a function that returns the errors, metrics and details of an evaluation."""
    return lambda kind, target, **values: in_child(_evaluate, kind, target, values)


def _evaluate(
    kind: str, target: Target, values: dict[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    import importlib

    from digits.kinds.network.evaluation import SplitResults

    module = importlib.import_module(f"digits.kinds.{kind}.network.evaluation")
    evaluation, results = module.Evaluation(target), SplitResults(**values)
    return evaluation.errors(results), evaluation.metrics(results), evaluation.details(results)


def test_classes(evaluate: Evaluate) -> None:
    chance = np.random.default_rng(3)
    names = [f"class {number}" for number in range(7)]
    predicted = chance.dirichlet(np.ones(7), 300).astype(np.float32)
    true = chance.integers(0, 6, 300)  # no record of the last class
    errors, metrics, details = evaluate(
        "classification", ClassIndex.of(names), records=300, predicted=predicted, targets=true
    )
    own, likely = predicted[np.arange(300), true], predicted.argmax(axis=1)
    assert errors == pytest.approx(1 - own)
    assert metrics["accuracy"] == pytest.approx((likely == true).mean())
    top = np.argsort(-predicted, axis=1)[:, :5]
    assert metrics["top5_accuracy"] == pytest.approx((top == true[:, None]).any(axis=1).mean())
    assert metrics["log_loss"] == pytest.approx(-np.log(own).mean(), rel=1e-5)
    for number, item in enumerate(details["classes"]):
        hits = ((likely == number) & (true == number)).sum()
        assert item["support"] == (true == number).sum()
        assert item["precision"] == pytest.approx(hits / max(1, (likely == number).sum()))
        assert item["recall"] == pytest.approx(hits / max(1, item["support"]))
    gap = 0.0
    confidence = predicted.max(axis=1)
    for low in np.arange(10) / 10:
        chosen = (confidence >= low) & (confidence < low + 0.1)
        if chosen.any():
            gap += chosen.mean() * abs(confidence[chosen].mean() - (likely == true)[chosen].mean())
    assert metrics["calibration_error"] == pytest.approx(gap, abs=1e-5)
    assert [curve["class"] for curve in details["curves"]] == list(range(6))
    curve = details["curves"][2]
    assert curve["hits"][0] == curve["positives"] == (true == 2).sum()
    assert curve["false_alarms"][30] == pytest.approx(((predicted[:, 2] >= 0.3) & (true != 2)).sum(), abs=1)


def test_pairs(evaluate: Evaluate) -> None:
    distances = np.array([0.1, 0.2, 0.9, 0.3, 0.8, 1.1], np.float32)
    matches = np.array([1, 1, 1, 0, 0, 0], np.float32)
    errors, _, details = evaluate(
        "pairs", ClassIndex.of(["different", "same"]), records=6, values=np.stack([distances, matches], 1)
    )
    assert errors.argmax() == 2  # the matching pair with a distance of 0.9
    (curve,) = details["curves"]
    assert curve["auc"] == pytest.approx(7 / 9)
    assert (curve["positives"], curve["negatives"]) == (3, 3)
    assert curve["thresholds"] == sorted(curve["thresholds"], reverse=True)
    for threshold, hits, alarms in zip(
        curve["thresholds"], curve["hits"], curve["false_alarms"], strict=True
    ):
        near = distances <= threshold
        assert (hits, alarms) == (near[:3].sum(), near[3:].sum())
    assert curve["thresholds"][curve["start"]] == pytest.approx(0.25, abs=0.01)


def test_images_numbers_and_masks(evaluate: Evaluate) -> None:
    psnr, ssim = np.array([20.0, 35.5, 28.0], np.float32), np.array([[0.4], [0.9], [0.7]], np.float32)
    errors, _, details = evaluate(
        "image_to_image", TargetImage.of(4, 4, 1), records=3, statistics={"psnr": psnr}, values=ssim
    )
    assert errors.argsort().tolist() == [1, 2, 0]
    assert [item["title"] for item in details["histograms"]] == ["PSNR (dB)", "SSIM"]
    assert all(sum(item["counts"]) == 3 for item in details["histograms"])

    true, predicted = (np.array(rows, np.float32)[:, None] for rows in ([1, 2, 4], [1, 3, 2]))
    errors, _, details = evaluate(
        "regression", Numbers.of(["age"], [0], [2]), records=3, predicted=predicted, targets=true
    )
    assert errors == pytest.approx([0, 0.5, 1])
    (item,) = details["numbers"]
    assert (item["mae"], item["bias"]) == pytest.approx((1, -1 / 3))
    assert item["rmse"] == pytest.approx((5 / 3) ** 0.5)
    assert item["r2"] == pytest.approx(1 - 5 / (14 / 3))

    # The pixels of each true class, predicted as each class; the second mask has one class only.
    values = np.array([[4, 1, 1, 2], [8, 2, 0, 0]], np.float32)
    errors, _, details = evaluate("segmentation", Mask.of(["a", "b"], 4, 4), records=2, values=values)
    assert errors == pytest.approx([1 - (4 / 6 + 2 / 4) / 2, 1 - (0.8 + 0) / 2])
    assert [item["iou"] for item in details["classes"]] == pytest.approx([12 / 16, 2 / 6])
    assert [item["precision"] for item in details["classes"]] == pytest.approx([12 / 13, 2 / 5])
    assert [item["recall"] for item in details["classes"]] == pytest.approx([12 / 15, 2 / 3])
    assert [item["support"] for item in details["classes"]] == [2, 1]
    assert details["pixels"] == [[12, 3], [1, 2]]

    # With many classes, only the pixels of intersections, unions and masks are stored.
    values = np.zeros((1, 3 * 30), np.float32)
    values[0, [0, 30, 60]] = 4, 8, 6
    names = [str(number) for number in range(30)]
    errors, _, details = evaluate("segmentation", Mask.of(names, 4, 4), records=1, values=values)
    assert errors == pytest.approx([0.5]) and "pixels" not in details
    assert details["classes"][0] == {"iou": 0.5, "precision": 4 / 6, "recall": 4 / 6, "support": 1}


def test_boxes(evaluate: Evaluate) -> None:
    target = Boxes.of(["car", "van"], 3)
    car, van, nothing = [0, 0, 10, 10, 0], [20, 20, 30, 30, 1], [0, 0, 0, 0, -1]
    objects = np.array([[car, van, nothing], [car, nothing, nothing]], np.float32)
    # Both cars are found; the van is taken for a car, and a van is seen where there is nothing.
    detections = np.array(
        [
            [[0, 0, 10, 9, 0.9, 0], [20, 20, 30, 30, 0.8, 0], [0, 0, 0, 0, 0, 0]],
            [[0, 0, 10, 10, 0.5, 0], [40, 40, 50, 50, 0.3, 1], [0, 0, 10, 10, np.nan, 0]],
        ],
        np.float32,
    )
    values = np.concatenate([detections.reshape(2, -1), objects.reshape(2, -1)], axis=1)
    errors, _, details = evaluate("detection", target, records=2, values=values)
    found = details["detections"]
    # Up to the best threshold, all but the last detection count.
    assert found["best"] == 0.35 and found["objects"] == 3
    assert errors == pytest.approx([1 - 2 / 4, 0])
    places = [found["thresholds"].index(threshold) for threshold in (0.05, 0.5, 0.85, 0.95)]
    assert [found["hits"][place] for place in places] == [2, 2, 1, 0]
    assert [found["false"][place] for place in places] == [2, 1, 0, 0]
    # The last row has no object, the last column no detection.
    assert found["matrices"][places[0]] == [[2, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert found["matrices"][places[3]] == [[0, 0, 2], [0, 0, 1], [0, 0, 0]]
    assert [item["support"] for item in details["classes"]] == [2, 1]
    assert details["classes"][0]["ap50"] > details["classes"][1]["ap50"] == 0


def test_labels(evaluate: Evaluate) -> None:
    true = np.array([[1, 0], [1, 1], [0, 0]], np.float32)
    predicted = np.array([[0.9, 0.1], [0.8, 0.3], [0.6, 0.2]], np.float32)
    errors, metrics, details = evaluate(
        "multilabel", LabelSet.of(["x", "y"], [0, 0], [1, 1]), records=3, predicted=predicted, targets=true
    )
    assert errors == pytest.approx([0.1, 0.7, 0.6])
    assert metrics["exact_match"] == pytest.approx(1 / 3)
    assert [item["precision"] for item in details["classes"]] == pytest.approx([2 / 3, 0])
    assert details["curves"][0]["average_precision"] == pytest.approx(1)
