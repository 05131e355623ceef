"""Health checks of datasets, which run in the background: one at a time, with the lowest priority.

A check belongs to the server and stops with it. Its result is in the dataset's folder; a check that did not finish
is started again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from digits.core import events
from digits.core.errors import Unavailable
from digits.core.files import make_folder
from digits.core.job import Job
from digits.core.recipe import Recipe
from digits.core.task import EVENTS_FILE, Failure, TaskState
from digits.runtime.task_runner import TaskRun, TaskRunner

POOL = "health"
TASK_FOLDER = "check"
KEPT_FAILURES = 100


class HealthChecks:
    """Runs the checks. ``report`` is called with the job when there is progress, and at the end."""

    def __init__(self, runner: TaskRunner, report: Callable[[Job], object]) -> None:
        self._runner = runner
        self._report = report
        self._active: dict[str, tuple[TaskRun, TaskState]] = {}
        self._failures: dict[str, Failure] = {}

    def start(self, job: Job, recipe: Recipe) -> None:
        """Check the dataset ``job`` as soon as no other check runs, unless a check of it has already been started."""
        if job.id in self._active:
            return
        self._failures.pop(job.id, None)
        folder, state = job.folder / TASK_FOLDER, TaskState(doing="Waiting for other checks")
        run = TaskRun(
            folder=folder,
            allocate=lambda: self._runner.ledger.reserve_slot(POOL),
            prepare=lambda devices: self._prepare(recipe, folder, state, devices),
            follow=lambda run: self._follow(job, state, run),
        )
        self._active[job.id] = run, state
        self._runner.submit(run)

    def stop(self, job_id: str) -> None:
        """Stop the check of a dataset, if it is waiting or running."""
        found = self._active.pop(job_id, None)
        self._failures.pop(job_id, None)
        if found is not None:
            self._runner.stop(found[0])

    def state(self, job_id: str) -> TaskState | None:
        """Return the state of a check that is waiting or running."""
        found = self._active.get(job_id)
        return found[1] if found else None

    def failure(self, job_id: str) -> Failure | None:
        """Return why the latest check failed."""
        return self._failures.get(job_id)

    def _prepare(self, recipe: Recipe, folder: Path, state: TaskState, devices: Sequence[str]) -> None:
        make_folder(folder)
        # That of an earlier server may still be exiting.
        if not self._runner.clear(folder):
            raise Unavailable("The previous check of this dataset did not exit.")
        shutil.rmtree(folder)
        make_folder(folder)
        recipe.save(folder)
        state.doing = ""

    def _follow(self, job: Job, state: TaskState, run: TaskRun) -> bool:
        """Read new events; at the end, record the failure if there is one."""
        happened, is_complete = state.read(run.folder / EVENTS_FILE, time.monotonic() + events.TURN_SECONDS)
        current = self._active.get(job.id)
        if current is None or current[0] is not run:
            return is_complete
        if run.has_ended and is_complete:
            del self._active[job.id]
            failure = self._reason(run, state)
            if failure is not None:
                self._failures[job.id] = failure
                while len(self._failures) > KEPT_FAILURES:
                    del self._failures[next(iter(self._failures))]
        if happened or run.has_ended:
            self._report(job)
        return is_complete

    def _reason(self, run: TaskRun, state: TaskState) -> Failure | None:
        if state.is_finished or run.stop_requested:
            return None
        if state.failure is not None:
            return state.failure
        return Failure(
            f"The check could not be started: {run.error}" if run.error else "The check ended early."
        )
