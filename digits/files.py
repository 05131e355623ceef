"""Files that two processes share: written whole or not at all, read with suspicion.

A reader never sees half a file, because a file is written under a temporary
name and renamed. Links are never followed inside a job's folder: the code of a
job may replace any file there. `open_plain` is the only function that opens one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 16 * 1024 * 1024
_HIGH_DESCRIPTOR = 512


# The server's trouble and not the file's: it may well be readable a moment later.
_TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class UnreadableFile(Exception):
    """A file of a job is missing, damaged, too large, or not a regular file."""


class MissingFile(UnreadableFile):
    """There is no such file."""


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
        with contextlib.suppress(OSError):  # the first error counts
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder ``path`` for its owner only, unless it is there; raises NotADirectoryError for a link."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "It is a link, which is not followed", str(path))


def remove_halves(path: Path) -> None:
    """Remove what a killed process was going to put in the place of ``path``; nobody else may be writing it."""
    for half in path.parent.glob(f".{path.name}.*.tmp"):
        half.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether something could not be written because the disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def open_plain(path: Path, *, below: Path | None = None) -> BinaryIO:
    """Open a regular file for reading; raises UnreadableFile for a link, a pipe, or no file.

    With ``below``, a folder that ``path`` lies in, links are refused in the place of that
    folder and of every folder between, too. Raises OSError when it is not the file's fault,
    for example when this process has too many open files.
    """
    try:
        # O_NONBLOCK: a FIFO in the file's place must not hang the reader.
        with _folder_of(path, below) as (name, folder):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _TRANSIENT:
            raise
        if error.errno == errno.ENOENT:
            raise MissingFile(f"{path.name}: {error.strerror}") from error
        reason = "is a link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise UnreadableFile(f"{path.name} {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile(f"{path.name} is not a regular file")
    return open(descriptor, "rb")


def is_there(path: Path, *, below: Path | None = None) -> bool:
    """Whether there is a file at ``path``; raises UnreadableFile if `open_plain` would refuse it."""
    try:
        open_plain(path, below=below).close()
    except MissingFile:
        return False
    return True


def is_folder(path: Path, *, below: Path) -> bool:
    """Whether ``path`` is the folder ``below`` or one in it, with no link in its place or between."""
    try:
        with _folder_of(path / "any", below):
            return True
    except (OSError, UnreadableFile):
        return False


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES, *, below: Path | None = None) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; raises UnreadableFile."""
    with open_plain(path, below=below) as file:
        # A sparse file may seem endless: nothing is read of one that is too large.
        if os.fstat(file.fileno()).st_size > limit:
            raise UnreadableFile(f"{path.name} is larger than {limit:,} bytes")
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise UnreadableFile(f"{path.name}: {error.strerror}") from error
    if len(data) > limit:
        raise UnreadableFile(f"{path.name} is larger than {limit:,} bytes")
    return data


def read_json(path: Path, *, below: Path | None = None) -> Any:
    """The JSON value in ``path``; raises UnreadableFile if there is none."""
    try:
        return json.loads(read_bytes(path, below=below), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path.name} is not valid JSON: {error}") from error


def files_below(folder: Path) -> list[Path]:
    """All that is no folder below ``folder``, in order; links to folders are not followed."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


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


@contextlib.contextmanager
def _folder_of(path: Path, below: Path | None) -> Iterator[tuple[str, int | None]]:
    """The name to open, and the descriptor of the folder that it is relative to."""
    if below is None:
        yield str(path), None
        return
    try:
        parts = path.relative_to(below).parts
    except ValueError:
        parts = ("..",)
    if not parts or ".." in parts:
        raise UnreadableFile(f"{path.name} does not lie in {below.name}")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(below, flags)
    try:
        for part in parts[:-1]:
            folder, above = os.open(part, flags, dir_fd=folder), folder
            os.close(above)
        yield parts[-1], folder
    finally:
        os.close(folder)


def refuse_constant(constant: str) -> float:
    """For `json.loads` as ``parse_constant``: NaN and infinities are not JSON."""
    raise ValueError(f"{constant} is not JSON")


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
