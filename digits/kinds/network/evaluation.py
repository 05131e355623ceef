"""Evaluations of models of a kind: its pages show more than metrics. Runs in the worker only.

The optional module ``evaluation`` of a kind defines ``Evaluation``, a subclass of the class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.targets.target import Target


@dataclass(frozen=True)
class SplitResults:
    """The predictions for all records of a split.

    ``predicted``, float32 [records, outputs], and ``targets``, [records, …], are empty unless the evaluation
    ``keeps_predictions``. ``statistics`` and ``values`` are those of the kind's
    `digits.kinds.network.metrics.Metrics`: float32 [records] by name, and float32 [records, values].
    """

    records: int
    predicted: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    targets: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.float32))
    statistics: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    values: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> SplitResults:
        """Return the predictions for the ``chosen`` records, bool [records], or for those at places, int [places]."""
        has_predictions = len(self.targets) > 0
        return SplitResults(
            int(chosen.sum()) if chosen.dtype == np.bool_ else len(chosen),
            self.predicted[chosen] if has_predictions else self.predicted,
            self.targets[chosen] if has_predictions else self.targets,
            {name: values[chosen] for name, values in self.statistics.items()},
            self.values[chosen],
        )


class Evaluation:
    """What the evaluation of a model shows, besides the kind's metrics.

    With ``keeps_predictions``, the predictions are numbers, few enough to be kept for all records. ``shares`` are the
    metrics that are the share of records for which something holds, such as the accuracy.
    """

    keeps_predictions = False
    shares: tuple[str, ...] = ()

    def __init__(self, target: Target) -> None:
        self.target = target

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """Return how wrong each prediction is, float32 [records]: the larger, the worse; NaN if unknown."""
        return np.full(results.records, np.nan, np.float32)

    def metrics(self, results: SplitResults) -> dict[str, float]:
        """Return further metrics by name."""
        return {}

    def details(self, results: SplitResults) -> dict[str, Any]:
        """Return what the page shows, as JSON."""
        return {}
