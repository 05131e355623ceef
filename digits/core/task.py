"""A task: the part of a job that one process performs, and its state.

The task's folder in its job's holds four files: ``recipe.json`` (what to do),
``events.jsonl`` (what happened), ``output.log`` (for users) and ``exit.json``
(how it ended), and `STOP_SECONDS_FILE` if it takes long to stop. The state of a task is
folded from its events; for a long log, it is saved in ``state.json`` (see `digits.core.saved_state`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from msgspec import Meta, Struct, field, structs

from digits.core import events
from digits.core.metrics.series import Metrics
from digits.core.schema import Count, Fraction, JsonObject, UnixTime
from digits.core.splits import Split
from digits.core.status import Status

EVENTS_FILE = "events.jsonl"
# How long the task takes to stop, in seconds, if that is longer than usual. The supervisor reads it.
STOP_SECONDS_FILE = "stop_seconds"
# Environment variables of a gang of processes that work on one task: the rank of each, from 0, and their number.
RANK_VARIABLE = "DIGITS_RANK"
WORKERS_VARIABLE = "DIGITS_WORKERS"
# Set if a cluster interrupted the run and starts it again: a training then resumes.
RESTARTED_VARIABLE = "DIGITS_RESTARTED"
# Distinguishes the attempts of a run on a cluster; unset locally.
ATTEMPT_VARIABLE = "DIGITS_ATTEMPT"
# The number of the run, which its exit record contains.
RUN_VARIABLE = "DIGITS_RUN"

# Exit code of a process after a Failed event.
EXIT_FAILED = 1
# Exit code of a process whose task another process is working on.
EXIT_BUSY = 75
# Exit code of a process of a gang that lost another one, or waited for it in vain. The task can run again.
EXIT_PARTNER_LOST = 76
# Exit code of a process that could not log its result because the disk is full.
EXIT_DISK_FULL = 74
# Limits on the size of a state, so that no log exhausts the memory or slows down pages.
MAX_NAMED_SKIPS = 20
MAX_TEXT = 4000
MAX_FRAMES = 200
MAX_GPUS = 64
MAX_WEIGHTS = 10_000
MAX_SNAPSHOTS = 5000

# Also the name of the task's folder.
TaskName = Annotated[str, Meta(pattern=r"^[a-z][a-z_]{0,31}\Z")]
Step = tuple[Status, UnixTime]
History = list[Step]
# Identifies a run across restarts of the server. Only the executor that made it reads its contents.
Handle = JsonObject
E = TypeVar("E", bound=events.Event)


class Failure(Struct):
    """Why a task failed, as shown to the user; see `digits.core.events.Failed`."""

    message: str
    hint: str = ""
    line: Count | None = None
    trace: list[events.Frame] = field(default_factory=list)
    detail: str = ""
    remedy: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return structs.asdict(self)


class Task(Struct, dict=True):
    """One task of a job. ``handle`` identifies its run across restarts of the server.

    ``seconds`` is the total time of the runs that have ended, by a monotonic clock.
    ``log_start`` is the cursor in the event log at which the current run begins.

    ``state`` is folded from the log up to ``state.cursor``. ``saved_cursor`` is the cursor of the saved state.
    """

    name: TaskName
    title: str
    history: History = field(default_factory=list)
    handle: Handle | None = None
    devices: list[str] = field(default_factory=list)
    failure: Failure | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    log_start: Count = 0

    def __post_init__(self) -> None:
        self.state, self.saved_cursor = TaskState(), 0
        if not self.history:
            self.history = [(Status.INIT, time.time())]
        if self.seconds is None:
            steps = zip(self.history, self.history[1:], strict=False)
            self.seconds = sum(max(0.0, end - at) for (status, at), (_, end) in steps if status is Status.RUN)
        # For a run that an earlier server process started, only the wall clock is available.
        self._ran_before = max(0.0, time.time() - self.history[-1][1])
        self._seen_since = time.monotonic()

    @property
    def status(self) -> Status:
        return self.history[-1][0]

    def move(self, status: Status, at: float | None = None, seconds: float | None = None) -> bool:
        """Change to ``status``; False if the task has it already. Raises ValueError for an illegal transition.

        ``at`` is the Unix time of the change, by default now; ``seconds`` is the duration of the run that it ends.
        """
        if status is self.status:
            return False
        if not self.status.may_become(status):
            raise ValueError(f"a task cannot change from {self.status.title} to {status.title}")
        last = self.history[-1][1]
        if self.status is Status.RUN:
            if seconds is None:
                seconds = self._seconds_of_this_run if at is None else max(0.0, at - last)
            self.seconds = (self.seconds or 0.0) + seconds
        self.history.append((status, not_before(last, at)))
        self._ran_before, self._seen_since = 0.0, time.monotonic()
        return True

    @property
    def run(self) -> int:
        """The number of the current run, counted from 1."""
        return sum(status is Status.INIT for status, _ in self.history)

    @property
    def seconds_run(self) -> float:
        """Total running time in seconds, over all runs."""
        ended = self.seconds or 0.0
        return ended + self._seconds_of_this_run if self.status is Status.RUN else ended

    @property
    def _seconds_of_this_run(self) -> float:
        return self._ran_before + time.monotonic() - self._seen_since

    def read_events(self, log: Path, deadline: float = math.inf) -> tuple[list[events.Event], bool]:
        """Update the state from ``log``, stopping at ``deadline`` (monotonic clock) but after at least one line.

        Return the new events, and whether the end of the log was reached.
        """
        earlier: list[events.Event] = []
        if self.state.cursor < self.log_start:
            # The result of an earlier run does not apply to this one.
            results = (events.Failed, events.Finished)
            earlier, is_complete = self.state.read(log, deadline, self.log_start, without=results)
            if not is_complete:
                return earlier, False
            self.log_start = self.state.cursor
        happened, is_complete = self.state.read(log, deadline)
        return [*earlier, *happened], is_complete

    def restart(self, log_start: int) -> None:
        """Prepare to run again after being stopped or failing; ``log_start`` is its log size in bytes."""
        self.move(Status.INIT)
        self.handle, self.failure, self.log_start = None, None, log_start
        self.devices = []
        self.forget_events()

    def forget_events(self) -> None:
        """Discard the state, except for the progress. `read_events` then folds the log from the start."""
        self.state, self.saved_cursor = TaskState(fraction=self.state.fraction), 0

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        return 1.0 if self.status is Status.DONE else self.state.fraction


def not_before(last: float, at: float | None) -> float:
    """Return ``at`` or the current Unix time, but not before ``last``: the clock may have been set back."""
    return max(last, time.time() if at is None else at)


class Counts(TypedDict):
    """The number of records of each class."""

    labels: list[str]
    counts: list[Count]


class Mark(Struct):
    """An event of a training at an ``epoch``, marked on its curves."""

    kind: Literal["phase", "warning"]
    epoch: float
    text: str


class TaskState(Struct):
    """The state of a task: its events folded up to ``cursor`` in the log.

    ``peak_memory`` and ``peak_gpu_memory`` are the largest samples in bytes, the latter over all GPUs of the task.
    """

    cursor: Count = 0
    fraction: Fraction = 0.0
    seconds_left: events.Seconds | None = None
    doing: str = ""
    counts: dict[Split, Counts] = field(default_factory=dict)
    skipped: Count = 0
    first_skips: list[events.Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    layers: list[events.Layer] = field(default_factory=list)
    parameters: Count | None = None
    latent: Count = 0
    inputs: dict[Split, events.InputPrepared] = field(default_factory=dict)
    loaded_weights: events.WeightsLoaded | None = None
    epochs: dict[str, float] = field(default_factory=dict)
    usage: events.UsageSampled | None = None
    peak_memory: Count = 0
    peak_gpu_memory: Count = 0
    failure: Failure | None = None
    result: JsonObject | None = None
    metrics: Metrics = field(default_factory=Metrics)
    marks: list[Mark] = field(default_factory=list)

    def apply(self, event: events.Event) -> None:
        """Fold one event in."""
        fold = _FOLDS.get(type(event))
        if fold:
            fold(self, event)

    def read(
        self,
        log: Path,
        deadline: float = math.inf,
        until: int | None = None,
        without: tuple[type[events.Event], ...] = (),
    ) -> tuple[list[events.Event], bool]:
        """Fold the events of ``log`` from the cursor to ``until``, except those of the types in ``without``.

        Return the events, and whether all were read before ``deadline`` (monotonic clock).
        """
        happened: list[events.Event] = []
        for event, end in events.each(log, self.cursor, until):
            self.cursor = end
            if event is not None:
                happened.append(event)
                if not isinstance(event, without):
                    self.apply(event)
            if time.monotonic() >= deadline:
                return happened, False
        return happened, True

    @property
    def snapshots(self) -> list[tuple[float, str]]:
        """Epoch and path of each existing snapshot, in the order of saving."""
        return [(epoch, path) for path, epoch in self.epochs.items()]

    @property
    def is_finished(self) -> bool:
        """Whether the task reported that it completed its work."""
        return self.result is not None


def _bounded(event: E) -> E:
    """Return ``event`` with its texts shortened to `MAX_TEXT`."""
    fields = structs.asdict(event).items()
    return structs.replace(event, **{name: _clip(value) for name, value in fields if isinstance(value, str)})


def _clip(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _progressed(state: TaskState, event: events.Progressed) -> None:
    state.fraction = min(1.0, max(0.0, event.fraction))
    state.seconds_left = event.seconds_left
    state.doing = _clip(event.doing)


def _counted(state: TaskState, event: events.Counted) -> None:
    state.counts[event.split] = {"labels": event.labels, "counts": event.counts}


def _skipped(state: TaskState, event: events.Skipped) -> None:
    state.skipped += 1
    if len(state.first_skips) < MAX_NAMED_SKIPS:
        state.first_skips.append(_bounded(event))


def _warned(state: TaskState, event: events.Warned) -> None:
    texts = state.remarks if event.is_remark else state.warnings
    if len(texts) >= MAX_NAMED_SKIPS:
        return
    text = _clip(event.message)
    texts.append(text)
    if not event.is_remark:
        state.marks.append(Mark("warning", state.metrics.last_epoch, text))


def _built(state: TaskState, event: events.Built) -> None:
    state.layers, state.parameters, state.latent = event.layers, event.parameters, event.latent


def _input_prepared(state: TaskState, event: events.InputPrepared) -> None:
    state.inputs[event.split] = _bounded(event)


def _weights_loaded(state: TaskState, event: events.WeightsLoaded) -> None:
    fields: dict[str, Any] = {}
    for name, value in structs.asdict(event).items():
        if isinstance(value, dict):
            fields[name] = dict(itertools.islice(value.items(), MAX_WEIGHTS))
        elif isinstance(value, list):
            fields[name] = value[:MAX_WEIGHTS]
    state.loaded_weights = structs.replace(_bounded(event), **fields)


def _measured(state: TaskState, event: events.Measured) -> None:
    state.metrics.add(event)


def _saved(state: TaskState, event: events.Saved) -> None:
    path = _clip(event.path)
    state.epochs.pop(path, None)
    state.epochs[path] = event.epoch
    if len(state.epochs) > MAX_SNAPSHOTS:
        del state.epochs[next(iter(state.epochs))]


def _phase_changed(state: TaskState, event: events.PhaseChanged) -> None:
    marks = [mark for mark in state.marks if mark.kind != "phase"]
    state.marks = [*marks, Mark("phase", event.epoch, "All layers are trained from here on")]


def _removed(state: TaskState, event: events.Removed) -> None:
    state.epochs.pop(_clip(event.path), None)


def _resumed(state: TaskState, event: events.Resumed) -> None:
    # The end of the previous run is obsolete; its warnings are repeated if they still apply.
    state.failure = state.result = None
    state.warnings = []
    state.marks = [mark for mark in state.marks if mark.kind == "phase" and mark.epoch <= event.epoch]
    state.metrics.add(event)


def _usage_sampled(state: TaskState, event: events.UsageSampled) -> None:
    state.usage = structs.replace(_bounded(event), gpus=event.gpus[:MAX_GPUS])
    state.peak_memory = max(state.peak_memory, event.memory_bytes)
    used = sum(gpu.get("memory_used", 0) for gpu in state.usage.gpus)
    state.peak_gpu_memory = max(state.peak_gpu_memory, used)


def _failed(state: TaskState, event: events.Failed) -> None:
    frames = event.trace[:MAX_FRAMES]
    state.failure = Failure(event.message, event.hint, event.line, frames, event.detail, event.remedy)


def _finished(state: TaskState, event: events.Finished) -> None:
    state.result = event.result
    state.fraction = 1.0


_FOLDS: dict[type[events.Event], Callable[[TaskState, Any], None]] = {
    events.Progressed: _progressed,
    events.Counted: _counted,
    events.Skipped: _skipped,
    events.Warned: _warned,
    events.Built: _built,
    events.InputPrepared: _input_prepared,
    events.WeightsLoaded: _weights_loaded,
    events.Measured: _measured,
    events.Saved: _saved,
    events.PhaseChanged: _phase_changed,
    events.Removed: _removed,
    events.Resumed: _resumed,
    events.UsageSampled: _usage_sampled,
    events.Failed: _failed,
    events.Finished: _finished,
}
