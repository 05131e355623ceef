"""Forecast how much faster several workers train than one, from measurements taken before the training is queued.

`measure_workers` runs workers that will share this machine. Workers on a cluster have a machine each: a step on the
share of one worker is measured here, and so is the sum of the gradients over two workers, unless the user requests that
`measure_workers` runs on the nodes.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import humanize
import msgspec

from digits.core import events, recipe
from digits.core.events import Failed, Finished
from digits.core.files import remove_tree
from digits.core.task import EVENTS_FILE
from digits.data.sources import count_of
from digits.worker.gang import loopback

SECONDS_FOR_WORKERS = 120.0
# A step counts as hung after these seconds plus this multiple of the time that it took before.
HUNG_SECONDS, HUNG_FACTOR = 20.0, 10
# Closer to the time of one worker than this is no gain.
LEAST_GAIN = 1.05
# Bounds that are further apart than this factor are shown in place of one number.
LARGE_SPREAD = 1.1
CONFIDENCE = 0.95
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Forecast:
    """The speed of ``workers``, ``speedup`` times that of one; a step takes ``seconds_per_step``.

    The speed-up is known to be from ``low`` to ``high``. The workers are ``is_faster`` unless one trains about as fast.
    ``nodes`` are the names of those on which it was measured, empty for an estimate.
    """

    workers: int
    seconds_per_step: float
    speedup: float
    message: str
    low: float
    high: float
    nodes: tuple[str, ...] = ()
    is_faster: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_faster", self.speedup > LEAST_GAIN)


def apart(workers: int, alone: float, computing: float, adding: float, size: int) -> Forecast:
    """Compare workers on machines of their own with one, whose steps take ``alone`` seconds.

    A step on the share of a worker takes ``computing`` seconds, and the sum over two workers of ``size`` bytes, the
    gradients, ``adding`` seconds without a network.
    """
    factor = 2 * (workers - 1) / workers  # of its size that each worker sends
    fast, slow = (
        alone / (computing + max(adding * factor, size * factor / (speed * GIGABIT))) for speed in (10, 1)
    )
    message = f"{_words(workers, fast)}, if the network between them has 10 Gbit/s"
    if slow < 0.9 * fast:
        message += f" ({slow:.1f} times with 1 Gbit/s)"
    message += ". That is assumed; steps and sums were measured on this machine."
    return Forecast(workers, alone / fast, fast, message, slow, fast)


@dataclass(frozen=True)
class Rounds:
    """What was measured in turns, in seconds: steps of one worker, of all ``workers``, and their sums alone.

    A sum adds ``size`` bytes of each worker. The workers are on ``nodes``, or without any on this machine.
    """

    workers: int
    alone: Sequence[float]
    together: Sequence[float]
    adding: Sequence[float]
    size: int
    nodes: Sequence[str]

    def forecast(self) -> Forecast:
        """Compare the workers with one.

        Both were measured in each round, so what slows a machine down for longer than a round does not change their
        ratio.
        """
        ratios = [one / all_ for one, all_ in zip(self.alone, self.together, strict=True)]
        speedup, (low, high) = statistics.median(ratios), median_interval(ratios)
        seconds, place = statistics.median(self.together), ", ".join(self.nodes) or "this machine"
        adding = min(statistics.median(self.adding), seconds)
        message = (
            f"{_words(self.workers, speedup, low, high)}, measured on {place}: a step takes "
            f"{_time(seconds)} instead of {_time(statistics.median(self.alone))}, {_time(adding)} of it to add "
            f"{humanize.naturalsize(self.size)} of each worker."
        )
        return Forecast(self.workers, seconds, speedup, message, low, high, tuple(self.nodes))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval between two of ``values`` that contains the median of their distribution.

    It does so with a probability of `CONFIDENCE`, or of less if there are fewer than six values, whatever the
    distribution is: the number of values below the median is binomial.
    """
    ordered, count = sorted(values), len(values)

    def misses(left_out: int) -> float:
        """Return the probability that the median is outside the interval without ``left_out`` values at each end."""
        return 2 * sum(math.comb(count, below) for below in range(left_out + 1)) / 2**count

    left_out = 0
    while 2 * left_out + 2 < count and misses(left_out + 1) <= 1 - CONFIDENCE:
        left_out += 1
    return ordered[left_out], ordered[-1 - left_out]


def _words(workers: int, speedup: float, low: float = math.inf, high: float = 0.0) -> str:
    if high > LARGE_SPREAD * low:
        range_ = f"{workers} workers: between {low:.1f} and {high:.1f} times as fast as one"
        return range_ if speedup > LEAST_GAIN else f"{range_}, so use one"
    if speedup > LEAST_GAIN:
        return f"{workers} workers: about {speedup:.1f} times as fast as one"
    than = "slower than" if speedup < 1 / LEAST_GAIN else "no faster than"
    return f"{workers} workers: {than} one ({speedup:.1f} times as fast), so use one"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def of_this_machine(
    checked: recipe.Preflight, task_folder: Path, step_of_one: Callable[[], float], alone: float
) -> dict[str, Any] | str:
    """Return the `Forecast` of the workers on this machine, or why they could not be measured.

    ``step_of_one`` takes steps of one worker, with all cores, and returns the seconds of each, which were ``alone``
    before.
    """
    cores = len(os.sched_getaffinity(0))
    if checked.workers > cores:
        return f"this machine has {count_of(cores, 'core')}, and each worker needs one."
    task = task_folder.with_name("workers")  # beside the network
    task.mkdir()
    msgspec.structs.replace(checked, workers=1).save(task)
    try:
        longest_step = HUNG_SECONDS + HUNG_FACTOR * alone
        problem = loopback.run_workers(task, checked.workers, SECONDS_FOR_WORKERS, step_of_one, longest_step)
        for event in events.read(task / EVENTS_FILE)[0]:
            if isinstance(event, Failed):
                return event.message
            if isinstance(event, Finished):
                return dict(event.result["workers"])
        return problem
    finally:
        remove_tree(task, ignore_errors=True)
