"""Predictions of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_output


class Targets(targets.Targets):
    """Probabilities of the classes."""

    def predict(self, outputs: Any) -> tf.Tensor:
        """The softmax of the output, float32 [N, columns]; the first columns are those of the classes."""
        return tf.nn.softmax(tf.cast(select_output(outputs, self.target.outputs), tf.float32))

    def class_probabilities(self, predicted: NDArray[Any]) -> NDArray[Any]:
        return predicted[:, : self.target.outputs]

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput if the output is not over classes.

        A code or an embedding can have any number of columns, the number of classes included, so the
        loss decides.
        """
        is_exact = columns == self.target.outputs
        if columns < self.target.outputs:
            raise self.refuse([columns])
        if loss is None:
            is_over_classes = is_exact
        else:
            is_over_classes = loss.is_used if is_exact else loss.has_cross_entropy
        if not is_over_classes:
            raise self.refuse([columns])

    def agreement(self, predicted: NDArray[Any], others: NDArray[Any]) -> float:
        """The fraction of images with the same best class."""
        count = self.target.outputs
        return float(np.mean(predicted[:, :count].argmax(axis=1) == others[:, :count].argmax(axis=1)))

    def example(self, output: str) -> list[str]:
        return [
            f'scores = np.exp(outputs["{output}"][0].ravel() - outputs["{output}"][0].max())',
            "print(sorted(zip((scores / scores.sum()).tolist(), labels), reverse=True)[:5])",
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> list[list[Any]]:
        """The ``top`` most likely classes with their probabilities in percent, the most likely first."""
        percents = predicted[: self.target.outputs] * 100
        best = np.argsort(-percents, kind="stable")[: max(1, top)]
        return [[self.target.names[index], float(percents[index])] for index in best]
