"""Run several workers on this machine, to measure them before a training is queued.

As a program, it is the second of two workers that add arrays as often as the first one does:

    python -P -m digits.worker.gang.loopback FOLDER BYTES REPETITIONS
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from digits.core.task import RANK_VARIABLE, WORKERS_VARIABLE
from digits.worker.failure import PartnerLost
from digits.worker.gang.rendezvous import Rendezvous
from digits.worker.gang.ring import connect

REPETITIONS = 7
POLL_SECONDS = 0.05


def measure_sum(size: int) -> float:
    """Return the median time of a sum of ``size`` bytes over two workers, in seconds.

    Raises PartnerLost if the other one does not come.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", __name__, folder, str(size), str(REPETITIONS)]
        with _running([command], first_rank=1, workers=2):
            return _sums(Rendezvous(Path(folder), rank=0, workers=2), size, REPETITIONS)


def run_workers(
    task_folder: Path, workers: int, seconds: float, step_of_one: Callable[[], float], longest_step: float
) -> str:
    """Run the task in ``task_folder`` by several workers; return why that failed, empty if it did not.

    When the first one calls the function of `ask_parent`, ``step_of_one`` is called in a thread of this process. The
    workers are ended after ``seconds``, or if that call takes longer than ``longest_step`` seconds. It is then not
    waited for.
    """
    command = [sys.executable, "-P", "-m", "digits.worker", str(task_folder)]
    answers = _Answers(_turns(task_folder, 0), step_of_one)
    with _running([command] * workers, first_rank=0, workers=workers) as processes:
        answers.start()
        deadline = time.monotonic() + seconds
        while any(codes := [process.poll() for process in processes]) or None in codes:
            if code := next(filter(None, codes), 0):
                return f"one ended with exit code {code}"
            if time.monotonic() > deadline:
                return f"they took longer than {seconds:.0f} seconds"
            if answers.step_seconds > longest_step:
                return f"a step of one worker did not end within {longest_step:.0f} seconds"
            time.sleep(POLL_SECONDS)
    return ""


def ask_parent(task_folder: Path) -> Callable[[], float]:
    """Return a function with which the first of the workers of `run_workers` calls ``step_of_one`` in its parent."""
    ring = connect(_turns(task_folder, 1))

    def ask() -> float:
        ring.reduce(np.zeros(1))  # it is the parent's turn
        return float(ring.reduce(np.zeros(1))[0])

    return ask


class _Answers(threading.Thread):
    """Answers the calls of a worker until it ends. It notices if a step fails."""

    def __init__(self, meeting: Rendezvous, step_of_one: Callable[[], float]) -> None:
        super().__init__(daemon=True)
        self._meeting, self._step_of_one = meeting, step_of_one
        self._began = math.inf

    @property
    def step_seconds(self) -> float:
        """The time since the beginning of the step that is being taken; negative if there is none."""
        return time.monotonic() - self._began

    def run(self) -> None:
        with contextlib.suppress(OSError, PartnerLost), contextlib.closing(connect(self._meeting)) as ring:
            while True:
                ring.reduce(np.zeros(1))
                self._began = time.monotonic()
                seconds = self._step_of_one()
                self._began = math.inf
                ring.reduce(np.array([seconds]))


def _turns(task_folder: Path, rank: int) -> Rendezvous:
    return Rendezvous(task_folder / "turns", rank, workers=2)


@contextlib.contextmanager
def _running(
    commands: Sequence[Sequence[str]], first_rank: int, workers: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run programs as workers, whose output is this process's; kill those left at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank, command in enumerate(commands, first_rank):
            environment = os.environ | {RANK_VARIABLE: str(rank), WORKERS_VARIABLE: str(workers)}
            started.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def _sums(meeting: Rendezvous, size: int, repetitions: int) -> float:
    ring, values, taken = connect(meeting), np.ones(max(1, size // 4), np.float32), []
    for _ in range(repetitions):
        began = time.perf_counter()
        ring.reduce(values)
        taken.append(time.perf_counter() - began)
    ring.close()
    return float(np.median(taken))


if __name__ == "__main__":
    _sums(Rendezvous(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
