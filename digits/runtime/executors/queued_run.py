"""A run of a `QueueExecutor`, and what follows for it from its files and from a listing of the queue."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from digits.core.task import Failure
from digits.runtime.executors import node_job
from digits.runtime.executors.cluster_queue import ClusterQueue, QueuedJob, Submission, load_attempt
from digits.runtime.executors.executor import Exit, Waiting
from digits.runtime.executors.exit_record import read_exit

log = logging.getLogger(__name__)

# A file of a run that the scheduler reports as ended may not be visible here yet, nor its end to the scheduler.
FILE_SECONDS = 10.0
# A job that has not begun is submitted again if this many listings in a row do not contain it: a scheduler that crashes
# forgets its latest submissions.
FORGOTTEN_LISTINGS = 3
# How often in a row a run is submitted whose program does not begin.
MAX_STARTS = 5
# Why a run waits whose latest attempt is in a phase.
_PHASES = {
    "waiting": "has not found enough free nodes yet",
    "interrupted": "has interrupted it and will start it again",
}


@dataclass
class QueuedRun:
    """A run on ``queue`` that has not ended. ``state`` is what `poll` returns. Times are those of a monotonic clock.

    ``name`` is that of the latest submission. ``seen_at`` is the time of the latest listing with its job, or of the
    submission; None if it is to be submitted. ``phase`` is that of the latest attempt, empty after a submission;
    ``starts`` counts submissions since an attempt.
    """

    queue: ClusterQueue
    folder: Path
    submission: Submission
    state: Exit | Waiting | None
    seen_at: float | None = None
    phase: str = ""
    begun_at: float = 0.0
    starts: int = 0
    stop_since: float | None = None
    is_killed: bool = False

    def __post_init__(self) -> None:
        self.name = self.queue.name_of(self.folder, self.submission)
        self.exit_path = str(self.folder / node_job.EXIT_FILE)
        self._attempt_path = str(self.folder / node_job.ATTEMPT_FILE)
        self._attempt_key: tuple[int, int] | None = None

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Exit)

    def wait(self, reason: str) -> None:
        """Note that it waits because the scheduler's title and ``reason``, as in “Slurm has accepted it”."""
        self.state = Waiting(f"{self.queue.title} {reason}")

    def read_files(self) -> None:
        """Note that it has ended, or that `node_job` has begun or interrupted an attempt.

        Cheap while nothing happens, because thousands of runs may wait.
        """
        if os.path.lexists(self.exit_path) and (ended := read_exit(self.folder, self.submission.run)):
            self.state = ended
            return
        try:
            status = os.stat(self._attempt_path)
        except OSError:
            return
        key = status.st_ino, status.st_mtime_ns
        if self.is_over or key == self._attempt_key:
            return
        self._attempt_key = key
        attempt = load_attempt(self.folder)
        if attempt.token == self.submission.token:
            self.begun_at, self.phase, self.starts = time.monotonic(), attempt.phase, 0
            self._show_phase()

    def _show_phase(self) -> None:
        if self.phase in _PHASES:
            self.wait(_PHASES[self.phase])
        else:
            self.state = None

    def see(self, job: QueuedJob, at: float) -> None:
        """Note that a listing that began ``at`` this time contains its active ``job``."""
        self.seen_at = at
        if job.status == "running":
            self._show_phase()
        elif job.is_pending and self.begun_at < at:
            self.state = self.queue.waiting(job, bool(self.phase))

    def miss(self, job: QueuedJob | None, at: float) -> None:
        """End it or submit it again: its ``job`` has ended, or is not in a listing that began ``at`` this time."""
        self.read_files()
        if self.is_over or self.seen_at is None:
            return
        seconds, title = at - self.seen_at, self.queue.title
        if self.stop_since is not None:
            if job or not self.phase or seconds >= FILE_SECONDS:
                self.state = Exit(stopped=True)
        elif seconds < self._patience(job):
            return
        elif job and job.status == "canceled":
            self.state = Exit(stopped=True, failure=Failure(*node_job.canceled(title)))
        elif job and job.status == "out of memory":
            self.state = Exit(out_of_memory=True)
        elif self.starts < MAX_STARTS or (job and job.status == "expired"):
            why = job.words if job else "its job is gone"
            log.info("submitting %s to %s again: %s", self.folder, title, why)
            self.wait(_PHASES["interrupted"])
            self.seen_at = None
        elif job:
            message = f"{title} job {job.id} ended without a result: {job.words}."
            hint = (
                f"The end of {title.lower()}.log in its folder may show why. The check of the compute target shows "
                "whether the nodes share the jobs folder and Python."
            )
            self.state = Exit(failure=Failure(message, hint))
        else:
            message = f"The job is no longer in {title}'s queue, and left no result."
            self.state = Exit(failure=Failure(message, f"{self.queue.lost_hint} Start it again."))

    def _patience(self, job: QueuedJob | None) -> float:
        """Return how long to wait for a record after the ``job`` has ended or disappeared, in seconds."""
        if job:
            return 0.0 if self.phase == "interrupted" or job.status == "expired" else FILE_SECONDS
        known = {"": FORGOTTEN_LISTINGS * self.queue.list_seconds, "interrupted": FILE_SECONDS}
        return known.get(self.phase, self.queue.lost_seconds)
