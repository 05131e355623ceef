"""Evaluations of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from digits.data.health import label_errors
from digits.kinds.network import evaluation
from digits.kinds.network.curves import class_scores, curves
from digits.kinds.network.evaluation import SplitResults

TOP = 5
BINS = 10
_TINY = 1e-7


class Evaluation(evaluation.Evaluation):
    """Accuracy, precision, recall and F1 of each class, calibration, and counts at thresholds for curves."""

    keeps_predictions = True
    shares = ("accuracy", "top5_accuracy")

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """One minus the probability of the true class."""
        errors: NDArray[np.float32] = 1 - results.predicted[np.arange(results.records), results.targets]
        return errors

    def metrics(self, results: SplitResults) -> dict[str, float]:
        """The accuracy, the top-5 accuracy, the macro average of F1, the log loss and the calibration error.

        The last one is the expected calibration error over ten bins of equal width (Guo et al., 2017, “On Calibration
        of Modern Neural Networks”).
        """
        own = results.predicted[np.arange(results.records), results.targets]
        likely = results.predicted.argmax(axis=1)
        scores = {"accuracy": float(np.mean(likely == results.targets))}
        if results.predicted.shape[1] > TOP:
            better = (results.predicted > own[:, None]).sum(axis=1)
            scores["top5_accuracy"] = float(np.mean(better < TOP))
        present = np.unique(results.targets)
        scores["f1_macro"] = float(
            metrics.f1_score(results.targets, likely, labels=present, average="macro", zero_division=0)
        )
        scores["log_loss"] = float(-np.mean(np.log(np.maximum(own.astype(np.float64), _TINY))))
        bins = calibration(results.predicted.max(axis=1), likely == results.targets)
        gaps = (each["count"] * abs(each["confidence"] - each["accuracy"]) for each in bins)
        scores["calibration_error"] = sum(gaps) / max(1, results.records)
        return scores

    def details(self, results: SplitResults) -> dict[str, Any]:
        """The scores of each class, the bins of the calibration, and the curves of the classes that occur.

        The ``suspects`` are records that are probably labeled wrong: the model is sure of another class.
        """
        likely = results.predicted.argmax(axis=1)
        return {
            "classes": class_scores(results.targets, likely, labels=np.arange(len(self.target.names))),
            "calibration": calibration(results.predicted.max(axis=1), likely == results.targets),
            "suspects": len(label_errors.suspects(results.predicted, results.targets)),
            "curves": curves(
                results.predicted, np.unique(results.targets), lambda number: results.targets == number
            ),
        }


def calibration(confidence: NDArray[np.float32], right: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return the count, the mean confidence and the accuracy of the predictions in each bin of the confidence."""
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    sums = np.bincount(places, weights=confidence, minlength=BINS)
    hits = np.bincount(places, weights=right, minlength=BINS)
    return [
        {
            "count": int(counts[index]),
            "confidence": float(sums[index] / max(1, counts[index])),
            "accuracy": float(hits[index] / max(1, counts[index])),
        }
        for index in range(BINS)
    ]
