"""Predictions: from the outputs of a network to tags. Runs in the worker."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels


class Targets(targets.Targets):
    """Predictions of the probability of each tag."""

    def predict(self, outputs: Any) -> tf.Tensor:
        """Probabilities, float32 [N, tags]: the network returns logits."""
        return tf.sigmoid(super().predict(outputs))

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Refuse networks that do not return one number for each tag."""
        if columns != self.target.outputs:
            raise self.refuse([columns])

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> list[list[Any]]:
        """Return all tags with their probabilities in percent, most likely first."""
        tags = zip(self.target.names, predicted.tolist(), strict=True)
        return [[tag, 100 * share] for tag, share in sorted(tags, key=lambda item: -item[1])]
