"""Background tasks of finished jobs, such as the health checks of datasets and the evaluations of models.

A task belongs to the server and stops with it. Its result is in the job's folder; a task that did not finish is
started again when its result is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from digits.core import events
from digits.core.errors import Unavailable
from digits.core.files import make_folder, remove_tree
from digits.core.job import DeviceRequest, Job
from digits.core.recipe import Recipe
from digits.core.task import EVENTS_FILE, Failure, TaskState
from digits.runtime.offload import in_thread
from digits.runtime.task_runner import Phase, TaskRun, TaskRunner

KEPT_FAILURES = 100


@dataclass(eq=False)
class BackgroundTask:
    """A task that is waiting or running: the ``key`` under which it was started, its recipe, state and run."""

    key: str
    recipe: Recipe
    state: TaskState
    run: TaskRun = field(init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started yet, because other tasks are running."""
        return self.run.phase is Phase.QUEUED

    @property
    def is_stopping(self) -> bool:
        return self.run.stop_requested


class BackgroundTasks:
    """Runs tasks of one type in the folder ``task_folder`` of their jobs, one at a time for each job.

    ``pool`` limits how many run at the same time, ``noun`` names a task in messages. ``report`` is called with the job
    and the key of the task when there is progress, and at the end.
    """

    def __init__(
        self, runner: TaskRunner, pool: str, task_folder: str, noun: str, report: Callable[[Job, str], object]
    ) -> None:
        self._runner, self._report = runner, report
        self._pool, self._task_folder, self._noun = pool, task_folder, noun
        self._tasks: dict[str, list[BackgroundTask]] = {}
        # By job and key; without a key, the latest failure since the job had no tasks.
        self._failures: dict[tuple[str, str | None], Failure] = {}

    def start(self, job: Job, recipe: Recipe, key: str = "") -> None:
        """Run ``recipe`` for ``job`` as soon as the pool permits, after the tasks of the job that were started before.

        Does nothing if a task of the job with the same ``key`` is waiting or running.
        """
        tasks = self.tasks(job.id)
        if any(task.key == key and not task.is_stopping for task in tasks):
            return
        self._failures.pop((job.id, key), None)
        if not tasks:
            self._failures.pop((job.id, None), None)
        folder = job.folder / self._task_folder
        compute = self._runner.executors.available(job.compute)
        task = BackgroundTask(key, recipe, TaskState(doing=f"Waiting for other {self._noun}s"))
        task.run = TaskRun(
            folder=folder,
            request=DeviceRequest(self._pool, compute=structs.replace(compute, workers=1)),
            prepare=lambda devices: self._prepare(recipe, folder, task.state, devices),
            follow=lambda run: self._follow(job, task),
        )
        self._tasks.setdefault(job.id, []).append(task)
        self._runner.submit(task.run)

    def stop(self, job_id: str, key: str | None = None) -> None:
        """Stop the task with the ``key``, by default all tasks of the job.

        A running task is listed until its process has ended, which may save results first.
        """
        for task in self.tasks(job_id):
            if key is None or task.key == key:
                if task.is_waiting:
                    self._remove(job_id, task)
                task.state.doing = "Stopping"
                self._runner.stop(task.run)
        for known in list(self._failures):
            if known[0] == job_id and (key is None or known[1] in (key, None)):
                del self._failures[known]

    def tasks(self, job_id: str) -> list[BackgroundTask]:
        """Return the tasks of a job that are waiting or running, in their order."""
        return list(self._tasks.get(job_id, ()))

    def task(self, job_id: str, key: str) -> BackgroundTask | None:
        """Return the task with the ``key`` that is waiting or running."""
        return next((task for task in self.tasks(job_id) if task.key == key), None)

    def state(self, job_id: str) -> TaskState | None:
        """Return the state of the first task that is waiting or running."""
        return next((task.state for task in self.tasks(job_id)), None)

    def failure(self, job_id: str, key: str | None = None) -> Failure | None:
        """Return why the latest task with the ``key`` failed.

        By default, return the latest failure among the tasks that were started since the job had none.
        """
        return self._failures.get((job_id, key))

    def _prepare(self, recipe: Recipe, folder: Path, state: TaskState, devices: Sequence[str]) -> None:
        make_folder(folder)
        # That of an earlier server may still be exiting.
        if not self._runner.clear(folder):
            raise Unavailable(f"The previous {self._noun} of this job did not exit.")
        in_thread(remove_tree, folder)
        make_folder(folder)
        recipe.save(folder)
        state.doing = ""

    def _follow(self, job: Job, task: BackgroundTask) -> bool:
        """Read new events; at the end, record the failure if there is one."""
        run, is_complete = task.run, True
        happened: list[events.Event] = []
        if run.handle is not None:  # otherwise, the log is that of another run
            deadline = time.monotonic() + events.TURN_SECONDS
            happened, is_complete = task.state.read(run.folder / EVENTS_FILE, deadline)
        if task.is_stopping:
            task.state.doing = "Stopping"
        if task not in self.tasks(job.id):
            return is_complete
        if run.has_ended and is_complete:
            self._remove(job.id, task)
            failure = self._runner.failure_of(run, task.state, self._noun)
            if failure is not None:
                self._failures |= {(job.id, task.key): failure, (job.id, None): failure}
                while len(self._failures) > KEPT_FAILURES:
                    del self._failures[next(iter(self._failures))]
        if happened or run.has_ended:
            self._report(job, task.key)
        return is_complete

    def _remove(self, job_id: str, task: BackgroundTask) -> None:
        self._tasks[job_id].remove(task)
        if not self._tasks[job_id]:
            del self._tasks[job_id]
