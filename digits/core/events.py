"""Events of a task: facts in the past tense, one JSON object per line, appended to a log.

A task's process appends; the server reads on from the previous position in the log (a byte offset, called
*cursor*), which is all that a reader has to remember.
"""

from __future__ import annotations

import errno
import functools
import itertools
import math
import operator
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta, Struct, field

from digits.core import files, schema
from digits.core.files import UnreadableFile, is_disk_full, open_plain
from digits.core.schema import Count, Integer, JsonObject, UnixTime
from digits.core.splits import Split

MAX_LINE_BYTES = 1024 * 1024
MAX_METRIC_NAME = 64
# Maximum number of metrics per row and per stage, so that generated names cannot exhaust the server's memory.
MAX_METRICS = 1000
_READ_BYTES = 256 * 1024

# Maximum time for which a reader on the event loop runs without yielding, in seconds.
TURN_SECONDS = 0.005
# Maximum interval between reports of a value whose history does not matter, in seconds.
MAX_REPORT_SECONDS = 30.0

# A killed writer holds its lock until its memory is released.
WRITER_SECONDS = 5.0


class LogInUse(Exception):
    """Another process holds the lock on this log."""


# At most about 950 years; larger values are not estimates.
Seconds = Annotated[float, Meta(ge=0, le=3e10)]

if TYPE_CHECKING:
    MetricValue = float
else:
    # JSON has no NaN and no infinities: a log contains their names.
    MetricValue = float | Literal["NaN", "Infinity", "-Infinity"]


class Layer(TypedDict):
    """A row in the table of layers. ``shape`` is the output shape, with None for the batch dimension."""

    name: str
    type: str
    shape: list[Integer | None]
    parameters: Count


class Frame(TypedDict):
    """A frame of a traceback; ``own`` marks the user's file."""

    file: str
    line: Count
    function: str
    code: str
    own: bool


class Gpu(TypedDict, total=False):
    """The usage of a GPU: memory in bytes, utilization in percent, temperature in °C. The driver may omit some."""

    index: Count
    name: str
    memory_used: Count
    memory_total: Count
    utilization: float
    temperature: float


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@functools.lru_cache(maxsize=1)
def _clock_offset(process_id: int) -> float:
    """Return the Unix time at which `time.monotonic` was 0, as this process saw it when it was first asked."""
    return time.time() - time.monotonic()


def _now() -> float:
    """Return the Unix time, unaffected by changes of the machine's clock since the first event of this process."""
    return _clock_offset(os.getpid()) + time.monotonic()


class Event(Struct, frozen=True, kw_only=True, tag_field="event", tag=_snake_case):
    """A fact about a task. ``at`` is the Unix time in seconds when it happened.

    Differences between the times of a process are right even if the machine's clock is changed, which the curves of a
    training depend on. In JSON, ``event`` is the name of the class in snake case, such as ``best_snapshot_changed``.
    """

    at: UnixTime = field(default_factory=_now)


class Progressed(Event, frozen=True):
    """The task completed ``fraction`` (0 to 1) of its work; ``doing`` describes the current stage."""

    fraction: float
    seconds_left: Seconds | None = None
    doing: str = ""


class Counted(Event, frozen=True):
    """The dataset's ``split`` was found to have ``counts[i]`` records of the class, range or label ``labels[i]``."""

    split: Split
    labels: list[str]
    counts: list[Count]


class Skipped(Event, frozen=True):
    """A source image could not be used."""

    path: str
    reason: str
    split: str = ""
    label: str = ""


class Warned(Event, frozen=True):
    """Something deserves the user's attention but does not stop the task; a remark needs no action."""

    message: str
    is_remark: bool = False


class Built(Event, frozen=True):
    """The network was built. ``latent`` is the size of the vectors from which it generates images, or 0."""

    layers: list[Layer]
    parameters: Count
    latent: Count = 0


class InputPrepared(Event, frozen=True):
    """How the ``records`` of ``split`` reach the network.

    ``resident``: decoded once and cached in memory, because their ``bytes`` fit into ``budget_bytes``, the usable
    part of the ``free_bytes`` in ``place`` (``memory`` or ``GPU memory``). ``streamed``: read and decoded again for
    every batch, because they do not fit.
    """

    split: Split
    how: str
    records: Count
    bytes: Count
    budget_bytes: Integer
    free_bytes: Integer
    place: str = "memory"


