"""Run all tasks: those of jobs, short tasks and inference servers.

The runner queues tasks until their devices are free, starts them on the executor of their pool, polls the active
ones in a single loop, and ends those that exceed their time. Its users follow a task
through a callback: the scheduler for jobs, `ShortTasks`, `InferenceServers`, and ``digits train``.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gevent
from gevent.event import Event

from digits.core.errors import explain
from digits.core.job import DeviceRequest
from digits.core.task import Failure, Handle, TaskState
from digits.runtime.executors.executor import Executor, Exit, Holder, Placement, Waiting, place
from digits.runtime.executors.pools import Executors
from digits.runtime.offload import begin_turn, end_long_turn, next_turn
from digits.runtime.task_outcome import verdict

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
# Longest time between two rounds.
IDLE_SECONDS = 1.0
# Pause between time slices of a run with a long backlog, which limits it to about half of the server's time.
BEHIND_SECONDS = 0.01
# Rounds are at least so far apart for each active run, all of which a round examines in about a twentieth of this.
ROUND_SECONDS_PER_RUN = 20e-6
# Polls take at most about this share of the server's time: if many tasks run, each is polled less often.
POLL_SHARE = 0.2
# How many polls determine the mean time of one.
COST_POLLS = 100
# Of the output of a task.
_LAST_BYTES = 64 * 1024
_LAST_LINES = 40


class Phase(enum.Enum):
    """The phase of a run."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(kw_only=True, eq=False)
