"""Watches a metric of the validation: which epoch was the best, and since when nothing got better."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

_LOWER_IS_BETTER = re.compile(r"loss|error|entropy|perplexity|distance|^(mse|mae|rmse|nll|wer|cer)$", re.I)


def lower_is_better(metric: str) -> bool:
    """Whether a small value of ``metric`` is a good one, judged by its name."""
    return bool(_LOWER_IS_BETTER.search(metric))


class Best(TypedDict):
    """The best validation so far, as stored by `Watch`."""

    epoch: float
    metric: str
    value: float | None


@dataclass
class Watch:
    """The best ``value`` of ``metric`` so far, and its ``epoch``."""

    metric: str
    value: float | None = None
    epoch: float = 0.0

    def see(self, epoch: float, values: Mapping[str, float]) -> bool:
        """Take in a validation; whether it is the best one. What is not a finite number is never better."""
        value = values[self.metric]
        if not math.isfinite(value) or not self._is_better(value):
            return False
        self.value, self.epoch = value, epoch
        return True

    def as_json(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "metric": self.metric, "value": self.value}

    def recall(self, body: Mapping[str, Any] | None) -> None:
        """Go on from what `as_json` gave, if it was about the same metric."""
        if body and body.get("metric") == self.metric:
            self.value, self.epoch = body.get("value"), float(body.get("epoch", 0.0))

    def _is_better(self, value: float) -> bool:
        if self.value is None:
            return True
        return value < self.value if lower_is_better(self.metric) else value > self.value
