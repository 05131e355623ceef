"""Evaluations of multi-label classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from digits.kinds.classification.network.evaluation import MAX_CURVES, curve
from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import Found


class Evaluation(evaluation.Evaluation):
    """Precision, recall, F1 and average precision of each label, and counts at thresholds for curves."""

    keeps_predictions = True

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
        columns = metrics.precision_recall_fscore_support(true, found.predicted >= 0.5, zero_division=0)
        names = ("precision", "recall", "f1", "support")
        classes = [
            dict(zip(names, (float(p), float(r), float(f), int(s)), strict=True))
            for p, r, f, s in zip(*columns, strict=True)
        ]
        present = np.flatnonzero(true.any(axis=0)).tolist()[:MAX_CURVES]
        return {
            "classes": classes,
            "curves": [
                {"class": number, **curve(found.predicted[:, number], true[:, number])} for number in present
            ],
        }
