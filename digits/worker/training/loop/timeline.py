"""The steps and epochs of a training, and the steps after which periodic work is due."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Fractions of a step below this are rounding errors.
_EPSILON = 1e-9


@dataclass(frozen=True)
class Milestone:
    """Work that is due after ``step`` steps, that is after ``epoch`` epochs."""

    step: int
    epoch: float


@dataclass(frozen=True)
class Timeline:
    """A training of ``epochs`` epochs with ``steps_per_epoch`` steps each; both may be fractions."""

    epochs: float
    steps_per_epoch: float

    @property
    def total_steps(self) -> int:
        """The number of steps of the whole training."""
        return math.ceil(self.epochs * self.steps_per_epoch - _EPSILON)

    def epoch(self, step: int) -> float:
        """The epochs that are complete after ``step`` steps, a fraction."""
        return min(step / self.steps_per_epoch, float(self.epochs))

    def every(self, interval: float) -> list[Milestone]:
        """The milestones of work that is due every ``interval`` epochs and at the end; 0 means only at the end."""
        last = Milestone(self.total_steps, self.epochs)
        due: dict[int, Milestone] = {}
        for number in range(1, math.ceil(self.epochs / interval) if interval > 0 else 0):
            epoch = number * interval
            step = math.ceil(epoch * self.steps_per_epoch - _EPSILON)
            due[step] = Milestone(step, epoch)  # intervals shorter than a step share one milestone
        return [*(milestone for milestone in due.values() if milestone.step < last.step), last]
