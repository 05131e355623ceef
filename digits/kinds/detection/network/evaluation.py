"""Evaluations of object detection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask

from digits.data.targets.boxes import IGNORED_BOX
from digits.kinds.detection.network.metrics import Metrics, average_precisions
from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import Found

# Detections with at least this score count for the errors of an image, and match objects from this IoU on.
MIN_SCORE = 0.3
MIN_IOU = 0.5


class Evaluation(evaluation.Evaluation):
    """The average precision of each class, and the images with the most missed and false detections."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """One minus the F1 score of the detections of each image; 0 if there are neither objects nor detections."""
        if not found.values.shape[1]:
            return super().errors(found)
        detections, objects = Metrics(self.target).split(found.values)
        return np.array([image_error(*rows) for rows in zip(detections, objects, strict=True)], np.float32)

    def details(self, found: Found) -> dict[str, Any]:
        if not found.values.shape[1]:
            return {}
        detections, objects = Metrics(self.target).split(found.values)
        scores = average_precisions(detections, objects)
        classes = objects[..., 4].astype(int)
        support = [int((classes == number).sum()) for number in range(len(self.target.names))]
        nothing = {"ap": None, "ap50": None}
        return {
            "classes": [
                {**scores.get(number, nothing), "support": count} for number, count in enumerate(support)
            ]
        }


def image_error(detections: NDArray[np.float32], objects: NDArray[np.float32]) -> float:
    """Return one minus the F1 score of the detections of an image.

    ``detections``, float32 [detections, 6], and ``objects``, float32 [objects, 5], are those of one image in
    `digits.kinds.detection.network.metrics.mean_average_precision`. A detection is right if it overlaps an object of
    its class that no detection with a higher score overlaps. Detections in regions to ignore do not count.
    """
    usable = np.isfinite(detections).all(axis=1) & (detections[:, 4] >= MIN_SCORE)
    detected = detections[usable]
    detected = detected[np.argsort(-detected[:, 4], kind="stable")]
    true, ignored = objects[objects[:, 4] >= 0], objects[objects[:, 4] == IGNORED_BOX]
    overlaps = _overlaps(detected, true)
    is_free = np.ones(len(true), np.bool_)
    hits, counted = 0, 0
    in_ignored = _overlaps(detected, ignored).max(axis=1, initial=0) >= MIN_IOU
    for place, row in enumerate(detected):
        fitting = np.where(is_free & (true[:, 4] == row[5]), overlaps[place], 0)
        if fitting.max(initial=0) >= MIN_IOU:
            is_free[fitting.argmax()] = False
            hits += 1
            counted += 1
        else:
            counted += not in_ignored[place]
    total = counted + len(true)
    return 1 - 2 * hits / total if total else 0.0


def _overlaps(rows: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the IoU of all boxes, [rows, others]."""
    if not len(rows) or not len(others):
        return np.zeros((len(rows), len(others)))
    boxes = [
        np.column_stack([each[:, :2], each[:, 2:4] - each[:, :2]]).astype(np.float64)
        for each in (rows, others)
    ]
    found: NDArray[np.float64] = mask.iou(*boxes, np.zeros(len(others), np.uint8))
    return found
