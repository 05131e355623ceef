"""Save and restore the state of a task, so that a restarted server reads only the rest of a long event log.

``state.json`` beside the log is a cache: the events folded up to a cursor, with a checksum. If it is damaged, was
written by another version or does not match the log, it is ignored and the log is read from the start.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from digits import __version__
from digits.core import files, schema
from digits.core.files import UnreadableFile, open_plain, read_bytes
from digits.core.metrics.series import Metrics
from digits.core.schema import Count
from digits.core.task import EVENTS_FILE, Task, TaskState

STATE_FILE = "state.json"
# States that are larger than this without their metrics are not saved, because decoding them is slow.
MAX_STATE_BYTES = 512 * 1024
MAX_FILE_BYTES = 8 * 1024 * 1024
_TAIL_BYTES = 4096


class _File(Struct):
    sha256: str
    saved: msgspec.Raw


class _Saved(Struct):
    """The contents of ``state.json``.

    ``run`` is the run of the task, and ``tail`` identifies the log up to the cursor.
    """

    version: str
    run: Count
    tail: str
    state: TaskState


def save(task: Task, folder: Path) -> None:
    """Write the state of ``task`` into its ``folder``, unless it is too large; raises OSError or UnreadableFile.

    No fsync is needed, because the checksum detects a file damaged by a power loss.
    """
    state = task.state
    task.saved_cursor = state.cursor
    if len(msgspec.json.encode(structs.replace(state, metrics=Metrics()))) > MAX_STATE_BYTES:
        return
    saved = _Saved(__version__, task.run, _tail(folder / EVENTS_FILE, state.cursor), state)
    body = msgspec.json.encode(saved)
    data = msgspec.json.encode(_File(hashlib.sha256(body).hexdigest(), msgspec.Raw(body)))
    if not files.is_folder(folder, below=folder.parent):
        return
    files.remove_partial_writes(folder / STATE_FILE)
    files.write_bytes(folder / STATE_FILE, data, durable=False)


def restore(task: Task, folder: Path) -> None:
    """Replace the state of ``task`` with the one saved in its ``folder``, if it is valid."""
    try:
        data = read_bytes(folder / STATE_FILE, MAX_FILE_BYTES, below=folder.parent)
        state = _load(data, task, folder / EVENTS_FILE)
    except (UnreadableFile, ValueError, RecursionError):
        return
    task.state, task.saved_cursor = state, state.cursor


def _load(data: bytes, task: Task, log: Path) -> TaskState:
    """Decode a saved state. Raises ValueError or RecursionError if it is invalid, UnreadableFile for the log."""
    file = schema.decode(data, _File)
    body = bytes(file.saved)
    if file.sha256 != hashlib.sha256(body).hexdigest():
        raise ValueError("does not match its checksum")
    saved = schema.decode(body, _Saved)
    state = saved.state
    if saved.version != __version__ or saved.tail != _tail(log, state.cursor):
        raise ValueError("was written by another version or for another log")
    if saved.run != task.run:
        # An earlier run, whose result does not apply to this one.
        if state.is_finished or state.cursor > task.log_start:
            raise ValueError("belongs to another run")
        state.failure = None
    if not (state.metrics.train.is_valid() and state.metrics.val.is_valid()):
        raise ValueError("has inconsistent columns")
    return state


def _tail(log: Path, cursor: int) -> str:
    """Return a checksum of the last bytes before ``cursor``, unique due to their timestamps; raises UnreadableFile."""
    with open_plain(log, below=log.parent.parent) as file:
        begin = max(0, cursor - _TAIL_BYTES)
        file.seek(begin)
        data = file.read(cursor - begin)
    if len(data) < cursor - begin:
        raise ValueError("the log is shorter")
    return hashlib.sha256(data).hexdigest()
