"""Predictions for pairs: their distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_columns


class Targets(targets.Targets):
    """The distance of the two images, which is small if they match."""

    takes_image = False
    output_hint = "Only networks trained for pairs can make predictions."

    def predict(self, outputs: Any) -> tf.Tensor:
        """The distance, float32 [N, 1]."""
        return select_columns(outputs, 1)

    def accepts(self, shape: Sequence[int]) -> bool:
        return list(shape) == [1]

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput unless there is one number for each pair."""
        if columns != 1:
            raise self.refuse([columns])

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> dict[str, float]:
        """The distance."""
        return {"distance": float(predicted[0])}

    @property
    def suitable_output(self) -> str:
        return "one distance per pair"