class TaskRun:
    """One run of the task in ``folder``.

    It waits for the devices of ``request``, unless it has a ``placement`` already; pages show ``holder`` as their
    user. ``prepare`` writes the recipe for these devices, and may raise. ``follow`` is called every ``poll_seconds``,
    and when the task has ended. If it raises OSError, it is called again in the next round; if it returns False,
    after a short pause.

    ``number`` is the number of the run, which distinguishes it from earlier ones in the same folder. With
    ``may_exist``, an earlier server may have started it already. An ``owned`` run ends with
    the server; others keep running.

    ``queue_seconds`` and ``seconds`` limit the time in the queue and the running time. ``waiting`` is set while the
    executor has queued the run, which is not limited.
    """

    folder: Path
    request: DeviceRequest
    prepare: Callable[[Sequence[str]], object]
    follow: Callable[[TaskRun], object]
    placement: Placement | None = None
    holder: Holder | None = None
    number: int = 1
    may_exist: bool = False
    owned: bool = True
    queue_seconds: float | None = None
    seconds: float | None = None
    poll_seconds: float = POLL_SECONDS

    phase: Phase = field(default=Phase.QUEUED, init=False)
    handle: Handle | None = field(default=None, init=False)
    waiting: Waiting | None = field(default=None, init=False)
    # How it ended, or why it could not be started.
    exit: Exit | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)
    timed_out: Phase | None = field(default=None, init=False)
    stop_requested: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._settled = Event()
        self._since = time.monotonic()
        self._due = self._next_poll = 0.0
        self._is_stopped = self._is_behind = False
        self._problem = ""

    @property
    def devices(self) -> list[str]:
        return list(self.placement.devices) if self.placement else []

    @property
    def has_ended(self) -> bool:
        return self.phase is Phase.ENDED

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, although the process may still be exiting."""
        return bool(self._settled.is_set())

    def settle(self) -> None:
        """Record that the outcome is known, and wake all waiting greenlets."""
        self._settled.set()


class TaskRunner:
    """Runs tasks on ``executors``.

    While ``may_run`` returns False, nothing is started or polled. The callbacks in
    ``every_round`` are called in each round, before queued tasks start.

    `serve` runs the loop in a greenlet. Without it, as in ``digits train``, `wait` does the work.
    """

    def __init__(self, executors: Executors, may_run: Callable[[], bool] = lambda: True) -> None:
        self.executors = executors
        self.released = 0  # incremented when devices become free
        self.every_round: list[Callable[[], object]] = []
        self._may_run = may_run
        self._queue: list[TaskRun] = []
        self._active: list[TaskRun] = []
        # The folders of active runs.
        self._folders: set[Path] = set()
        # Mean time that a poll takes, in seconds.
        self._poll_cost = 0.0
        self._bell = Event()
        self._loop: gevent.Greenlet | None = None
        self._is_closed = False

    # Public interface

    def executor_of(self, run: TaskRun) -> Executor:
        """Return the executor on which ``run`` is, or will be, started."""
        return self.executors.of_run(run.request, run.handle)

    def last_lines(self, run: TaskRun, count: int = _LAST_LINES) -> list[str]:
        """Return the last lines of the output of a task that has ended."""
        text, _ = self.executor_of(run).output(run.folder, 0, _LAST_BYTES)
        return text.splitlines()[-count:]

    def failure_of(self, run: TaskRun, state: TaskState, noun: str) -> Failure | None:
        """Return why a run that has ended failed, or None if it finished or was stopped. Users know it as ``noun``."""
        if state.is_finished or run.stop_requested:
            return None
        if state.failure is not None:
            return state.failure
        if run.error is not None:
            known = explain(run.error) if isinstance(run.error, OSError) else None
            reason, hint = (known.message, known.hint) if known else (run.error, "")
            return Failure(f"The {noun} could not be started: {reason}", hint)
        failure = verdict(run.exit, state, self.last_lines(run))[1] if run.exit else None
        return failure or Failure(f"The {noun} ended early.")

    def submit(self, run: TaskRun) -> TaskRun:
        """Start ``run`` as soon as its devices are free, after those submitted before it.

        It waits for the end of an active run in the same folder.
        """
        if run.placement is not None:
            self._reserve(run, run.placement)
        self._queue.append(run)
        if self._is_closed:
            self.stop(run)
        else:
            self._start_queued()
        self.wake()
        return run

    def adopt(self, run: TaskRun, handle: Handle | None) -> TaskRun:
        """Follow a run with a ``placement`` that an earlier server started."""
        run.handle = handle
        if run.placement is not None:
            self._reserve(run, run.placement)
        run.phase = Phase.RUNNING
        self._activate(run)
        self.wake()
        return run

    def stop(self, run: TaskRun) -> None:
        """Ask ``run`` to stop, in whichever phase it is. Returns immediately; `follow` reports the end."""
        run.stop_requested = True
        if run.phase is Phase.QUEUED:
            run.exit = Exit(stopped=True)
            self._finish(run)
        elif run.phase is Phase.RUNNING:
            run.poll_seconds, run._due = min(run.poll_seconds, POLL_SECONDS), 0.0
            self._stop_process(run)
        self.wake()

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        """Kill the processes of all tasks in or below ``folder``; return whether they are gone in time."""
        deadline = time.monotonic() + self.executors.stop_seconds
        left = list(self.executors)
        while left := [executor for executor in left if not executor.clear(folder, handles)]:
            if time.monotonic() > deadline:
                return False
            self.pause(max(executor.poll_seconds for executor in left))
        return True

    def wait(self, run: TaskRun) -> None:
        """Wait until ``run`` is settled, which its end implies."""
        if self._loop is not None:
            run._settled.wait()
        while not run.is_settled:
            self.tick()
            if not run.is_settled:
                time.sleep(self._patience())

    def pause(self, seconds: float) -> None:
        """Let the loop run for ``seconds``."""
        if self._loop is None:
            self.tick()
            time.sleep(seconds)
        else:
            gevent.sleep(seconds)

    def wake(self) -> None:
        """Begin the next round now."""
        self._bell.set()

    def serve(self) -> None:
        """Run the loop in a greenlet until `close`."""
        self._loop = gevent.spawn(self._run)

    def close(self) -> None:
        """End the loop, and stop all owned tasks. Others keep running."""
        self._is_closed = True
        self._bell.set()
        if self._loop is not None:
            self._loop.join(timeout=5)
            self._loop = None
        for run in [*self._queue, *self._active]:
            if run.owned or run.phase is Phase.QUEUED:
                self.stop(run)
                run.settle()

    # The loop

    def tick(self) -> None:
        """One round: poll the active runs that are due, then start queued ones."""
        may_run = self._may_run()
        now = time.monotonic()
        begin_turn()
        for run in list(self._active):
            if run.phase is Phase.RUNNING and now >= run._due:
                run._due = self._next_due(run, now)
                if may_run:
                    began = time.monotonic()
                    self._poll(run, now)
                    self._poll_cost += (time.monotonic() - began - self._poll_cost) / COST_POLLS
                self._limit_time(run, now)
                if self._loop is not None:
                    next_turn() if run._is_behind else end_long_turn()
        if may_run:
            for call in self.every_round:
                call()
            self._start_queued()
        for run in list(self._queue):
            self._limit_time(run, now)

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self.tick()
            except Exception:
                log.exception("unexpected error in the task runner; continuing")
                gevent.sleep(1)
            self._bell.wait(timeout=self._patience())
            self._bell.clear()

    def _next_due(self, run: TaskRun, now: float) -> float:
        """Return when to poll ``run`` again. All that wait at an executor are polled in the same rounds."""
        if run.waiting is None or run.stop_requested:
            return now + max(run.poll_seconds, self._poll_cost * len(self._active) / POLL_SHARE)
        return _next_multiple(now, self.executor_of(run).poll_seconds)

    def _patience(self) -> float:
        """Seconds until the next run is due."""
        due = [run._due for run in self._active if run.phase is Phase.RUNNING]
        shortest = max(BEHIND_SECONDS, ROUND_SECONDS_PER_RUN * len(self._active))
        return min(IDLE_SECONDS, max(shortest, min(due) - time.monotonic())) if due else IDLE_SECONDS

    def _start_queued(self) -> None:
        for run in list(self._queue):
            if not self._can_start(run):
                continue
            placement = run.placement or place(self.executor_of(run).ledger, run.request, run.holder)
            if placement is None:
                continue
            # Listing the devices may yield, so another greenlet may have started or stopped the run.
            if not self._can_start(run):
                self._release(run, placement)
                continue
            run.placement = placement
            self._queue.remove(run)
            self._activate(run)
            run.phase = Phase.STARTING
            if self._loop is None:
                self._start(run)
            else:
                gevent.spawn(self._start, run)  # so that a slow executor does not delay other tasks

    def _can_start(self, run: TaskRun) -> bool:
        # The end of a run is known once none of the processes in its folder runs.
        return run.phase is Phase.QUEUED and run.folder not in self._folders

    def _activate(self, run: TaskRun) -> None:
        self._active.append(run)
        self._folders.add(run.folder)

    def _reserve(self, run: TaskRun, placement: Placement) -> None:
        self.executor_of(run).ledger.reserve(placement, run.holder)

    def _release(self, run: TaskRun, placement: Placement) -> None:
        self.executor_of(run).ledger.release(placement)
        self.released += 1

    def _start(self, run: TaskRun) -> None:
        executor = self.executor_of(run)
        try:
            handle = executor.find(run.folder, run.number) if run.may_exist else None
            if handle is None and run.stop_requested:
                run.exit = Exit(stopped=True)
            elif handle is None and run.placement is not None:
                run.prepare(run.devices)
                handle = executor.start(run.folder, run.placement, run=run.number, owned=run.owned)
            run.handle = self.executors.signed(executor, handle) if handle else None
        except Exception as error:
            run.error = error
            # A process may have been started before the error.
            with contextlib.suppress(OSError):
                executor.clear(run.folder)
            self._finish(run)
            return
        run.phase = Phase.RUNNING
        run._since = time.monotonic()
        if run.stop_requested:
            self._stop_process(run)
        self.wake()

    def _poll(self, run: TaskRun, now: float) -> None:
        if run.stop_requested and not run._is_stopped:
            self._stop_process(run)
        waited = run.waiting
        # Poll before the events are read, so that no event written before the exit is missed.
        try:
            self._ask_executor(run, now)
        except OSError as error:
            self._note(run, str(error))
            return
        if run.exit is not None:
            self._finish(run)
        elif run.waiting is None or run.waiting != waited or run._problem:
            self._call_follow(run)

    def _ask_executor(self, run: TaskRun, now: float) -> None:
        if run.exit is not None or now < run._next_poll:
            return
        executor = self.executor_of(run)
        run._next_poll = _next_multiple(now, executor.poll_seconds)
        state = executor.poll(run.folder, run.handle)
        if isinstance(state, Waiting):
            run.waiting, run._since = state, now
            run._due = min(run._due, run._next_poll)
        else:
            run.waiting, run.exit = None, state

    def _limit_time(self, run: TaskRun, now: float) -> None:
        limit = run.queue_seconds if run.phase is Phase.QUEUED else run.seconds
        if limit is None or run.timed_out or run.has_ended or now - run._since <= limit:
            return
        run.timed_out = run.phase
        self.stop(run)
        run.settle()

    def _stop_process(self, run: TaskRun) -> None:
        try:
            if run.handle is not None:
                self.executor_of(run).stop(run.handle)
            run._is_stopped = True
        except OSError as error:
            self._note(run, f"could not be stopped: {error}")  # retried in the next round

    def _finish(self, run: TaskRun) -> None:
        """End ``run``, unless `follow` has to be called again."""
        phase, run.phase = run.phase, Phase.ENDED
        if not self._call_follow(run) and phase is Phase.RUNNING:
            run.phase = phase
            return
        if run in self._queue:
            self._queue.remove(run)
        if run in self._active:
            self._active.remove(run)
            self._folders.discard(run.folder)
        if run.placement is not None:
            self._release(run, run.placement)
        run.settle()
        self.wake()

    def _call_follow(self, run: TaskRun) -> bool:
        """Call ``run.follow``; return whether it is up to date."""
        try:
            run._is_behind = run.follow(run) is False
            if run._is_behind:
                run._due = time.monotonic() + BEHIND_SECONDS
                return False
        except OSError as error:
            self._note(run, str(error))
            return False
        except Exception:
            log.exception("unexpected error while following the task in %s", run.folder)
        else:
            run._problem = ""
        return True

    def _note(self, run: TaskRun, problem: str) -> None:
        """Log a temporary problem once."""
        if run._problem != problem:
            run._problem = problem
            log.warning("the task in %s is delayed: %s", run.folder, problem)


def _next_multiple(now: float, interval: float) -> float:
    """Return the first multiple of ``interval`` after ``now``."""
    return now - now % interval + interval
