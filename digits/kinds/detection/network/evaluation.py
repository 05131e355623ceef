"""Evaluations of object detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.targets.box_matching import FALSE, Rows, confusion, match
from digits.data.targets.target import Target
from digits.kinds.detection.network.metrics import Metrics, average_precisions
from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import SplitResults

# The minimum scores at which detections are counted.
THRESHOLDS = np.round(np.arange(1, 20) / 20, 2)
# With more classes, only the confusion matrix at the best threshold is stored.
MAX_CLASSES_FOR_ALL = 20


class Evaluation(evaluation.Evaluation):
    """The average precision of each class, the found, missed and false objects, and the images with the most errors."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        # The errors and the details need the matches of the same predictions.
        self._matched: tuple[SplitResults, list[_Image]] | None = None

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """One minus the F1 score of the detections of each image; 0 if there are neither objects nor detections.

        Detections count from the threshold on that is the best one for all images.
        """
        if not results.values.shape[1]:
            return super().errors(results)
        images = self._match(results)
        threshold = _curve(images)["best"]
        return np.array([image.error(threshold) for image in images], np.float32)

    def details(self, results: SplitResults) -> dict[str, Any]:
        if not results.values.shape[1]:
            return {}
        detections, objects = Metrics(self.target).split(results.values)
        scores = average_precisions(detections, objects)
        classes = objects[..., 4].astype(int)
        support = [int((classes == number).sum()) for number in range(len(self.target.names))]
        nothing = {"ap": None, "ap50": None}
        images = self._match(results)
        curve = _curve(images)
        wanted = THRESHOLDS if len(support) <= MAX_CLASSES_FOR_ALL else [curve["best"]]
        matrices = [
            np.sum([image.confusion(threshold, len(support)) for image in images], axis=0).tolist()
            for threshold in wanted
        ]
        return {
            "classes": [
                {**scores.get(number, nothing), "support": count} for number, count in enumerate(support)
            ],
            "detections": {
                **curve,
                "matrices": matrices,
                "limit": detections.shape[1],
                "most_objects": max((image.count for image in images), default=0),
            },
        }

    def _match(self, results: SplitResults) -> list[_Image]:
        if self._matched is None or self._matched[0] is not results:
            detections, objects = Metrics(self.target).split(results.values)
            classes = len(self.target.names)
            images = [_Image.of(*rows, classes) for rows in zip(detections, objects, strict=True)]
            self._matched = results, images
        return self._matched[1]


@dataclass(frozen=True)
class _Image:
    """The ``detections`` of an image, its ``objects``, and what each detection has ``found``."""

    detections: Rows
    objects: Rows
    found: NDArray[np.int64]

    @classmethod
    def of(cls, detections: Rows, objects: Rows, classes: int) -> _Image:
        """Match the rows of an image, some of which are empty, as in `Metrics.split`."""
        is_known = (detections[:, 5] >= 0) & (detections[:, 5] < classes)
        detections = detections[np.isfinite(detections).all(axis=1) & is_known & (detections[:, 4] > 0)]
        return cls(detections, objects, match(detections, objects))

    @property
    def count(self) -> int:
        return int((self.objects[:, 4] >= 0).sum())

    def error(self, threshold: float) -> float:
        counted = self.detections[:, 4] >= threshold
        hits = int((counted & (self.found >= 0)).sum())
        total = hits + int((counted & (self.found == FALSE)).sum()) + self.count
        return 1 - 2 * hits / total if total else 0.0

    def confusion(self, threshold: float, classes: int) -> NDArray[np.int64]:
        counted = self.detections[:, 4] >= threshold
        return confusion(self.detections[counted], self.objects, self.found[counted], classes)


def _curve(images: list[_Image]) -> dict[str, Any]:
    """Return the numbers of found objects and of false detections at each threshold, and the one with the best F1."""
    scores = np.concatenate([image.detections[:, 4] for image in images])
    matched = np.concatenate([image.found for image in images])
    objects = sum(image.count for image in images)
    counted = scores >= THRESHOLDS[:, None]
    hits, false = (counted & (matched >= 0)).sum(axis=1), (counted & (matched == FALSE)).sum(axis=1)
    f1 = 2 * hits / np.maximum(1, hits + false + objects)
    return {
        "thresholds": THRESHOLDS.tolist(),
        "hits": hits.tolist(),
        "false": false.tolist(),
        "objects": objects,
        "best": float(THRESHOLDS[f1.argmax()]),
    }
