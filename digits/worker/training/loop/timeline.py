"""The steps and epochs of a training: after which steps periodic work is due, and how many steps a call runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Fractions of a step below this are rounding errors.
_EPSILON = 1e-9

# Target duration of a call, in seconds.
CALL_SECONDS = 0.15
MAX_STEPS_PER_CALL = 1000
# Limits for images that are streamed, because those of all steps of a call are in memory together.
MAX_STREAMED_STEPS = 100
MAX_STREAMED_BYTES = 2**26


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


@dataclass
class Pace:
    """The number of ``steps`` of the next call of the step function, up to ``limit``; calls take about `CALL_SECONDS`.

    Long calls keep Python out of the way of a small network; short ones keep stopping, progress and metrics timely.
    """

    limit: int
    steps: int = 1

    def update(self, steps: int, seconds: float) -> None:
        """Adapt to a call of ``steps`` steps that took ``seconds``."""
        fitting = int(CALL_SECONDS * steps / max(seconds, 1e-6))
        # The first calls include one-time costs, so approach the target gradually.
        self.steps = max(1, min(fitting, 8 * self.steps, self.limit))


def max_steps(is_resident: bool, step_bytes: int) -> int:
    """The most steps that one call may run, for steps that take ``step_bytes`` bytes of images."""
    if is_resident:
        return MAX_STEPS_PER_CALL
    return max(1, min(MAX_STREAMED_STEPS, MAX_STREAMED_BYTES // step_bytes, MAX_STEPS_PER_CALL))
