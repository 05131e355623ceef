"""Schedule tasks of jobs: decide which one is next, and keep the state of jobs.

The decision is a pure function (`choose`). The task runner acts on it, and reports what happens to
each task; only the scheduler changes the status of tasks and jobs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from digits.core.errors import NotReady, explain
from digits.core.files import UnreadableFile, make_folder, remove_partial_writes
from digits.core.job import DamagedJob, DeviceRequest, Job
from digits.core.metrics.series import Metrics
from digits.core.model_job import ModelJob
from digits.core.recipe import FILE_NAME as RECIPE_FILE
from digits.core.status import Status
from digits.core.task import Failure, Task, TaskState
from digits.runtime import changes
from digits.runtime.executors.executor import Busy, Offer, Placement
from digits.runtime.offload import in_thread
from digits.runtime.store import Store
from digits.runtime.task_follower import TaskFollower, summarize
from digits.runtime.task_outcome import verdict
from digits.runtime.task_runner import Phase, TaskRun, TaskRunner
from digits.runtime.task_states import TaskStates

log = logging.getLogger(__name__)

# Waiting jobs are reconsidered after each change, and at this interval, because the list of GPUs may change.
DECIDE_SECONDS = 1.0
WAIT_SECONDS = 0.02


@dataclass(frozen=True)
class Candidate:
    """A job with tasks to start, the devices each one requests, and the jobs it depends on.

    A job that no longer exists is None in ``needs``.
    """

    job: Job
    tasks: Sequence[tuple[Task, DeviceRequest]]
    needs: Sequence[Job | None] = ()


@dataclass(frozen=True)
class Start:
    """Start ``task`` with the resources of ``placement``."""

    job: Job
    task: Task
    placement: Placement


@dataclass
class Choice:
    """A scheduling decision: tasks to start, why others wait, and which can never start."""

    start: list[Start] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    unsatisfiable: dict[str, Failure] = field(default_factory=dict)


def choose(candidates: Iterable[Candidate], offer_for: Callable[[DeviceRequest], Offer]) -> Choice:
    """Choose the tasks of the ``candidates`` (oldest first) to start.

    ``offer_for`` returns the free resources of the executor that a request uses.
    """
    choice = Choice()
    for candidate in candidates:
        job = candidate.job
        failed = [need for need in candidate.needs if _can_never_be_used(need)]
        if failed:
            choice.unsatisfiable[job.id] = _why_unsatisfiable(failed[0])
            continue
        pending = next((need for need in candidate.needs if need and need.status is not Status.DONE), None)
        if pending:
            choice.waiting[job.id] = f"the dataset “{pending.name}”"
            continue
        for task, request in candidate.tasks:
            taken = offer_for(request).take(request, job)
            if isinstance(taken, Placement):
                choice.start.append(Start(job, task, taken))
            elif isinstance(taken, Busy):
                choice.waiting[job.id] = taken.missing
            else:
                choice.unsatisfiable[job.id] = taken
                break
    return choice


def _can_never_be_used(job: Job | None) -> bool:
    return job is None or job.status in (Status.ABORT, Status.ERROR)


def _why_unsatisfiable(needed: Job | None) -> Failure:
    if needed is None:
        return Failure("The dataset was deleted.", "Clone the model and choose another dataset.")
    how = "failed" if needed.status is Status.ERROR else "was aborted"
    if isinstance(needed, DamagedJob):
        how = "is damaged"
    return Failure(f"The dataset “{needed.name}” {how}.", "Create the dataset again, then clone this model.")


class Scheduler:
    """Schedules the jobs of ``store`` on ``runner``, and reports what happens to them."""

    def __init__(
        self, store: Store, runner: TaskRunner, report: changes.Report = lambda change: None
    ) -> None:
        self._store = store
        self._runner = runner
        self._report = report
        self._runs: dict[tuple[str, str], TaskRun] = {}
        self._states = TaskStates(lambda job, task: (job.id, task.name) in self._runs)
        # Jobs that may have tasks to start, so that a decision does not examine those that only run.
        self._waiting: dict[str, Job] = {}
        self._problems: dict[str, str] = {}
        self._decided_at: tuple[int, float] | None = None

    # Public interface

    def start(self) -> None:
        """Resume scheduling the jobs of the store, and schedule new ones as they are submitted."""
        for job in self._store.all(Job):
            with self._isolated(job):
                if job.tasks:
                    self._status_changed(job)
                if job.status.is_running:
                    self._waiting[job.id] = job
                    self._catch_up(job)
                    self._adopt(job)
        self._runner.every_round.append(self._decide)

    def stop(self) -> None:
        """Start no more tasks. Processes of jobs keep running."""
        if self._decide in self._runner.every_round:
            self._runner.every_round.remove(self._decide)

    def submit(self, *new: Job) -> None:
        """Submit new jobs, all or none. Each one starts as soon as its requirements are met; raises OSError."""
        self._store.add(*new)
        for job in new:
            self._waiting[job.id] = job
            self._report(changes.JobAdded(job))
        self._reconsider()

    def abort(self, job: Job) -> bool:
        """Ask all tasks of ``job`` to stop; return False if it has already ended.

        Return when all processes have been asked, so that the request survives the end of the server. Raises
        NotReady if a task is still starting.
        """
        if not job.status.is_running:
            return False
        for task in job.tasks:
            run = self._runs.get((job.id, task.name))
            if run is not None:
                self._runner.stop(run)
            elif task.status in (Status.INIT, Status.WAIT):
                self._end(job, task, Status.ABORT, None)
        if not self._wait(lambda: not self._is_starting(job)):
            raise NotReady(f"A process of “{job.name}” is still starting.", "Try again in a moment.")
        return True

    def resume(self, job: Job, prepare: Callable[[], None] | None = None) -> None:
        """Resume a job that has ended; raises OSError, leaving it unchanged.

        ``prepare`` prepares it to run again, by default its method ``resume``.
        """
        self._store.edit(job)  # first, because nothing after this can fail
        (prepare or job.resume)()
        self._waiting[job.id] = job
        self._catch_up(job)  # its pages show its previous progress until it runs
        self._status_changed(job)
        self._reconsider()

    def remove(self, job: Job) -> None:
        """Delete ``job`` after killing its processes; raises InUse, or NotReady if they do not exit."""
        self._store.check_deletable(job)
        self.abort(job)
        handles = [task.handle for task in job.tasks if task.handle]
        has_ended = self._wait(lambda: not self._is_active(job))
        if not has_ended or not self._runner.clear(job.folder, handles) or self._is_active(job):
            raise NotReady(f"A process of “{job.name}” did not exit.", "Try again in a moment.")
        self._store.remove(job)
        self._states.forget(job)
        self._waiting.pop(job.id, None)
        self._problems.pop(job.id, None)
        self._report(changes.JobDeleted(job))

    def metrics(self, job: Job) -> Metrics:
        """Return the metrics of ``job``."""
        return self.task_state(job, job.tasks[0]).metrics if job.tasks else Metrics()

    def task_state(self, job: Job, task: Task) -> TaskState:
        """Return the state of ``task``, yielding to other greenlets while a long log is read."""
        return self._states.get(job, task)

    # Decisions

    def _reconsider(self) -> None:
        self._decided_at = None
        self._runner.wake()

    def _decide(self) -> None:
        """Start the tasks that can start, and end those that never can."""
        now, released = time.monotonic(), self._runner.released
        if self._decided_at and self._decided_at[0] == released and now < self._decided_at[1]:
            return
        self._decided_at = released, now + DECIDE_SECONDS
        if not self._waiting:
            return
        executors = self._runner.executors
        # May yield, so before the jobs are examined.
        offers = {id(executor): executor.ledger.offer() for executor in executors}
        candidates = list(self._candidates())
        choice = choose(candidates, lambda request: offers[id(executors.of(request))])
        for job in [candidate.job for candidate in candidates]:
            reason = choice.waiting.get(job.id)
            if reason and reason == job.waiting_for and job.status is Status.WAIT:
                continue
            with self._isolated(job):
                if job.id in choice.unsatisfiable:
                    self._give_up(job, choice.unsatisfiable[job.id])
                elif reason:
                    # Not written to the disk, which a sweep would keep busy: it means the same as before.
                    self._postpone(job, reason, saves=False)
        for start in choice.start:
            run = self._new_run(start.job, start.task, start.placement)
            run.may_exist = True
            self._runner.submit(run)

    def _candidates(self) -> Iterator[Candidate]:
        for job in self._store.in_order(self._waiting.values()):
            with self._isolated(job):
                tasks = [(task, job.device_request(task)) for task in self._startable(job)]
                for _, request in tasks:
                    self._runner.executors.of(request)  # raises ValueError if none can meet it
                if not tasks:
                    self._waiting.pop(job.id, None)
                else:
                    yield Candidate(job, tasks, [self._store.find(job_id) for job_id in job.needs()])

    def _startable(self, job: Job) -> list[Task]:
        return [
            task
            for task in job.tasks
            if task.status in (Status.INIT, Status.WAIT) and (job.id, task.name) not in self._runs
        ]

    def _postpone(
        self, job: Job, reason: str, expected_start: float | None = None, at: str = "", *, saves: bool = True
    ) -> None:
        for task in job.tasks:
            if task.status is Status.INIT:
                task.move(Status.WAIT)
        if job.wait_for(reason, expected_start, at):
            self._status_changed(job, even_if_same=True, saves=saves)

    def _give_up(self, job: Job, failure: Failure) -> None:
        for task in self._startable(job):
            self._end(job, task, Status.ABORT, failure)

    # Runs

    def _adopt(self, job: Job) -> None:
        """Follow the tasks that an earlier server started."""
        for task in job.tasks:
            # One with a handle may wait at the executor.
            if task.status is Status.RUN or (task.status is Status.WAIT and task.handle):
                placement = Placement(job.device_request(task), tuple(task.devices))
                self._runner.adopt(self._new_run(job, task, placement), task.handle)

    def _new_run(self, job: Job, task: Task, placement: Placement) -> TaskRun:
        executor = self._runner.executors.of_run(placement.request, task.handle)
        follower = TaskFollower(job, task, self._states, executor, self._report)
        run = TaskRun(
            folder=job.task_folder(task),
            request=placement.request,
            placement=placement,
            holder=job,
            prepare=partial(self._prepare, job, task),
            follow=partial(self._follow, job, task, follower),
            number=task.run,
            owned=False,
        )
        self._runs[job.id, task.name] = run
        return run

    def _prepare(self, job: Job, task: Task, devices: Sequence[str]) -> None:
        """Write the recipe of ``task``, which is about to start on ``devices``."""
        task.devices = list(devices)
        folder = job.task_folder(task)
        make_folder(folder)
        remove_partial_writes(folder / RECIPE_FILE)
        in_thread(job.recipe_for(task).save, folder)

    def _follow(self, job: Job, task: Task, follower: TaskFollower, run: TaskRun) -> bool:
        """Update ``job`` after a start, a poll or the end of ``run``; raises OSError to be called again.

        Return False to be called again soon, if the log is too long to read in one time slice.
        """
        try:
            if not self._advance(job, task, follower, run):
                return False
        except OSError:  # temporary, such as too many open files
            if run.error:
                self._forget(job, task)  # start it again in the next round
            raise
        except Exception as error:
            self._break(job, error)
        if run.has_ended:
            self._forget(job, task)
        return True

    def _advance(self, job: Job, task: Task, follower: TaskFollower, run: TaskRun) -> bool:
        """Return whether ``job`` is up to date."""
        if not task.status.is_running:
            return True  # the job has already failed
        if isinstance(run.error, OSError):
            known = explain(run.error)
            why, hint = (known.message, known.hint) if known else (str(run.error), "")
            self._end(job, task, Status.ERROR, Failure(f"The task could not be started. {why}", hint))
        elif run.error:
            raise run.error
        elif run.handle is None and task.status is not Status.RUN:
            self._end(job, task, Status.ABORT, None)
        elif run.waiting:
            # Why a job waits is not saved, and changes often.
            is_new = task.handle != run.handle or task.status is not Status.WAIT
            task.handle, task.devices = run.handle, run.devices
            task.move(Status.WAIT)
            at = getattr(self._runner.executor_of(run), "title", "the executor")
            self._postpone(job, run.waiting.reason, run.waiting.expected_start, at, saves=is_new)
        else:
            if task.status is not Status.RUN:
                self._started(job, task, run)
            if not follower.read(has_ended=run.exit is not None):
                return False
            if run.exit is not None:
                status, failure = verdict(run.exit, task.state, self._runner.last_lines(run))
                if isinstance(job, ModelJob):
                    summarize(job, task.state.metrics)
                    snapshot = in_thread(job.snapshots).default
                    job.summary.snapshot_values = dict(snapshot.metrics) if snapshot else {}
                self._end(job, task, status, failure, run.exit.at, run.exit.seconds)
        return True

    def _started(self, job: Job, task: Task, run: TaskRun) -> None:
        task.handle, task.devices = run.handle, run.devices
        task.move(Status.RUN)
        job.wait_for("")
        self._status_changed(job)

    def _end(
        self,
        job: Job,
        task: Task,
        status: Status,
        failure: Failure | None,
        at: float | None = None,
        seconds: float | None = None,
    ) -> None:
        """End ``task``; ``at`` is the time of its exit, which may have been while the server was down."""
        task.failure = failure
        if status is Status.DONE:
            job.summarize_products()
        task.move(status, at, seconds)
        job.wait_for("")
        if status is not Status.DONE:
            try:
                job.clear_away()
            except OSError as error:
                log.warning("the leftovers of job %s could not be removed: %s", job.id, error)
        self._status_changed(job, at=task.history[-1][1])
        self._reconsider()

    def _catch_up(self, job: Job) -> None:
        """Apply the first events of the log, or all if it is short. The rest is read on demand."""
        for task in job.tasks:
            with contextlib.suppress(OSError):
                self._states.advance(job, task)

    def _forget(self, job: Job, task: Task) -> None:
        self._runs.pop((job.id, task.name), None)
        self._waiting[job.id] = job  # the task may have to start again
        self._states.keep(job)
        self._reconsider()

    def _is_active(self, job: Job) -> bool:
        return job.status.is_running or any(job_id == job.id for job_id, _ in self._runs)

    def _is_starting(self, job: Job) -> bool:
        runs = (run for (job_id, _), run in self._runs.items() if job_id == job.id)
        return any(run.phase is Phase.STARTING for run in runs)

    # Errors

    @contextlib.contextmanager
    def _isolated(self, job: Job) -> Iterator[None]:
        """Confine errors in this block to ``job``: they end this job and affect no other.

        System errors, such as too many open files, are logged and retried in the next round.
        """
        try:
            yield
        except OSError as error:
            if self._problems.get(job.id) != str(error):
                self._problems[job.id] = str(error)
                log.warning("job %s is waiting: %s", job.id, error)
        except Exception as error:
            self._break(job, error)
        else:
            self._problems.pop(job.id, None)

    def _break(self, job: Job, error: Exception) -> None:
        """End ``job`` after an unexpected ``error``, and stop its running tasks."""
        log.error("unexpected error while scheduling job %s", job.id, exc_info=error)
        failure = Failure(f"The server failed to process this job: {type(error).__name__}: {error}")
        for task in job.tasks:
            run = self._runs.get((job.id, task.name))
            if task.status.is_running:
                task.failure = failure
                task.move(Status.ERROR)
            if run is not None and not run.has_ended:
                self._runner.stop(run)
        job.wait_for("")
        try:
            self._status_changed(job)
        except Exception:
            log.exception("job %s could not be ended", job.id)

    def _status_changed(
        self, job: Job, *, even_if_same: bool = False, at: float | None = None, saves: bool = True
    ) -> None:
        if not (job.update_status(at) or even_if_same):
            return
        try:
            if saves:
                self._store.save(job)
            else:
                self._store.index.update(job)
        except (ValueError, UnreadableFile):
            log.exception("job %s could not be saved", job.id)
        log.info("job %s: %s", job.id, job.status.title)
        self._report(changes.StatusChanged(job))
        self._report(changes.ProgressChanged(job))

    def _wait(self, happens: Callable[[], bool]) -> bool:
        """Wait for ``happens()`` while processes may take to exit; return whether it became true."""
        deadline = time.monotonic() + self._runner.executors.stop_seconds
        while not happens():
            if time.monotonic() > deadline:
                return False
            self._runner.pause(WAIT_SECONDS)
        return True
