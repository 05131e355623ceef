"""Evaluations of networks that compare pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import SplitResults
from digits.kinds.pairs.network.metrics import area_under_curve, best_threshold

# Thresholds of the curves, between the smallest and the largest distance.
THRESHOLDS = 101
MATCH = 1


class Evaluation(evaluation.Evaluation):
    """Counts at thresholds of the distance, and the pairs that are farthest on the wrong side of the best one."""

    shares = ("accuracy",)

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """The distance to the threshold: positive on the wrong side, negative on the right one."""
        if not results.values.shape[1]:
            return super().errors(results)
        distances, matches = results.values[:, 0], results.values[:, 1] > 0.5
        threshold, _ = best_threshold(distances, matches)
        return np.where(matches, distances - threshold, threshold - distances).astype(np.float32)

    def details(self, results: SplitResults) -> dict[str, Any]:
        """The curve of matching pairs, as that of a class; ``thresholds`` are distances, the largest first."""
        if not results.values.shape[1]:
            return {}
        distances, matches = results.values[:, 0], results.values[:, 1] > 0.5
        positives, negatives = int(matches.sum()), int((~matches).sum())
        thresholds = np.linspace(distances.max(), distances.min(), THRESHOLDS, dtype=np.float64)
        hits, alarms = (
            np.searchsorted(np.sort(distances[chosen].astype(np.float64)), thresholds, side="right").tolist()
            for chosen in (matches, ~matches)
        )
        best, _ = best_threshold(distances, matches)
        return {
            "curves": [
                {
                    "class": MATCH,
                    "positives": positives,
                    "negatives": negatives,
                    "hits": hits,
                    "false_alarms": alarms,
                    "average_precision": float(metrics.average_precision_score(matches, -distances))
                    if positives
                    else 0.0,
                    "auc": area_under_curve(distances, matches) if positives and negatives else None,
                    "thresholds": thresholds.tolist(),
                    "start": int(np.abs(thresholds - best).argmin()),
                }
            ]
        }
