"""Schedule tasks: start them, follow their events and record how they end.

Decisions are made by pure functions (`choose`, `verdict`); a single
greenlet acts on them, and only it changes the status of tasks.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import gevent
from gevent.event import Event as Bell

from digits.core import events, recipe
from digits.core.errors import NotReady, explain
from digits.core.files import UnreadableFile, make_folder, remove_halves
from digits.core.job import DamagedJob, DeviceRequest, Job
from digits.core.metrics import Metrics
from digits.core.status import Status
from digits.core.task import EVENTS_FILE, EXIT_BUSY, EXIT_DISK_FULL, Failure, Task, TaskState
from digits.runtime import changes
from digits.runtime import task_output as output
from digits.runtime.executor import Executor, Exit, devices_environment
from digits.runtime.store import Store

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
OUTPUT_SECONDS = 1.0
PROGRESS_SECONDS = 0.25
SPARKLINE_SECONDS = 2.0
# Time limit for the processes of a job to exit before it is deleted.
STOP_SECONDS = 10.0
METRICS_KEPT = 32


@dataclass
class Resources:
    """Free resources: slots of the ``create`` and ``cpu`` pools, and GPU indexes.

    ``gpus`` None means that the machine has no GPU at all.
    """

    slots: dict[str, int]
    gpus: list[str] | None = None
    known_gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Start:
    """Start ``task`` on ``devices``."""

    job: Job
    task: Task
    devices: list[str]


@dataclass
class Choice:
    """A scheduling decision: tasks to start, why others wait, and which can never start."""

    start: list[Start] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    unsatisfiable: dict[str, Failure] = field(default_factory=dict)


def choose(waiting: Iterable[Job], find: Callable[[str], Job | None], free: Resources) -> Choice:
    """Choose the tasks of the ``waiting`` jobs (oldest first) to start on ``free`` resources."""
    choice = Choice()
    for job in waiting:
        needed = [(job_id, find(job_id)) for job_id in job.needs()]
        failed = next((need for need in needed if _can_never_be_used(need[1])), None)
        if failed:
            choice.unsatisfiable[job.id] = _why_unsatisfiable(failed[1])
            continue
        pending = next((need for _, need in needed if need and need.status is not Status.DONE), None)
        if pending:
            choice.waiting[job.id] = f"the dataset “{pending.name}”"
            continue
        _choose_tasks(job, free, choice)
    return choice


def _choose_tasks(job: Job, free: Resources, choice: Choice) -> None:
    for task in job.tasks:
        if task.status not in (Status.INIT, Status.WAIT):
            continue
        request = job.device_request(task)
        missing = [gpu for gpu in request.chosen if gpu not in free.known_gpus]
        if missing:
            choice.unsatisfiable[job.id] = Failure(
                f"This machine has no GPU {', '.join(missing)}.", "Clone the model and choose another device."
            )
            return
        devices = _take(request, free)
        if devices is None:
            choice.waiting[job.id] = _what_is_missing(request)
        else:
            choice.start.append(Start(job, task, devices))


def _take(request: DeviceRequest, free: Resources) -> list[str] | None:
    """Allocate the requested devices from ``free``; None if they are unavailable."""
    if request.pool == "gpu" and free.gpus is not None:
        chosen = list(request.chosen) or free.gpus[: request.count]
        if len(chosen) < request.count or any(gpu not in free.gpus for gpu in chosen):
            return None
        free.gpus = [gpu for gpu in free.gpus if gpu not in chosen]
        return chosen
    pool = "cpu" if request.pool == "gpu" else request.pool
    if free.slots.get(pool, 0) < 1:
        return None
    free.slots[pool] -= 1
    return ["cpu"]


def _what_is_missing(request: DeviceRequest) -> str:
    if request.chosen:
        return f"GPU {', '.join(request.chosen)}"
    return {"gpu": "a free GPU", "cpu": "the CPU, which trains another model"}.get(
        request.pool, "another dataset to be finished"
    )


def _can_never_be_used(job: Job | None) -> bool:
    return job is None or job.status in (Status.ABORT, Status.ERROR)


def _why_unsatisfiable(needed: Job | None) -> Failure:
    if needed is None:
        return Failure("The dataset was deleted.", "Clone the model and choose another dataset.")
    how = "failed" if needed.status is Status.ERROR else "was aborted"
    if isinstance(needed, DamagedJob):
        how = "is damaged"
    return Failure(f"The dataset “{needed.name}” {how}.", "Create the dataset again, then clone this model.")


def verdict(ended: Exit, state: TaskState, last_lines: list[str]) -> tuple[Status, Failure | None]:
    """The final status of a task, from its exit, its events, and the last lines of its output."""
    # A signal that comes after the end of the work does no harm.
    if state.is_finished and (ended.went_well or ended.code is None):
        return Status.DONE, None
    if ended.stopped:
        return Status.ABORT, None
    if state.failure and ended.code != EXIT_BUSY:  # which told nothing of its own
        return Status.ERROR, state.failure
    return Status.ERROR, Failure(*_why(ended, last_lines))


def _why(ended: Exit, last_lines: list[str]) -> tuple[str, str]:
    tail = "\n".join(last_lines)
    said = f"Last lines of its output:\n{tail}" if tail else "It produced no output."
    if ended.damage:
        return f"The outcome of the task is unknown because its exit record is damaged: {ended.damage}.", said
    if ended.lost:
        return "The task's process is gone: it was killed, or the machine shut down.", said
    if ended.out_of_memory:
        return "The machine ran out of memory, and the kernel killed the task.", (
            "Choose a smaller batch size, smaller images or a smaller network."
        )
    if ended.disk_full or ended.code == EXIT_DISK_FULL:
        return (
            "The disk is full.",
            f"Free up space on the disk with the jobs folder, then start the job again. {said}",
        )
    if ended.signal is not None:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:
            name = "unknown"
        return f"The task crashed (signal {ended.signal}, {name}).", said
    if ended.code == EXIT_BUSY:
        return "Another process, such as digits train, works on this job already.", (
            "Wait for its end, or stop it."
        )
    if ended.code == 0:
        return "The task ended early: something called exit before all work was done.", said
    return f"The task ended early with exit code {ended.code}.", said


class Scheduler:
    """Runs the jobs of a store with an executor and notifies browsers through ``report``.

    ``gpus`` names the GPUs of the machine; ``slots`` is the size of the pools
    ``create`` and ``cpu``.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        report: changes.Report,
        gpus: Callable[[], list[str]] = list,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._report = report
        self._gpus = gpus
        self._slots = dict(slots or {"create": 1, "cpu": 1})
        self._bell = Bell()
        self._loop: gevent.Greenlet | None = None
        self._stopping = False
        self._followed: dict[str, _Follower] = {}
        self._metrics: OrderedDict[str, Metrics] = OrderedDict()
        self._aborting: set[str] = set()
        self._reported_errors: dict[str, str] = {}

    # Public interface

    def start(self) -> None:
        """Resume scheduling the jobs of the store, and schedule new ones as they are submitted."""
        for job in self._store.all(Job):
            with self._isolated(job):
                if job.tasks:
                    self._status_changed(job)
                if job.status.is_running:
                    self._catch_up(job)
        self._loop = gevent.spawn(self._run)

    def stop(self) -> None:
        """Stop the scheduler. Processes of jobs keep running."""
        self._stopping = True
        self._bell.set()
        if self._loop:
            self._loop.join(timeout=5)

    def submit(self, *new: Job) -> None:
        """Submit new jobs, all or none. Each one starts as soon as its requirements are met; raises OSError."""
        self._store.add(*new)
        for job in new:
            self._report(changes.JobAdded(job))
        self._bell.set()

    def abort(self, job: Job) -> bool:
        """Ask all tasks of ``job`` to stop; False if it had ended already."""
        if not job.status.is_running:
            return False
        self._aborting.add(job.id)
        for task in job.tasks:
            if task.status is Status.RUN and task.handle:
                self._executor.stop(task.handle)
        self._bell.set()
        return True

    def resume(self, job: Job) -> None:
        """Resume a job that was stopped or failed; raises OSError, leaving it unchanged."""
        self._store.edit(job)  # first: nothing after this can fail
        job.resume()
        with contextlib.suppress(OSError):
            self._catch_up(job)  # its pages show its previous progress until it runs
        self._metrics.pop(job.id, None)
        self._status_changed(job)
        self._bell.set()

    def remove(self, job: Job) -> None:
        """Delete ``job`` after killing its processes; raises InUse, or NotReady if they do not exit."""
        self._store.check_deletable(job)
        if self.abort(job):
            _wait(lambda: not job.status.is_running)
        handles = [task.handle for task in job.tasks if task.handle]
        if not _wait(lambda: self._executor.clear(job.folder, handles)):
            raise NotReady(f"A process of “{job.name}” does not exit.", "Try again in a moment.")
        self._store.remove(job)
        self._metrics.pop(job.id, None)
        self._report(changes.JobDeleted(job))

    def metrics(self, job: Job) -> Metrics:
        """The metrics of ``job``."""
        metrics = self._metrics.get(job.id)
        if metrics is None:
            metrics = Metrics()
            for task in job.tasks:
                # A task that is being followed adds the rest as it applies its events.
                until = task.state.cursor if task.status is Status.RUN else None
                log_file = job.task_folder(task) / EVENTS_FILE
                happened, metrics.cursor = events.read(log_file, until=until)
                for event in happened:
                    metrics.add(event)
            self._keep_metrics(job, metrics)
        self._metrics.move_to_end(job.id)
        return metrics

    def task_state(self, job: Job, task: Task) -> TaskState:
        """The state of ``task``, read from its log if it is not being followed."""
        if task.state.cursor == 0:
            self._catch_up(job)
        return task.state

    def free_devices(self, wanted: str) -> list[str]:
        """The devices for a short look at ``wanted``, as the model form names it; the CPU if they are busy."""
        free = [gpu for gpu in self._gpus() if gpu not in self.busy_gpus()]
        if wanted == "cpu" or not free:
            return ["cpu"]
        if wanted.startswith("next"):
            return free[:1]
        chosen = wanted.split(",")
        return chosen if all(gpu in free for gpu in chosen) else ["cpu"]

    def busy_devices(self) -> dict[str, Job]:
        """The devices in use, including ``cpu``, each with one of the jobs that use it."""
        return {
            device: job
            for job in self._store.running()
            for task in job.tasks
            if task.status is Status.RUN
            for device in task.devices
        }

    def busy_gpus(self) -> dict[str, Job]:
        """The GPUs in use, each with the job that uses it."""
        return {device: job for device, job in self.busy_devices().items() if device != "cpu"}

    # The loop

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.tick()
            except Exception:
                log.exception("the scheduler stumbled and goes on")
                gevent.sleep(1)
            self._bell.wait(timeout=TICK_SECONDS if self._followed else 1.0)
            self._bell.clear()

    def tick(self) -> None:
        """One round: follow running tasks, finish those that exited, start those that can start."""
        if not self._store.maintain():
            return
        for job in self._store.running():
            with self._isolated(job):
                self._advance(job)
        waiting = [
            job
            for job in self._store.running()
            if any(task.status in (Status.INIT, Status.WAIT) for task in job.tasks)
        ]
        if waiting:
            self._act(choose(waiting, self._store.find, self._free()), waiting)

    @contextlib.contextmanager
    def _isolated(self, job: Job) -> Iterator[None]:
        """Confine errors in this block to ``job``: they end this job and affect no other.

        Errors of the system, such as too many open files, are logged and retried in the next round.
        """
        try:
            yield
        except OSError as error:
            if self._reported_errors.get(job.id) != str(error):
                self._reported_errors[job.id] = str(error)
                log.warning("job %s is waiting: %s", job.id, error)
        except Exception as error:
            log.exception("unexpected error while scheduling job %s", job.id)
            try:
                self._break(
                    job, Failure(f"The server failed to process this job: {type(error).__name__}: {error}")
                )
            except Exception:
                log.exception("job %s could not be ended", job.id)

    def _break(self, job: Job, failure: Failure) -> None:
        """End ``job`` with ``failure`` and stop its running tasks."""
        for task in job.tasks:
            if task.status is Status.RUN and task.handle:
                self._executor.stop(task.handle)
            if task.status.is_running:
                task.failure = failure
                task.move(Status.ERROR)
        self._followed.pop(job.id, None)
        self._aborting.discard(job.id)
        job.waiting_for = ""
        self._status_changed(job)

    def _advance(self, job: Job) -> None:
        for task in job.tasks:
            # Raises for an invalid request here, where the error only affects this job.
            job.device_request(task)
            if task.status is Status.RUN:
                self._follow(job, task)
        job.needs()
        if job.id in self._aborting:
            self._abort_waiting(job)

    def _act(self, choice: Choice, waiting: list[Job]) -> None:
        for job in waiting:
            with self._isolated(job):
                if job.id in choice.unsatisfiable:
                    self._give_up(job, choice.unsatisfiable[job.id])
                elif job.id in choice.waiting:
                    self._wait(job, choice.waiting[job.id])
        for start in choice.start:
            with self._isolated(start.job):
                self._start_task(start)

    def _free(self) -> Resources:
        slots = dict(self._slots)
        known = self._gpus()
        busy = self.busy_gpus()
        for job in self._store.running():
            for task in job.tasks:
                if task.status is Status.RUN and task.devices == ["cpu"]:
                    pool = "create" if job.device_request(task).pool == "create" else "cpu"
                    slots[pool] -= 1
        gpus = [gpu for gpu in known if gpu not in busy] if known else None
        return Resources(slots, gpus, tuple(known))

    def _start_task(self, start: Start) -> None:
        job, task = start.job, start.task
        folder = job.task_folder(task)
        task.devices = start.devices
        try:
            make_folder(folder)
            task.handle = self._executor.find(folder, task.run)
            if task.handle is None:
                remove_halves(folder / recipe.FILE_NAME)
                job.recipe_for(task).save(folder)
                task.handle = self._executor.start(folder, devices_environment(start.devices), task.run)
        except OSError as error:
            known = explain(error)
            why = known.message if known else str(error)
            hint = known.hint if known else ""
            self._end(job, task, Status.ERROR, Failure(f"The task could not be started. {why}", hint))
            return
        task.move(Status.RUN)
        job.waiting_for = ""
        self._followed[job.id] = _Follower()
        self._status_changed(job)

    def _wait(self, job: Job, reason: str) -> None:
        for task in job.tasks:
            if task.status is Status.INIT:
                task.move(Status.WAIT)
        if job.waiting_for != reason:
            job.waiting_for = reason
            self._status_changed(job, even_if_same=True)

    def _give_up(self, job: Job, failure: Failure) -> None:
        for task in job.tasks:
            if task.status in (Status.INIT, Status.WAIT):
                self._end(job, task, Status.ABORT, failure)

    def _abort_waiting(self, job: Job) -> None:
        for task in job.tasks:
            if task.status in (Status.INIT, Status.WAIT):
                self._end(job, task, Status.ABORT, None)

    # Following a task

    def _follow(self, job: Job, task: Task) -> None:
        follower = self._followed.setdefault(job.id, _Follower())
        folder = job.task_folder(task)
        # Poll before reading the log, so that no event written before the exit is missed.
        ended = self._executor.poll(folder, task.handle)
        self._read_news(job, task, follower)
        self._read_output(job, task, follower, at_once=ended is not None)
        if ended is not None:
            status, failure = verdict(ended, task.state, output.last_lines(folder, 40))
            self._end(job, task, status, failure, ended)

    def _read_news(self, job: Job, task: Task, follower: _Follower) -> None:
        metrics = self.metrics(job)
        happened = task.read_events(job.task_folder(task) / EVENTS_FILE)
        metrics.cursor = task.state.cursor
        if not happened:
            return
        for event in happened:
            metrics.add(event)
        self._report(changes.EventsApplied(job, task, happened))
        now = time.monotonic()
        if now - follower.progress_at >= PROGRESS_SECONDS:
            follower.progress_at = now
            self._report(changes.ProgressChanged(job))
        if metrics.train.steps and now - follower.sparkline_at >= SPARKLINE_SECONDS:
            follower.sparkline_at = now
            self._report(changes.CurveChanged(job, metrics))

    def _read_output(self, job: Job, task: Task, follower: _Follower, *, at_once: bool) -> None:
        now = time.monotonic()
        if not at_once and now - follower.output_at < OUTPUT_SECONDS:
            return
        follower.output_at = now
        folder = job.task_folder(task)
        text, follower.output = output.read(folder, follower.output, limit=16 * 1024)
        if text:
            self._report(changes.OutputWritten(job, task, text))

    def _catch_up(self, job: Job) -> None:
        """Fold the events logged while the server was down."""
        for task in job.tasks:
            task.read_events(job.task_folder(task) / EVENTS_FILE)

    def _end(
        self, job: Job, task: Task, status: Status, failure: Failure | None, ended: Exit | None = None
    ) -> None:
        """``ended`` holds the time of the exit, which may have been while the server was down."""
        # First, because it reads the log: if that fails, the next round retries all of this.
        metrics = self.metrics(job) if job.kind == "model" else None
        task.failure = failure
        task.move(status, ended.at if ended else None, ended.seconds if ended else None)
        self._followed.pop(job.id, None)
        job.waiting_for = ""
        if status is not Status.DONE:
            try:
                job.clear_away()
            except OSError as error:
                log.warning("the leftovers of job %s could not be removed: %s", job.id, error)
        if metrics is not None:
            job.summary.sparkline = metrics.sparkline()
            job.summary.last_accuracy = metrics.last_accuracy()
        self._status_changed(job, at=task.history[-1][1])
        if not job.status.is_running:
            self._aborting.discard(job.id)
        self._bell.set()

    def _status_changed(self, job: Job, *, even_if_same: bool = False, at: float | None = None) -> None:
        if not (job.note_status(at) or even_if_same):
            return
        try:
            self._store.save(job)
        except (ValueError, UnreadableFile):
            log.exception("job %s could not be saved", job.id)
        log.info("job %s: %s", job.id, job.status.title)
        self._report(changes.StatusChanged(job))
        self._report(changes.ProgressChanged(job))

    def _keep_metrics(self, job: Job, metrics: Metrics) -> None:
        self._metrics[job.id] = metrics
        while len(self._metrics) > METRICS_KEPT:
            oldest = next(iter(self._metrics))
            if oldest in self._followed:
                self._metrics.move_to_end(oldest)
                break
            del self._metrics[oldest]


def _wait(happens: Callable[[], bool]) -> bool:
    """Wait up to `STOP_SECONDS` for ``happens()``; return whether it became true."""
    deadline = time.monotonic() + STOP_SECONDS
    while not happens():
        if time.monotonic() > deadline:
            return False
        gevent.sleep(TICK_SECONDS)
    return True


@dataclass
class _Follower:
    """Times of the last messages about a running task."""

    output: int = 0
    output_at: float = 0.0
    progress_at: float = 0.0
    sparkline_at: float = 0.0
