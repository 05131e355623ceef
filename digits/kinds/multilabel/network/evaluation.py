"""Evaluations of multi-label classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.network import evaluation
from digits.kinds.network.curves import class_scores, curves
from digits.kinds.network.evaluation import SplitResults


class Evaluation(evaluation.Evaluation):
    """Precision, recall, F1 and average precision of each label, and counts at thresholds for curves."""

    keeps_predictions = True
    shares = ("exact_match",)

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """The largest difference between a probability and its label."""
        errors: NDArray[np.float32] = np.abs(results.predicted - results.targets).max(axis=1)
        return errors

    def metrics(self, results: SplitResults) -> dict[str, float]:
        """The share of images whose labels are all predicted, and no others, at a threshold of 0.5."""
        right = ((results.predicted >= 0.5) == (results.targets > 0.5)).all(axis=1)
        return {"exact_match": float(right.mean())}

    def details(self, results: SplitResults) -> dict[str, Any]:
        true = results.targets > 0.5
        return {
            "classes": class_scores(true, results.predicted >= 0.5),
            "curves": curves(
                results.predicted, np.flatnonzero(true.any(axis=0)), lambda number: true[:, number]
            ),
        }
