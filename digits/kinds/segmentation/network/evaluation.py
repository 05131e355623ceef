"""Evaluations of semantic segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import SplitResults
from digits.kinds.segmentation.network.metrics import Metrics


class Evaluation(evaluation.Evaluation):
    """The IoU of each class, the pixels confused with others, and the images with the lowest mean IoU.

    The support of a class is the number of images that contain it.
    """

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """One minus the mean IoU of the classes in the mask or in its prediction."""
        both, either, _ = Metrics(self.target).split(results.values)
        present = either > 0
        each = np.divide(both, either, out=np.zeros_like(both), where=present)
        means = each.sum(axis=1) / np.maximum(1, present.sum(axis=1))
        return np.where(present.any(axis=1), 1 - means, np.nan).astype(np.float32)

    def details(self, results: SplitResults) -> dict[str, Any]:
        metrics = Metrics(self.target)
        both, either, true = metrics.split(results.values)
        images = (true > 0).sum(axis=0).tolist()
        hits, union, truth = both.sum(axis=0), either.sum(axis=0), true.sum(axis=0)
        predicted = union - truth + hits
        shares = {
            "iou": (hits / np.maximum(1, union)).tolist(),
            "precision": _shares(hits, predicted),
            "recall": _shares(hits, truth),
        }
        details: dict[str, Any] = {
            "classes": [
                {**{name: values[index] for name, values in shares.items()}, "support": count}
                for index, count in enumerate(images)
            ]
        }
        if metrics.counts_pairs:
            count = self.target.outputs
            pairs = results.values.sum(axis=0, dtype=np.float64).astype(np.int64)
            details["pixels"] = pairs.reshape(count, count).tolist()
        return details


def _shares(hits: NDArray[np.float64], counts: NDArray[np.float64]) -> list[float | None]:
    """Return the share of the hits of each class; None for one that does not occur."""
    pairs = zip(hits.tolist(), counts.tolist(), strict=True)
    return [hit / count if count else None for hit, count in pairs]
