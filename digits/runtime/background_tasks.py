"""Background tasks of finished jobs, such as the health checks of datasets and the evaluations of models.

A task belongs to the server and stops with it. Its result is in the job's folder; a task that did not finish is
started again when its result is needed.
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

KEPT_FAILURES = 100


class BackgroundTasks:
    """Runs tasks of one type, each in the folder ``task_folder`` of its job; a job has at most one at a time.

    ``pool`` limits how many run at the same time, ``noun`` names a task in messages. ``report`` is called with the job
    when there is progress, and at the end.
    """

    def __init__(
        self,
        runner: TaskRunner,
        pool: str,
        task_folder: str,
        noun: str,
        report: Callable[[Job], object],
    ) -> None:
        self._runner, self._report = runner, report
        self._pool, self._task_folder, self._noun = pool, task_folder, noun
        self._active: dict[str, tuple[TaskRun, TaskState]] = {}
        self._failures: dict[str, Failure] = {}

    def start(self, job: Job, recipe: Recipe) -> None:
        """Run ``recipe`` for ``job`` as soon as the pool permits, unless a task of the job has already been started."""
        if job.id in self._active:
            return
        self._failures.pop(job.id, None)
        folder = job.folder / self._task_folder
        state = TaskState(doing=f"Waiting for other {self._noun}s")
        run = TaskRun(
            folder=folder,
            allocate=lambda: self._runner.ledger.reserve_slot(self._pool),
            prepare=lambda devices: self._prepare(recipe, folder, state, devices),
            follow=lambda run: self._follow(job, state, run),
        )
        self._active[job.id] = run, state
        self._runner.submit(run)

    def stop(self, job_id: str) -> None:
        """Stop the task of a job, if it is waiting or running."""
        found = self._active.pop(job_id, None)
        self._failures.pop(job_id, None)
        if found is not None:
            self._runner.stop(found[0])

    def state(self, job_id: str) -> TaskState | None:
        """Return the state of a task that is waiting or running."""
        found = self._active.get(job_id)
        return found[1] if found else None

    def failure(self, job_id: str) -> Failure | None:
        """Return why the latest task failed."""
        return self._failures.get(job_id)

    def _prepare(self, recipe: Recipe, folder: Path, state: TaskState, devices: Sequence[str]) -> None:
        make_folder(folder)
        # That of an earlier server may still be exiting.
        if not self._runner.clear(folder):
            raise Unavailable(f"The previous {self._noun} of this job did not exit.")
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
            f"The {self._noun} could not be started: {run.error}"
            if run.error
            else f"The {self._noun} ended early."
        )
