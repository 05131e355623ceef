"""Evaluations of regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import SplitResults

HISTOGRAM_BINS = 25


class Evaluation(evaluation.Evaluation):
    """The errors of each number, and histograms of the residuals: prediction minus target."""

    keeps_predictions = True

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """The mean absolute error of the numbers, each in units of its standard deviation."""
        scale = np.array([deviation or 1.0 for deviation in self.target.std], np.float32)
        errors: NDArray[np.float32] = np.abs((results.predicted - results.targets) / scale).mean(axis=1)
        return errors.astype(np.float32)

    def details(self, results: SplitResults) -> dict[str, Any]:
        numbers = []
        for index, name in enumerate(self.target.names):
            true, predicted = results.targets[:, index], results.predicted[:, index].astype(np.float64)
            residuals = predicted - true
            counts, edges = np.histogram(residuals, HISTOGRAM_BINS)
            numbers.append(
                {
                    "name": name,
                    "mae": float(metrics.mean_absolute_error(true, predicted)),
                    "rmse": float(np.sqrt(metrics.mean_squared_error(true, predicted))),
                    "r2": float(metrics.r2_score(true, predicted)) if results.records > 1 else None,
                    "bias": float(residuals.mean()),
                    "counts": counts.tolist(),
                    "edges": edges.tolist(),
                }
            )
        return {"numbers": numbers}
