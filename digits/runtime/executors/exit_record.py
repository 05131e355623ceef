"""Read the record of the end of a run, which its supervisor leaves in the folder of the task."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from digits.core import files
from digits.core.schema import Count, Integer, UnixTime
from digits.core.task import Failure
from digits.runtime import supervisor
from digits.runtime.executors.executor import Exit


class _ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the end of a run: the fields of `Exit`, and the number of the run."""

    code: Integer | None
    signal: Integer | None
    rank: Count | None = None
    stopped: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    failure: Failure | None = None
    at: UnixTime | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    run: Count = 1


def read_exit(folder: Path, run: int) -> Exit | None:
    """Return the exit record of this ``run``, or None."""
    path = folder / supervisor.EXIT_FILE
    try:
        record = files.read_json(path, _ExitRecord, below=folder.parent)
    except files.UnreadableFile as error:
        if _is_blank(path):
            return None
        return Exit(lost=True, damage=str(error), at=last_change(folder))
    known = msgspec.structs.asdict(record)
    return Exit(**known) if known.pop("run") == run else None


def write_exit(folder: Path, run: int, ended: Exit) -> None:
    """Write the record of a ``run`` whose program left none, if the folder permits that."""
    known = {name: getattr(ended, name) for name in _ExitRecord.__struct_fields__ if name != "run"}
    body = msgspec.json.encode(_ExitRecord(**known, run=run))
    with contextlib.suppress(OSError):
        files.write_bytes(folder / supervisor.EXIT_FILE, body, durable=False)


def _is_blank(path: Path) -> bool:
    """Return whether the file is missing or blank."""
    try:
        return not files.read_bytes(path).strip(b"\0 \n")
    except files.UnreadableFile:
        return not os.path.lexists(path)


def last_change(folder: Path) -> float | None:
    """Return the Unix time of the last change to a file in ``folder``."""
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=None)
    except OSError:
        return None
