"""Cuts the metrics of single steps into the rows of curves: means over the steps since the row before.

After which steps there is a row depends on the number of the step alone, and not on how
fast the machine is or how many steps a call takes: so two runs of a seed have the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# So many steps have a row each, so that a slow network shows something at once. Then
# rows cover 2 steps, from twice as many on 4, and so on.
SINGLE_STEPS = 1000


def ends_row(step: int) -> bool:
    """Whether there is a row after ``step`` steps, the first being step 1."""
    return step % (1 << (step // SINGLE_STEPS).bit_length()) == 0


@dataclass(frozen=True)
class Row:
    """The mean of each metric over the ``count`` steps that end with ``step``.

    ``steps_per_second`` is None where no time was measured.
    """

    step: int
    count: int
    means: list[float]
    steps_per_second: float | None


class Curve:
    """The rows of a training. What belongs to the next row is kept until it ends."""

    def __init__(self) -> None:
        self._step = self._count = self._timed = 0
        self._total: Any = 0.0
        self._seconds = 0.0

    def recall(self, step: int, names: Sequence[str], state: Mapping[str, Any] | None) -> None:
        """Go on after ``step`` steps from what `state` gave, if it was about the same metrics."""
        self._step = step
        if state and state.get("names") == list(names):
            self._count = int(state["count"])
            self._total = np.array([float.fromhex(value) for value in state["total"]])

    def add(self, metrics: NDArray[np.float32], seconds: float | None) -> list[Row]:
        """Take in the metrics [steps, names] of further steps, which took ``seconds``; the rows that end.

        None as ``seconds`` says that the time tells nothing about the steps.
        """
        rows: list[Row] = []
        for values in metrics.astype(np.float64):
            # One after the other, so that the sum does not depend on how the steps arrive.
            self._total = self._total + values
            self._step, self._count = self._step + 1, self._count + 1
            if seconds is not None:
                self._timed, self._seconds = self._timed + 1, self._seconds + seconds / len(metrics)
            if ends_row(self._step):
                rows += self.cut()
        return rows

    def cut(self) -> list[Row]:
        """End a row here; there is none when the step before ended one."""
        if not self._count:
            return []
        speed = self._timed / max(self._seconds, 1e-9) if self._timed else None
        row = Row(self._step, self._count, (self._total / self._count).tolist(), speed)
        self._total, self._count, self._timed, self._seconds = 0.0, 0, 0, 0.0
        return [row]

    def state(self, names: Sequence[str]) -> dict[str, Any] | None:
        """What `recall` needs, for metrics of these ``names``; None right after a row."""
        if not self._count:
            return None
        # As text, because a mean may be no number, and JSON has none such.
        total = [float(value).hex() for value in self._total]
        return {"names": list(names), "count": self._count, "total": total}
