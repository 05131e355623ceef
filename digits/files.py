"""Files that two processes share: written whole or not at all, read with suspicion.

A reader never sees half a file, because a file is written under a temporary
name and renamed. Links are never followed inside a job's folder: the code of a
job may replace any file there.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 16 * 1024 * 1024


class UnreadableFile(Exception):
    """A file of a job is missing, damaged, too large, or not a plain file."""


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON to ``path``, atomically and durably.

    Raises ValueError for NaN and infinities: they are not JSON.
    """
    write_bytes(path, json.dumps(value, indent=1, allow_nan=False).encode() + b"\n")


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, atomically and durably."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_halves(path: Path) -> None:
    """Remove what a killed process was going to put in the place of ``path``; nobody else may be writing it."""
    for half in path.parent.glob(f".{path.name}.*.tmp"):
        half.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether something could not be written because the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; raises UnreadableFile for a link, a pipe, or no file."""
    try:
        # O_NONBLOCK: a FIFO put in the file's place must not hang the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"{path.name}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile(f"{path.name} is not a plain file")
    return open(descriptor, "rb")


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """The content of a plain file of at most ``limit`` bytes; raises UnreadableFile."""
    with open_plain(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise UnreadableFile(f"{path.name}: {error.strerror}") from error
    if len(data) > limit:
        raise UnreadableFile(f"{path.name} is larger than {limit} bytes")
    return data


def read_json(path: Path) -> Any:
    """The JSON value in ``path``; raises UnreadableFile if there is none."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path.name} is not valid JSON: {error}") from error


def tree_bytes(folder: Path) -> int:
    """Bytes held by the plain files below ``folder``; files that vanish count as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: those that are new, those that were replaced, and that others are gone."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content of the file ``path`` durable, whatever wrote it."""
    _sync(path, os.O_RDONLY)


def sync_tree(folder: Path) -> None:
    """Make all files and folders below ``folder``, and ``folder`` itself, durable."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(parent, name))
        sync_folder(Path(parent))
    sync_folder(folder.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
