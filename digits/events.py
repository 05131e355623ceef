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
from typing import Any, ClassVar

from digits.files import UnreadableFile, is_disk_full, open_plain

MAX_LINE_BYTES = 1024 * 1024
_READ_BYTES = 4 * 1024 * 1024

# A writer that was killed holds its log until its memory is given back.
_WRITER_SECONDS = 5.0


class LogInUse(Exception):
    """Another process writes this log."""


@dataclass(frozen=True)
class Event:
    """A fact about a task. ``at`` is the Unix time in seconds when it happened."""

    kind: ClassVar[str] = ""
    at: float = field(default_factory=time.time, kw_only=True)


@dataclass(frozen=True)
class Progressed(Event):
    """The task did ``fraction`` (0 to 1) of its work; ``doing`` says on what it works now."""

    kind = "progressed"
    fraction: float
    seconds_left: float | None = None
    doing: str = ""


@dataclass(frozen=True)
class Counted(Event):
    """The dataset's ``split`` was found to have ``counts[i]`` records of class ``labels[i]``."""

    kind = "counted"
    split: str
    labels: list[str]
    counts: list[int]


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
    """The network was built. A layer is ``{name, kind, shape, parameters}``.

    ``shape`` lists the output's dimensions, None for the batch.
    """

    kind = "built"
    layers: list[dict[str, Any]]
    parameters: int


@dataclass(frozen=True)
class Fed(Event):
    """How the ``records`` of ``split`` reach the network.

    ``resident``: decoded once and kept in memory, as their ``bytes`` fit into ``budget_bytes``,
    the part of the ``free_bytes`` in ``place`` (``memory`` or ``GPU memory``) that they may take.
    ``streamed``: read and decoded again for every batch, as they do not fit.
    """

    kind = "fed"
    split: str
    how: str
    records: int
    bytes: int
    budget_bytes: int
    free_bytes: int
    place: str = "memory"


@dataclass(frozen=True)
class Restored(Event):
    """Variables of the network took values from the weights ``source``, or are not to be trained.

    ``taken`` maps the names of variables to the names there. Others keep their initial values: those that are
    ``missing`` there, and those ``of_other_shape``, by name with both shapes. ``unused`` is what no variable
    took. ``frozen`` weights are not trained, and averages and counters are no ``weights``.
    """

    kind = "restored"
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
    step: int
    epoch: float
    values: dict[str, float]


@dataclass(frozen=True)
class Saved(Event):
    """A snapshot of the weights was written; ``path`` is relative to the job's folder."""

    kind = "saved"
    epoch: float
    step: int
    path: str


@dataclass(frozen=True)
class Excelled(Event):
    """The snapshot of ``epoch`` is the best one so far: ``metric`` was ``value`` in its validation."""

    kind = "excelled"
    epoch: float
    metric: str
    value: float


@dataclass(frozen=True)
class Removed(Event):
    """A snapshot was removed, because only so many are kept."""

    kind = "removed"
    epoch: float
    path: str


@dataclass(frozen=True)
class Resumed(Event):
    """A training that had ended early goes on after ``step`` steps: what it measured later is void."""

    kind = "resumed"
    step: int
    epoch: float


@dataclass(frozen=True)
class Used(Event):
    """What the task's process uses. Percent of one core, bytes; a GPU is a dict of the same."""

    kind = "used"
    cpu_percent: float
    memory_bytes: int
    device: str = "CPU"
    gpus: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Failed(Event):
    """The task gave up. ``message`` is for the user; ``trace`` has the user's own line first.

    A frame of the trace is ``{file, line, function, code, own}``; ``own`` marks the user's
    file. ``line`` is the line of the user's network to mark, if the fault has one.
    ``detail`` is the library's own message where ``message`` is a shorter one.
    """

    kind = "failed"
    message: str
    hint: str = ""
    line: int | None = None
    trace: list[dict[str, Any]] = field(default_factory=list)
    detail: str = ""


@dataclass(frozen=True)
class Finished(Event):
    """The task did all its work. A task that ends without this event ended early."""

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
        Fed,
        Restored,
        Measured,
        Saved,
        Excelled,
        Removed,
        Resumed,
        Used,
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
    """The event on a line; None for what is not one (an unknown kind, wrong types, noise)."""
    try:
        body = json.loads(line)
        kind = KINDS[body.pop("event")]
        known = {item.name for item in dataclasses.fields(kind)}
        event = kind(**{name: value for name, value in body.items() if name in known})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(event, Measured):
        return _measured(event)
    return event if _well_typed(event) else None


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
    """``value`` with None for NaN and infinities, as JSON and charts want it."""
    return _replace(value, lambda number: None)


class EventLog:
    """The writing end of a task's log. One process owns it, and locks it against others.

    While the disk is full, events wait in memory: what happened is told when there is room again.
    """

    def __init__(self, path: Path) -> None:
        """Raises LogInUse when another process does not leave the log in a few seconds."""
        self._waiting, self._turn = b"", threading.Lock()
        self._descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        if not _soon(lambda: _may(os.F_TLOCK, self._descriptor)):
            os.close(self._descriptor)
            raise LogInUse(f"Another process works on this task: it writes {path}.")
        self._is_torn = True

    def append(self, *events: Event) -> None:
        """Write ``events`` to the log, at once."""
        with self._turn:
            lines, self._waiting = self._waiting + b"".join(map(encode, events)), b""
            try:
                if self._is_torn:
                    self._mend_torn_line()
                self._is_torn = False
                while lines:
                    lines = lines[os.write(self._descriptor, lines) :]
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self._waiting = lines

    def close(self) -> None:
        """Let go of the log; raises OSError if there is still no room for all that happened."""
        try:
            self.append()
        finally:
            os.close(self._descriptor)
        if self._waiting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _mend_torn_line(self) -> None:
        # A writer that was killed may have left half a line; a new line keeps it apart.
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def is_written(path: Path) -> bool:
    """Whether a process writes the log, and does not leave it in a few seconds."""
    try:
        opened = open_plain(path)
    except UnreadableFile:
        return False
    with opened as file:
        return not _soon(lambda: _may(os.F_TEST, file.fileno()))


def _may(command: int, descriptor: int) -> bool:
    """Whether a lock was taken, or could be; where there are no locks, nobody has one."""
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
        opened = open_plain(path)
    except UnreadableFile:
        return
    with opened as file:
        file.seek(cursor)
        while True:
            block = file.read(_READ_BYTES)
            end = block.rfind(b"\n") + 1
            if end == 0:
                if len(block) < _READ_BYTES:
                    return
                end = len(block)  # no line is this long: skip the noise
            for line in block[:end].splitlines(keepends=True):
                cursor += len(line)
                if len(line) <= MAX_LINE_BYTES:
                    yield line, cursor
            file.seek(cursor)


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


def _measured(event: Measured) -> Measured | None:
    if not isinstance(event.values, dict) or not _well_typed(event):
        return None
    values = {}
    for name, value in event.values.items():
        if isinstance(value, str) and value in _NOT_FINITE:
            value = _NOT_FINITE[value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and len(name) <= 64:
            values[name] = float(value)
    return dataclasses.replace(event, values=values)


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "int | None": (int, type(None)),
}


def _well_typed(event: Event) -> bool:
    for item in dataclasses.fields(event):
        value = getattr(event, item.name)
        allowed = _TYPES.get(str(item.type), (dict, list))
        if not isinstance(value, allowed):
            return False
    return True
