"""Early stopping: end a training when a validation metric stops improving."""

from __future__ import annotations

from collections.abc import Mapping

from digits.core.best_metric import BestValue

# Epochs below this are rounding errors.
_EPSILON = 1e-9


class EarlyStopping:
    """Ends the training when ``metric`` has not improved for ``patience`` epochs."""

    def __init__(self, metric: str, patience: float, is_lower_better: bool) -> None:
        self._best, self._patience = BestValue(metric, is_lower_better), patience

    @property
    def metric(self) -> str:
        """The name of the validation metric."""
        return self._best.metric

    def observe(self, epoch: float, values: Mapping[str, float]) -> None:
        """Record the metrics of the validation after ``epoch`` epochs."""
        self._best.observe(epoch, values)

    def reason(self, epoch: float) -> str:
        """Why the training ends after ``epoch`` epochs; empty if it continues."""
        best = self._best
        if best.value is None or epoch - best.epoch < self._patience - _EPSILON:
            return ""
        return (
            f"Stopped early after {epoch:g} epochs: the validation's {best.metric} has not been better than "
            f"{best.value:.6g} since epoch {best.epoch:g}."
        )

    def state(self) -> dict[str, object]:
        """The state to pass to `restore`, for JSON."""
        return self._best.as_json()

    def restore(self, state: Mapping[str, object] | None) -> None:
        """Restore a saved `state`; that of another metric is ignored."""
        self._best.restore(state)
