"""What happened in a task: facts in the past tense, one JSON object a line, appended to a log.

A task's process appends; the server reads on from where it stopped. The place
in the log (a byte offset, called *cursor*) is all that a reader has to remember.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

from digits.core import files, schema
from digits.core.files import UnreadableFile, is_disk_full, open_plain
from digits.core.schema import Between, Count, Matching, UnixTime

MAX_LINE_BYTES = 1024 * 1024
MAX_METRIC_NAME = 64
_READ_BYTES = 4 * 1024 * 1024

# A killed writer holds its lock until its memory is released.
_WRITER_SECONDS = 5.0


class LogInUse(Exception):
    """Another process holds the lock on this log."""


Split = Annotated[str, Matching("train|val|test")]
# At most about 950 years; larger values are not estimates.
Seconds = Annotated[float, Between(0, 3e10)]


class Layer(TypedDict):
    """A row in the table of layers. ``shape`` is the output shape, with None for the batch dimension."""

    name: str
    type: str
    shape: list[int | None]
    parameters: Count


class Frame(TypedDict):
    """A frame of a traceback; ``own`` marks the user's file."""

    file: str
    line: Count
    function: str
    code: str
    own: bool


@dataclass(frozen=True)
class Event:
    """A fact about a task. ``at`` is the Unix time in seconds when it happened."""

    kind: ClassVar[str] = ""
    at: UnixTime = field(default_factory=time.time, kw_only=True)


@dataclass(frozen=True)
class Progressed(Event):
    """The task completed ``fraction`` (0 to 1) of its work; ``doing`` describes the current stage."""

    kind = "progressed"
    fraction: float
    seconds_left: Seconds | None = None
    doing: str = ""


@dataclass(frozen=True)
class Counted(Event):
    """The dataset's ``split`` was found to have ``counts[i]`` records of class ``labels[i]``."""

    kind = "counted"
    split: Split
    labels: list[str]
    counts: list[Count]


@dataclass(frozen=True)
class Skipped(Event):
    """A source image could not be used."""

    kind = "skipped"
    path: str
    reason: str
    split: str = ""
    label: str = ""


@dataclass(frozen=True)
class Warned(Event):
    """Something deserves the user's attention but does not stop the task."""

    kind = "warned"
    message: str


@dataclass(frozen=True)
class Built(Event):
    """The network was built."""

    kind = "built"
    layers: list[Layer]
    parameters: Count


@dataclass(frozen=True)
class InputPrepared(Event):
    """How the ``records`` of ``split`` reach the network.

    ``resident``: decoded once and kept in memory, as their ``bytes`` fit into ``budget_bytes``,
    the part of the ``free_bytes`` in ``place`` (``memory`` or ``GPU memory``) that they may take.
    ``streamed``: read and decoded again for every batch, as they do not fit.
    """

    kind = "input_prepared"
    split: Split
    how: str
    records: Count
    bytes: Count
    budget_bytes: int
    free_bytes: int
    place: str = "memory"


@dataclass(frozen=True)
class WeightsLoaded(Event):
    """Variables of the network took values from the weights ``source``, or are not to be trained.

    ``taken`` maps the names of variables to the names there. Others keep their initial values: those that are
    ``missing`` there, and those ``of_other_shape``, by name with both shapes. ``unused`` is what no variable
    took. ``frozen`` weights are not trained, and averages and counters are no ``weights``.
    """

    kind = "weights_loaded"
    source: str
    taken: dict[str, str]
    missing: list[str]
    of_other_shape: dict[str, str]
    unused: list[str]
    frozen: list[str]
    no_weights: list[str]


@dataclass(frozen=True)
class Measured(Event):
    """Metrics of the ``train`` or ``val`` stage after ``step`` steps, ``epoch`` epochs.

    A value may be NaN or infinite.
    """

    kind = "measured"
    stage: str
    step: Count
    epoch: float
    values: dict[str, float]


@dataclass(frozen=True)
class Saved(Event):
    """A snapshot of the weights was written; ``path`` is relative to the job's folder."""

    kind = "saved"
    epoch: float
    step: Count
    path: str


@dataclass(frozen=True)
class BestSnapshotChanged(Event):
    """The snapshot of ``epoch`` is the best one so far: ``metric`` was ``value`` in its validation."""

    kind = "best_snapshot_changed"
    epoch: float
    metric: str
    value: float


@dataclass(frozen=True)
class Removed(Event):
    """A snapshot was removed because it exceeds the number to keep."""

    kind = "removed"
    epoch: float
    path: str


@dataclass(frozen=True)
class Resumed(Event):
    """An interrupted training resumed after ``step`` steps: earlier events for later steps are void."""

    kind = "resumed"
    step: Count
    epoch: float


@dataclass(frozen=True)
class UsageSampled(Event):
    """What the task's process uses. Percent of one core, bytes; a GPU is a dict of the same."""

    kind = "usage_sampled"
    cpu_percent: float
    memory_bytes: Count
    device: str = "CPU"
    gpus: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Failed(Event):
    """The task failed. ``message`` is for the user; ``trace`` starts with the user's own frames.

    ``line`` is the line of the user's network to mark, if the error has one.
    ``detail`` is the library's full message if ``message`` is a shorter one.
    """

    kind = "failed"
    message: str
    hint: str = ""
    line: Count | None = None
    trace: list[Frame] = field(default_factory=list)
    detail: str = ""


