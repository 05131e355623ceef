"""Evaluations of multi-label classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.network import evaluation
from digits.kinds.network.curves import class_scores, curves
from digits.kinds.network.evaluation import Found


class Evaluation(evaluation.Evaluation):
    """Precision, recall, F1 and average precision of each label, and counts at thresholds for curves."""

    keeps_predictions = True
    shares = ("exact_match",)

    def errors(self, found: Found) -> NDArray[np.float32]:
        """The largest difference between a probability and its label."""
        errors: NDArray[np.float32] = np.abs(found.predicted - found.targets).max(axis=1)
        return errors

    def metrics(self, found: Found) -> dict[str, float]:
        """The share of images whose labels are all predicted, and no others, at a threshold of 0.5."""
        right = ((found.predicted >= 0.5) == (found.targets > 0.5)).all(axis=1)
        return {"exact_match": float(right.mean())}

    def details(self, found: Found) -> dict[str, Any]:
        true = found.targets > 0.5
        return {
            "classes": class_scores(true, found.predicted >= 0.5),
            "curves": curves(
                found.predicted, np.flatnonzero(true.any(axis=0)), lambda number: true[:, number]
            ),
        }