class WeightsLoaded(Event, frozen=True):
    """Values from the weights ``source`` were assigned to variables of the network, or variables were frozen.

    ``taken`` maps the names of variables to the names in the source. Others keep their initial values: those that
    are ``missing`` in the source, and those ``of_other_shape``, by name with both shapes. ``unused`` are names that
    match no variable. ``frozen`` weights are not trained; ``weights`` excludes averages and counters.
    """

    source: str
    taken: dict[str, str]
    missing: list[str]
    of_other_shape: dict[str, str]
    unused: list[str]
    frozen: list[str]
    no_weights: list[str]


class Measured(Event, frozen=True):
    """Metrics of the ``train`` or ``val`` stage after ``step`` steps, ``epoch`` epochs.

    A value may be NaN or infinite. Values with a name of more than `MAX_METRIC_NAME` characters are dropped, and those
    after the first `MAX_METRICS`.
    """

    stage: str
    step: Count
    epoch: float
    values: dict[str, MetricValue]

    def __post_init__(self) -> None:
        first = itertools.islice(self.values.items(), MAX_METRICS)
        values = {name: float(value) for name, value in first if len(name) <= MAX_METRIC_NAME}
        msgspec.structs.force_setattr(self, "values", values)


class Saved(Event, frozen=True):
    """A snapshot of the weights was written; ``path`` is relative to the job's folder."""

    epoch: float
    step: Count
    path: str


class PhaseChanged(Event, frozen=True):
    """Fine-tuning began to train all layers after ``step`` steps, ``epoch`` epochs; before, only the head."""

    step: Count
    epoch: float


class BestSnapshotChanged(Event, frozen=True):
    """The snapshot of ``epoch`` is the best one so far: ``metric`` was ``value`` in its validation."""

    epoch: float
    metric: str
    value: float


class Removed(Event, frozen=True):
    """A snapshot was removed because it exceeds the number to keep."""

    epoch: float
    path: str


class Resumed(Event, frozen=True):
    """An interrupted training resumed after ``step`` steps: earlier events for later steps are void."""

    step: Count
    epoch: float


class UsageSampled(Event, frozen=True):
    """Resource usage of the task's process, in percent of one core and bytes, and of each GPU."""

    cpu_percent: float
    memory_bytes: Count
    device: str = "CPU"
    gpus: list[Gpu] = field(default_factory=list)


class Failed(Event, frozen=True):
    """The task failed. ``message`` is for the user; ``trace`` starts with the user's own frames.

    ``line`` is the line of the user's network to mark, if the error has one.
    ``detail`` is the library's full message if ``message`` is a shorter one. ``remedy`` are values of form fields
    that follow the ``hint``.
    """

    message: str
    hint: str = ""
    line: Count | None = None
    trace: list[Frame] = field(default_factory=list)
    detail: str = ""
    remedy: dict[str, str] = field(default_factory=dict)


class Finished(Event, frozen=True):
    """The task completed. A task that exits without this event ended early."""

    result: JsonObject = field(default_factory=dict)


AnyEvent: Any = functools.reduce(operator.or_, Event.__subclasses__())
_DECODER = schema.decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """One line of the log, newline included. NaN and infinities become strings."""
    return msgspec.json.encode(_encodable(msgspec.to_builtins(event))) + b"\n"


def decode(line: bytes) -> Event | None:
    """Decode an event; None for an unknown event, wrong types or any other line. Never raises."""
    try:
        event: Event = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    return event


def read(path: Path, cursor: int = 0, until: int | None = None) -> tuple[list[Event], int]:
    """Return the events after ``cursor`` (and not after ``until``), and the next cursor.

    A torn last line is left for the next call. A missing log has no events.
    """
    events: list[Event] = []
    for event, end in each(path, cursor, until):
        cursor = end
        if event is not None:
            events.append(event)
    return events, cursor