@dataclass(frozen=True)
class Finished(Event):
    """The task completed. A task that exits without this event ended early."""

    kind = "finished"
    result: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        Progressed,
        Counted,
        Skipped,
        Warned,
        Built,
        InputPrepared,
        WeightsLoaded,
        Measured,
        Saved,
        BestSnapshotChanged,
        Removed,
        Resumed,
        UsageSampled,
        Failed,
        Finished,
    )
}

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(event: Event) -> bytes:
    """One line of the log, newline included. NaN and infinities become strings."""
    body = {"event": event.kind, **dataclasses.asdict(event)}
    return json.dumps(_finite(body), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Event | None:
    """Decode an event; None for an unknown event, wrong types or any other line. Never raises."""
    try:
        body = json.loads(line, parse_constant=files.refuse_constant)
        kind = KINDS[body["event"]]
        if kind is not Measured:
            return schema.build(kind, body)
        numbers = _numbers(body["values"])
        return dataclasses.replace(schema.build(Measured, {**body, "values": {}}), values=numbers)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read(path: Path, cursor: int = 0, until: int | None = None) -> tuple[list[Event], int]:
    """The events after ``cursor`` (and not after ``until``), and the next cursor.

    A torn last line is left for the next call. A missing log has no events.
    """
    events: list[Event] = []
    for line, end in _lines(path, cursor):
        if until is not None and end > until:
            break
        cursor = end
        event = decode(line)
        if event is not None:
            events.append(event)
    return events, cursor


def for_browser(value: Any) -> Any:
    """``value`` with None for NaN and infinities, as JSON and charts require."""
    return _replace(value, lambda number: None)


def end(path: Path) -> int:
    """The cursor at the end of the log; 0 if it cannot be read."""
    try:
        with open_plain(path) as file:
            return os.fstat(file.fileno()).st_size
    except UnreadableFile:
        return 0


class EventLog:
    """Writer for a task's log, which it locks against other processes.

    While the disk is full, events are buffered in memory and written once there is space again.
    """

    def __init__(self, path: Path) -> None:
        """Raises LogInUse if another process keeps the log locked for a few seconds."""
        self._path, self._waiting, self._turn = path, b"", threading.Lock()
        self._open()
        # Both the log and the task's folder may be new.
        files.sync_folder(path.parent)
        files.sync_folder(path.parent.parent)

    def append(self, *events: Event) -> None:
        """Write ``events`` to the log immediately."""
        with self._turn:
            self._waiting += b"".join(map(encode, events))
            try:
                self._write()
            except OSError as error:
                if is_disk_full(error):
                    return
                if error.errno != errno.EBADF:
                    raise
                self._open()  # the network closed a descriptor that it does not own
                self._write()

    def sync(self) -> None:
        """Make all events durable; raises OSError if the disk is still full."""
        self.append()
        if self._waiting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and release the log; raises OSError if the disk is still full."""
        try:
            self.sync()
        finally:
            os.close(self._descriptor)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = files.move_to_high_descriptor(os.open(self._path, flags, 0o600))
        if not _soon(lambda: _may(os.F_TLOCK, self._descriptor)):
            os.close(self._descriptor)
            raise LogInUse(f"Another process is working on this task: it holds the lock on {self._path}.")
        self._is_torn = True

    def _write(self) -> None:
        if self._is_torn:
            self._mend_torn_line()
        self._is_torn = False
        while self._waiting:
            self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]

    def _mend_torn_line(self) -> None:
        # A killed writer may have left an incomplete line; end it.
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def is_written(path: Path) -> bool:
    """Whether another process keeps the log locked for a few seconds."""
    try:
        opened = open_plain(path, below=path.parent.parent)
    except UnreadableFile:
        return False
    with opened as file:
        return not _soon(lambda: _may(os.F_TEST, file.fileno()))


def _may(command: int, descriptor: int) -> bool:
    """Whether the lock operation succeeded; True on file systems without locks."""
    try:
        os.lockf(descriptor, command, 0)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def _soon(happens: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _WRITER_SECONDS
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _lines(path: Path, cursor: int) -> Iterator[tuple[bytes, int]]:
    try:
        opened = open_plain(path, below=path.parent.parent)  # the job's folder
    except UnreadableFile:
        return
    with opened as file:
        while cursor < os.fstat(file.fileno()).st_size:
            file.seek(cursor)
            try:
                block = file.read(_READ_BYTES)
            except OSError:
                return  # a disk error; it may be temporary
            end = block.rfind(b"\n") + 1
            if end == 0:
                if len(block) < _READ_BYTES:
                    return
                end = len(block)  # no line is this long: skip the noise
            for line in block[:end].splitlines(keepends=True):
                cursor += len(line)
                if len(line) <= MAX_LINE_BYTES:
                    yield line, cursor


def _finite(value: Any) -> Any:
    def name(number: float) -> str:
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"

    return _replace(value, name)


def _replace(value: Any, not_finite: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else not_finite(value)
    if isinstance(value, Mapping):
        return {key: _replace(item, not_finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace(item, not_finite) for item in value]
    return value


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    """The numeric entries of ``values``; NaN and infinities, as written by `encode`, become floats."""
    numbers = {}
    for name, value in values.items():
        known = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if isinstance(known, (int, float)) and not isinstance(known, bool) and len(name) <= MAX_METRIC_NAME:
            try:
                numbers[name] = float(known)
            except OverflowError:  # an integer too large for a float
                continue
    return numbers
