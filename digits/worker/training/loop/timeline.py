"""The steps and epochs of a training: how many steps a call runs, and after which steps work is due.

`MetricRows` are the rows of the curves: means of the metrics over consecutive steps. The steps that end a row depend on
the step number alone, not on the speed of the machine or the number of steps per call. So two runs with the same seed
have the same rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Fractions of a step below this are rounding errors.
_EPSILON = 1e-9

# Target duration of a call, in seconds.
CALL_SECONDS = 0.15
MAX_STEPS_PER_CALL = 1000
# Limits for images that are streamed, because those of all steps of a call are in memory together.
MAX_STREAMED_STEPS = 100
MAX_STREAMED_BYTES = 2**26

# The first steps have a row each, so that a slow network shows results early. From this number of steps on
# a row covers 2 steps, from twice this number on 4, and so on.
SINGLE_STEPS = 1000

# The steps between two measurements of a long training, so that the extra work does not slow it down.
MAX_INTERVAL = 32
# A shorter training has this many measurements or more, but not at shorter intervals than this.
MIN_MEASUREMENTS = 32
MIN_INTERVAL = 4


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


@dataclass
class Average:
    """The mean ``seconds`` of a step. Later steps count more: the first ones are slower, and machines become busy."""

    steps: int = 0
    seconds: float = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Add a number of ``steps`` that took ``seconds``; the weight of each is about its number."""
        self.steps += steps
        self.seconds += min(2 / self.steps, 1 / steps) * (seconds - steps * self.seconds)


@dataclass
class TimeLeft:
    """Estimates how long the rest of a training takes, from the steps and the pauses between them since ``first_step``.

    All time since the previous call of another method than `seconds` belongs to the next one, so that none is lost.

    The first ``head_steps`` of ``total_steps`` train only the head: the expected time of one of them is the
    ``head_share`` of a later step, until both have been measured. Before, the features of ``batches`` are computed,
    each in the ``batch_share`` of a later step. The work after the last step takes ``closing`` seconds. ``clock``
    returns seconds.
    """

    first_step: int
    total_steps: int
    head_steps: int = 0
    head_share: float = 1.0
    batches: int = 0
    batch_share: float = 1.0
    closing: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._of_head, self._later, self._pauses = Average(), Average(), Average()
        self._of_batches = Average()
        self._paused_at, self._drew, self._noted = self.first_step, 0.0, 0.0

    def begin(self) -> None:
        """Ignore the time until now, for what happens only once."""
        self._lap()

    def computed(self, batch: int) -> None:
        """Note that the features of the first ``batch`` batches have been computed."""
        seconds = self._lap()
        if batch > 1:  # the first one also builds functions
            self._of_batches.add(1, seconds)
        self.batches -= 1

    def stepped(self, step: int, count: int) -> None:
        """Note that ``count`` steps, up to ``step``, have been taken."""
        self._phase(step).add(count, self._lap())

    def drew(self, step: int) -> None:
        """Note a step that also drew pictures, as the one after each validation does: they belong to the next pause."""
        self._drew += max(0.0, self._lap() - self._phase(step).seconds)

    def paused(self, step: int) -> None:
        """Note a validation, a snapshot or the like after ``step``. They are due at regular intervals."""
        seconds, count = self._lap() + self._drew, step - self._paused_at
        self._paused_at, self._drew = step, 0.0
        if count:
            self._pauses.add(count, seconds)

    def seconds(self, step: int) -> float | None:
        """Return the estimate after ``step`` steps; None before any has been measured."""
        batch, head, every = (
            phase.seconds if phase.steps else None for phase in (self._of_batches, self._of_head, self._later)
        )
        if every is None and batch is not None:
            every = batch / self.batch_share
        elif every is None and head is not None:
            every = head / self.head_share
        if every is None:
            return None
        of_head = max(0, self.head_steps - step)
        steps = of_head * (every * self.head_share if head is None else head)
        steps += (self.total_steps - step - of_head) * every
        steps += self.batches * self._of_batches.seconds
        return steps + (self.total_steps - step) * self._pauses.seconds + self.closing

    def _phase(self, step: int) -> Average:
        return self._of_head if step <= self.head_steps else self._later

    def _lap(self) -> float:
        noted, self._noted = self._noted, self.clock()
        return self._noted - noted


def max_steps(is_resident: bool, step_bytes: int) -> int:
    """The most steps that one call may run, for steps that take ``step_bytes`` bytes of images."""
    if is_resident:
        return MAX_STEPS_PER_CALL
    return max(1, min(MAX_STREAMED_STEPS, MAX_STREAMED_BYTES // step_bytes, MAX_STEPS_PER_CALL))


def ends_row(step: int) -> bool:
    """Whether a row ends after ``step`` steps; the first step is step 1."""
    return step % (1 << (step // SINGLE_STEPS).bit_length()) == 0


def measuring_interval(total_steps: int) -> int:
    """Return the steps between two measurements of a training of ``total_steps`` steps.

    It is a power of two, like the number of steps in a row of the curves.
    """
    interval = MAX_INTERVAL
    while interval > MIN_INTERVAL and total_steps < MIN_MEASUREMENTS * interval:
        interval //= 2
    return interval


def next_measured(step: int, interval: int) -> int:
    """Return the first step after ``step`` that is measured. It always ends a row of the curves."""
    measured = (step // interval + 1) * interval
    while not ends_row(measured):
        measured += interval
    return measured


@dataclass(frozen=True)
class Row:
    """The mean of each metric over the ``count`` steps that end with ``step``.

    ``steps_per_second`` is None if no step was timed.
    """

    step: int
    count: int
    means: list[float]
    steps_per_second: float | None


class MetricRows:
    """Collects the metrics of steps into rows."""

    def __init__(self) -> None:
        self._step = self._count = self._timed = 0
        self._total: Any = 0.0
        self._seconds = 0.0

    def restore(self, step: int, names: Sequence[str], state: Mapping[str, Any] | None) -> None:
        """Continue after ``step`` steps with a saved `state`; that of metrics with other names is ignored."""
        self._step = step
        if state and state.get("names") == list(names):
            self._count = int(state["count"])
            self._total = np.array([float.fromhex(value) for value in state["total"]])

    def add(self, metrics: NDArray[np.float32], seconds: float | None) -> list[Row]:
        """Add the metrics [steps, names] of consecutive steps and return the rows that end.

        ``seconds`` is the time that the steps took; None excludes them from the throughput.
        """
        rows: list[Row] = []
        for values in metrics.astype(np.float64):
            # One step at a time, so that the sum does not depend on the number of steps per call.
            self._total = self._total + values
            self._step, self._count = self._step + 1, self._count + 1
            if seconds is not None:
                self._timed, self._seconds = self._timed + 1, self._seconds + seconds / len(metrics)
            if ends_row(self._step):
                rows += self.cut()
        return rows

    def cut(self) -> list[Row]:
        """End the current row; return no row if it is empty."""
        if not self._count:
            return []
        speed = self._timed / max(self._seconds, 1e-9) if self._timed else None
        row = Row(self._step, self._count, (self._total / self._count).tolist(), speed)
        self._total, self._count, self._timed, self._seconds = 0.0, 0, 0, 0.0
        return [row]

    def state(self, names: Sequence[str]) -> dict[str, Any] | None:
        """The state to pass to `restore`, for JSON; None if the current row is empty."""
        if not self._count:
            return None
        # Hexadecimal text is exact, and it can be NaN, which JSON numbers cannot.
        total = [float(value).hex() for value in self._total]
        return {"names": list(names), "count": self._count, "total": total}
