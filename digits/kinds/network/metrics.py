"""Metrics that are computed for every model of a kind. Runs in the worker only.

The module ``metrics`` of a kind defines ``Metrics``, a subclass of the class here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.targets.target import Target


class Metrics:
    """The metrics of a kind, besides those that a network reports in its summaries.

    Statistics are computed per record and averaged over the whole split, so that a metric of the validation does
    not depend on the batch size. A metric that is not a function of means, such as one of ranks, is computed from
    the values of all records; such metrics exist for the validation only.
    """

    # Whether a network returns a score for each class of a target that is one.
    scores_classes = True

    def __init__(self, target: Target) -> None:
        self.target = target

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Statistics per record, float32 [N] by name, of a network's output and the targets of a batch.

        Empty if the output does not fit the targets.
        """
        return {}

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        """The metrics by name, from the means of the statistics over all records."""
        return {}

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """Values per record, float32 [N, values], of a network's output and the targets of a batch, if any."""
        return None

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        """Further metrics by name, from the values [records, values] of a split; there may be no records.

        Of a very large split, these are the records of its first part.
        """
        return {}

    def resampler(self, values: NDArray[np.float32]) -> Callable[[NDArray[np.intp]], Mapping[str, float]]:
        """Return a function that returns `summarize_records` of the records at some places, which may repeat."""
        return lambda places: self.summarize_records(values[places])