def each(path: Path, cursor: int = 0, until: int | None = None) -> Iterator[tuple[Event | None, int]]:
    """Yield the event on each line after ``cursor``, or None for an invalid line, and the cursor at its end."""
    for line, end in _lines(path, cursor):
        if until is not None and end > until:
            return
        yield decode(line), end


def row_turns(path: Path, cursor: int, until: int) -> Iterator[tuple[list[Measured | Resumed], int]]:
    """Yield `Measured` and `Resumed` events in batches that take about `TURN_SECONDS` to read.

    Each batch comes with the cursor at its end. The caller should yield to other greenlets after each batch.
    """
    rows: list[Measured | Resumed] = []
    deadline = time.monotonic() + TURN_SECONDS
    for line, end in _lines(path, cursor):
        if end > until:
            break
        cursor = end
        # Most lines of a long log report progress; skip them without decoding.
        if b'"measured"' in line or b'"resumed"' in line:
            event = decode(line)
            if isinstance(event, (Measured, Resumed)):
                rows.append(event)
        if time.monotonic() >= deadline:
            yield rows, cursor
            rows, deadline = [], time.monotonic() + TURN_SECONDS
    yield rows, cursor


def for_browser(value: Any) -> Any:
    """Return ``value`` with None for NaN and infinities, as JSON and charts require."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: for_browser(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_browser(item) for item in value]
    return value


def facts(event: Event | None, *without: str) -> JsonObject | None:
    """Return the fields of ``event`` for the browser, except its time and those in ``without``."""
    if event is None:
        return None
    fields = msgspec.structs.asdict(event)
    return {name: for_browser(value) for name, value in fields.items() if name not in ("at", *without)}


def end(path: Path) -> int:
    """Return the cursor at the end of the log; 0 if it cannot be read."""
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


class ReportInterval:
    """Limit how often a value whose history does not matter, such as progress, is logged.

    The first value is logged immediately. The interval starts at ``seconds`` and grows to 0.1% of the elapsed time,
    up to `MAX_REPORT_SECONDS`. This keeps week-long logs small and the displayed percentage current.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started, self._last = time.monotonic(), -math.inf

    @property
    def current(self) -> float:
        """The current interval in seconds."""
        elapsed = time.monotonic() - self._started
        return max(self._seconds, min(elapsed / 1000, MAX_REPORT_SECONDS))

    def is_due(self, now: bool = False) -> bool:
        """Return whether to log the value: the interval has elapsed, or ``now`` is set."""
        moment = time.monotonic()
        if not now and moment - self._last < self.current:
            return False
        self._last = moment
        return True


def is_written(path: Path) -> bool:
    """Return whether another process keeps the log locked for a few seconds."""
    try:
        opened = open_plain(path, below=path.parent.parent)
    except UnreadableFile:
        return False
    with opened as file:
        return not _soon(lambda: _may(os.F_TEST, file.fileno()))


def _may(command: int, descriptor: int) -> bool:
    """Return whether the lock operation succeeded; True on file systems without locks."""
    try:
        os.lockf(descriptor, command, 0)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def _soon(happens: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WRITER_SECONDS
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _lines(path: Path, cursor: int) -> Iterator[tuple[bytes, int]]:
    """Yield each complete line after ``cursor``, empty if it is too long for an event, and the cursor at its end."""
    try:
        opened = open_plain(path, below=path.parent.parent)  # the job's folder
    except UnreadableFile:
        return
    with opened as file:
        size = _READ_BYTES
        while cursor < os.fstat(file.fileno()).st_size:
            file.seek(cursor)
            try:
                block = file.read(size)
            except OSError:
                return  # a disk error; it may be temporary
            begin, end = 0, block.find(b"\n") + 1
            if not end:
                if len(block) < size:
                    return
                if size <= MAX_LINE_BYTES:
                    size *= 2
                    continue
                cursor += len(block)  # no event is this long
                yield b"", cursor
            while end:
                yield block[begin:end] if end - begin <= MAX_LINE_BYTES else b"", cursor + end
                begin, end = end, block.find(b"\n", end) + 1
            cursor += begin
            size = _READ_BYTES


def _encodable(value: Any) -> Any:
    """Return ``value`` with names for NaN and infinities, and without lone surrogates, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode() if not value.isascii() else value
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
