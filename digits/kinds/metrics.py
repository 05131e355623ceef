"""Metrics that are computed for every model of a kind. Runs in the worker only.

The module ``metrics`` of a kind defines ``Metrics``, a subclass of the class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from digits.data.target import TargetSpec


class Metrics:
    """The metrics of a kind, besides those that a network reports in its summaries.

    Statistics are computed per record and averaged over the whole split, so that a metric of the validation does
    not depend on the batch size.
    """

    def __init__(self, target: TargetSpec) -> None:
        self.target = target

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Statistics per record, float32 [N] by name, of a network's output and the targets of a batch.

        Empty if the output does not fit the targets.
        """
        return {}

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        """The metrics by name, from the means of the statistics over all records."""
        return {}
