"""The direction of a validation metric, and early stopping when it no longer improves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LOWER_IS_BETTER = re.compile(r"loss|error|entropy|perplexity|distance|^(mse|mae|rmse|nll|wer|cer)$", re.I)


def lower_is_better(metric: str) -> bool:
    """Return whether lower values of ``metric`` are better, judged by its name, as for a loss.

    The metrics that a kind declares have a direction of their own: see `digits.kinds.views.Views.lower_is_better`.
    """
    return bool(_LOWER_IS_BETTER.search(metric))


# Epochs below this are rounding errors.
_EPSILON = 1e-9


@dataclass
class EarlyStopping:
    """Ends a training when ``metric`` has not been better than ``value``, its best one, for ``patience`` epochs.

    ``epoch`` is that of the best value. Validations up to the epoch ``after`` do not count: a pretrained network
    whose head is trained gets worse at first when all its layers are trained, and then better.
    """

    metric: str
    patience: float
    lower_is_better: bool
    after: float = -math.inf
    value: float | None = None
    epoch: float = 0.0

    def observe(self, epoch: float, values: Mapping[str, float]) -> bool:
        """Record a validation; return whether it is the best one so far. NaN and infinity never are."""
        value = values[self.metric]
        if epoch - self.after < _EPSILON or not math.isfinite(value) or not self._is_better(value):
            return False
        self.value, self.epoch = value, epoch
        return True

    def reason(self, epoch: float) -> str:
        """Why the training ends after ``epoch`` epochs; empty if it continues."""
        if self.value is None or epoch - self.epoch < self.patience - _EPSILON:
            return ""
        return (
            f"Stopped early after {epoch:g} epochs: the validation's {self.metric} has not been better than "
            f"{self.value:.6g} since epoch {self.epoch:g}."
        )

    def as_json(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "metric": self.metric, "value": self.value}

    def restore(self, body: Mapping[str, Any] | None) -> None:
        """Continue from the result of `as_json`, if it is about the same metric."""
        if body and body.get("metric") == self.metric:
            self.value, self.epoch = body.get("value"), float(body.get("epoch", 0.0))

    def _is_better(self, value: float) -> bool:
        if self.value is None:
            return True
        return value < self.value if self.lower_is_better else value > self.value
