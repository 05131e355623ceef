"""Files that two processes share: written whole or not at all, read with suspicion.

A reader never sees half a file, because a file is written under a temporary
name and renamed. Links are never followed inside a job's folder: the code of a
job may replace any file there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 16 * 1024 * 1024
_HIGH_DESCRIPTOR = 512


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
    _sync_folder(path.parent)


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
        return json.loads(read_bytes(path), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path.name} is not valid JSON: {error}") from error


def out_of_the_way(descriptor: int) -> int:
    """Move an open file to a descriptor of a high number, where code that closes 0, 1, 2 … does not find it."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:
        return descriptor  # this process may not have so many
    os.close(descriptor)
    return moved


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


def refuse_constant(constant: str) -> float:
    """For `json.loads` as ``parse_constant``: NaN and infinities are not JSON."""
    raise ValueError(f"{constant} is not JSON")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
