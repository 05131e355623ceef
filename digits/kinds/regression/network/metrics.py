"""Metrics of regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from digits.kinds.network import metrics
from digits.kinds.network.targets import find_columns


class Metrics(metrics.Metrics):
    """Mean absolute error, root mean squared error, and R²; averages over the numbers.

    MAE and RMSE have the units of the targets. R² is the fraction of the variance that is predicted, as
    `sklearn.metrics.r2_score` defines it: 1 is perfect, 0 is as good as the mean, and there is no lower limit.
    """

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        predicted = find_columns(output, self.target.outputs)
        if predicted is None:
            return {}
        # In units of the standard deviation, so that float32 is exact enough for any scale.
        scale = tf.constant(self._scale(), tf.float32)
        error = (predicted - y) / scale
        centered = (y - tf.constant(self.target.mean, tf.float32)) / scale
        columns = {
            "absolute": tf.abs(error),
            "squared": error**2,
            "target": centered,
            "target_squared": centered**2,
        }
        return {
            f"{name}_{index}": values[:, index]
            for name, values in columns.items()
            for index in range(self.target.outputs)
        }

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        if not means:
            return {}
        scale = self._scale()
        count = len(scale)
        squared = [means[f"squared_{index}"] for index in range(count)]
        absolute = sum(means[f"absolute_{index}"] * scale[index] for index in range(count)) / count
        total = sum(squared[index] * scale[index] ** 2 for index in range(count)) / count
        r2 = sum(
            _r2(squared[index], means[f"target_squared_{index}"] - means[f"target_{index}"] ** 2)
            for index in range(count)
        )
        return {"mae": absolute, "rmse": math.sqrt(total), "r2": r2 / count}

    def _scale(self) -> list[float]:
        return [deviation or 1.0 for deviation in self.target.std]


def _r2(squared_error: float, variance: float) -> float:
    # Of identical targets, as scikit-learn: 1 if all are predicted exactly, else 0.
    if variance <= 1e-12:
        return 1.0 if squared_error <= 1e-12 else 0.0
    return 1 - squared_error / variance
