"""How much faster several workers train than one, measured before the training is queued.

Workers that will run on this machine share its cores, so they are run for a few steps. Workers on a cluster have a
machine each: a step on the share of one worker is measured here, and so is the sum of the gradients over two workers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from digits.core import events, recipe
from digits.core.events import Failed, Finished
from digits.core.files import remove_tree
from digits.core.task import EVENTS_FILE
from digits.data.sources import count_of
from digits.worker.gang import loopback

SECONDS_FOR_WORKERS = 120.0
# Closer to the time of one worker than this is no gain.
LEAST_GAIN = 1.05
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Forecast:
    """The speed of ``workers``, ``speedup`` times that of one; a step takes ``seconds_per_step``."""

    workers: int
    seconds_per_step: float
    speedup: float
    message: str


def together(workers: int, alone: float, seconds: float) -> Forecast:
    """Compare workers on one machine, whose steps take ``seconds``, with one, whose steps take ``alone``."""
    speedup = alone / seconds
    return Forecast(workers, seconds, speedup, f"{_words(workers, speedup)}, measured on this machine.")


def apart(workers: int, alone: float, computing: float, adding: float, size: int) -> Forecast:
    """Compare workers on machines of their own with one, whose steps take ``alone`` seconds.

    A step on the share of a worker takes ``computing`` seconds, and the sum over two workers of ``size`` bytes, the
    gradients, ``adding`` seconds without a network.
    """
    factor = 2 * (workers - 1) / workers  # of its size that each worker sends
    speedups = [
        alone / (computing + max(adding * factor, size * factor / (speed * GIGABIT))) for speed in (10, 1)
    ]
    message = f"{_words(workers, speedups[0])} over a network of 10 Gbit/s"
    if speedups[1] < 0.9 * speedups[0]:
        message += f" ({speedups[1]:.1f} times with 1 Gbit/s)"
    return Forecast(
        workers,
        alone / speedups[0],
        speedups[0],
        f"{message}; steps and sums were measured on this machine.",
    )


def _words(workers: int, speedup: float) -> str:
    if speedup > LEAST_GAIN:
        return f"{workers} workers: about {speedup:.1f} times as fast as one"
    than = "slower than" if speedup < 1 / LEAST_GAIN else "no faster than"
    return f"{workers} workers: {than} one ({speedup:.1f} times as fast), so use one"


def step_of_workers(checked: recipe.Preflight, task_folder: Path) -> float | str:
    """Return the time of a step of the workers on this machine in seconds, or why it could not be measured."""
    cores = len(os.sched_getaffinity(0))
    if checked.workers > cores:
        return f"this machine has {count_of(cores, 'core')}, and each worker needs one."
    task = task_folder.with_name("workers")  # beside the network
    task.mkdir()
    msgspec.structs.replace(checked, workers=1).save(task)
    try:
        problem = loopback.run_workers(task, checked.workers, SECONDS_FOR_WORKERS)
        for event in events.read(task / EVENTS_FILE)[0]:
            if isinstance(event, Failed):
                return event.message
            if isinstance(event, Finished):
                return float(event.result["seconds_per_step"])
        return problem
    finally:
        remove_tree(task, ignore_errors=True)
