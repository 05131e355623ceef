"""Predictions of numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_columns


class Targets(targets.Targets):
    """The numbers that the network returns."""

    def predict(self, outputs: Any) -> tf.Tensor:
        """The output, float32 [N, numbers]; that of a single number may have the shape [N]."""
        return select_columns(outputs, self.target.outputs)

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput unless there is one number for each target."""
        if columns != self.target.outputs:
            raise self.refuse([columns])

    def example(self, output: str) -> list[str]:
        return [
            f'print(dict(zip({self.target.names!r}, outputs["{output}"][0].ravel().tolist(), strict=True)))'
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> list[list[Any]]:
        """The name and the value of each number."""
        return [[name, float(value)] for name, value in zip(self.target.names, predicted, strict=True)]
