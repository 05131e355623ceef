"""Predictions of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_columns


class Targets(targets.Targets):
    """The probability of each label, independently of the others."""

    def predict(self, outputs: Any) -> tf.Tensor:
        """The sigmoid of the output, float32 [N, labels]; an output for a single label may have the shape [N]."""
        return tf.sigmoid(select_columns(outputs, self.target.outputs))

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput unless there is one number for each label, and the loss depends on the labels."""
        if columns != self.target.outputs or (loss is not None and not loss.is_used):
            raise self.refuse([columns])

    def agreement(self, predicted: NDArray[Any], others: NDArray[Any]) -> float:
        """The fraction of labels that both models predict, or neither."""
        return float(np.mean((predicted > 0.5) == (others > 0.5)))

    def example(self, output: str) -> list[str]:
        return [
            f'scores = 1 / (1 + np.exp(-outputs["{output}"][0].ravel()))',
            "print(sorted(zip(scores.tolist(), labels), reverse=True))",
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> list[list[Any]]:
        """All labels with their probabilities in percent, the most likely first."""
        percents = predicted * 100
        order = np.argsort(-percents, kind="stable")
        return [[self.target.names[index], float(percents[index])] for index in order]
