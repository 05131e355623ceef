"""Atomic writes, and safe reads of files shared with other processes.

Readers never see a partial file, because files are written under a temporary
name and renamed. Links are never followed inside a job's folder: the code of a
job may replace any file there. Only `open_plain` opens files of a job.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from digits.core import schema

T = TypeVar("T")

MAX_JSON_BYTES = 16 * 1024 * 1024
_INDENTED_BYTES = 1 << 20
_HIGH_DESCRIPTOR = 512
_CHUNK = 16 * 1024
# Arguments of renameat2.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


# Temporary problems of the server, not of the file.
TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# Opens a folder as the place to which names are relative.
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnreadableFile(Exception):
    """A file of a job is missing, damaged, too large, or not a regular file."""


class MissingFile(UnreadableFile):
    """There is no such file."""


def write_json(path: Path, value: Any, read_as: type[Struct] | None = None) -> None:
    """Write ``value``, with any structs in it, as JSON to ``path``, atomically and durably.

    The value is validated as ``read_as``, the type with which `read_json` will read it, by default that of a struct.
    Raises ValueError for NaN and infinities, which are not JSON, and for values that the type does not allow, and
    OSError for files that are too large to be read.
    """
    body = msgspec.to_builtins(value)
    data = json.dumps(body, allow_nan=False).encode()
    type_ = type(value) if read_as is None and isinstance(value, Struct) else read_as
    if type_ is not None:
        schema.decode(data, type_)
    if len(data) <= _INDENTED_BYTES:  # long lists have no line for each value
        data = json.dumps(body, indent=1).encode() + b"\n"
    check_size(path, data)
    write_bytes(path, data)


def check_size(path: Path, data: bytes, limit: int = MAX_JSON_BYTES) -> None:
    """Raise OSError if ``data`` is too large to be read from ``path`` again."""
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"It would be larger than {limit:,} bytes", str(path))


def write_bytes(path: Path, data: bytes, durable: bool = True) -> None:
    """Write ``data`` to ``path``, atomically. If ``durable``, it also survives a power loss."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create the folder ``path`` with mode 0700 if it does not exist; raises NotADirectoryError for a link."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "Links are not followed", str(path))


@contextlib.contextmanager
def locked(path: Path, seconds: float, report_waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the exclusive lock of the file ``path``, which no other user can lock; it is created if it does not exist.

    Call ``report_waiting`` before waiting for another process. Raises TimeoutError after ``seconds``, and OSError. On
    file systems without locks, the block runs without one.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(PermissionError):  # another user's, in a folder that users share
            os.fchmod(descriptor, 0o600)
        deadline = time.monotonic() + seconds
        is_waiting = False
        while not _try_to_lock(descriptor):
            if not is_waiting:
                report_waiting()
                is_waiting = True
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked", str(path))
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _try_to_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def remove_partial_writes(path: Path) -> None:
    """Remove the incomplete files of a killed process that was writing ``path``; no other process may be writing
    it.
    """
    for half in path.parent.glob(f".{path.name}.*.tmp"):
        half.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed because the disk, or the user's quota of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def open_plain(path: Path, *, below: Path | None = None) -> BinaryIO:
    """Open a regular file for reading; raises UnreadableFile for a link, a pipe, or no file.

    With ``below``, a folder that contains ``path``, that folder and every folder between
    must not be links either. Raises OSError for temporary problems of the server,
    such as too many open files.
    """
    return open(_open_descriptor(path, below), "rb")


def check_spare_descriptors(count: int) -> None:
    """Raise OSError if this process cannot open ``count`` more files."""
    spare: list[int] = []
    try:
        while len(spare) < count:
            spare.append(os.dup(spare[0]) if spare else os.open("/", os.O_PATH | os.O_CLOEXEC))
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _open_descriptor(path: Path, below: Path | None) -> int:
    # O_NONBLOCK: opening a FIFO must not block.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if below is None:
            descriptor = os.open(path, flags)
        else:
            with _folder_of(path, below) as (name, folder):
                descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in TRANSIENT:
            raise
        if error.errno == errno.ENOENT:
            raise MissingFile(f"{path.name}: {error.strerror}") from error
        reason = "is a link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise UnreadableFile(f"{path.name} {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile(f"{path.name} is not a regular file")
    return descriptor


def exists(path: Path, *, below: Path | None = None) -> bool:
    """Return whether the file ``path`` exists; raises UnreadableFile if `open_plain` refuses it."""
    try:
        open_plain(path, below=below).close()
    except MissingFile:
        return False
    return True


def is_folder(path: Path, *, below: Path) -> bool:
    """Return whether ``path`` is the folder ``below`` or a folder in it, with no links in between."""
    try:
        with _folder_of(path / "any", below):
            return True
    except (OSError, UnreadableFile):
        return False


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES, *, below: Path | None = None) -> bytes:
    """Read a regular file of at most ``limit`` bytes; raises UnreadableFile."""
    descriptor = _open_descriptor(path, below)
    try:
        # Check the size first: a sparse file can be huge.
        size = os.fstat(descriptor).st_size
        parts, length = [], 0
        while max(size, length) <= limit and (part := os.read(descriptor, max(0, size - length) + _CHUNK)):
            parts.append(part)
            length += len(part)
    except OSError as error:
        raise UnreadableFile(f"{path.name}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if max(size, length) > limit:
        raise UnreadableFile(f"{path.name} is larger than {limit:,} bytes")
    return b"".join(parts)


def read_json(path: Path, type_: type[T], *, below: Path | None = None, limit: int = MAX_JSON_BYTES) -> T:
    """Load the JSON value in ``path`` as ``type_``; raises UnreadableFile if it is missing, invalid or too large."""
    data = read_bytes(path, limit, below=below)
    try:
        return schema.decode(data, type_)
    except schema.Malformed as error:
        raise UnreadableFile(f"{path.name}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path.name} is not valid JSON: {error}") from error


def walk(top: Path | str, *, skips_hidden: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each folder from ``top`` down, with the sorted names of its files; folders are sorted, too.

    Links to folders are neither followed nor listed, and folders that cannot be read are skipped. With
    ``skips_hidden``, so are folders whose names begin with a dot. Folders may be nested to any depth.
    """
    waiting = [os.fspath(top)]
    while waiting:
        folder = waiting.pop()
        inner, names = [], []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir():
                        names.append(entry.name)
                    elif not entry.is_symlink() and not (skips_hidden and entry.name.startswith(".")):
                        inner.append(entry.path)
        except OSError:
            continue
        yield folder, sorted(names)
        waiting += sorted(inner, reverse=True)


def files_below(folder: Path) -> list[Path]:
    """Return all files below ``folder``, sorted; links to folders are not followed."""
    return sorted(Path(parent, name) for parent, names in walk(folder) for name in names)


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    """Delete a file, or a folder with everything in it, if it exists.

    Folders may be nested to any depth and lack permissions, as a user's network may leave them. At most two of
    them are open at a time. Links are deleted, not followed. Whatever can be deleted is deleted before the first
    OSError is raised, unless ``ignore_errors``.
    """
    try:
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            _Removal(path).run()
    except OSError:
        if not ignore_errors:
            raise


class _Removal:
    """Deletes the folder ``path``, without recursion: the kernel knows the way back as “..”."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problem: OSError | None = None

    def run(self) -> None:
        self._here = os.open(self._path.parent, _PLACE & ~os.O_NOFOLLOW)
        try:
            # The name and state of each folder on the way to the open one, and the names of folders left in it.
            levels = [("", os.fstat(self._here), [self._path.name])]
            while levels[0][2] or len(levels) > 1:
                if inner := levels[-1][2]:
                    name = inner.pop()
                    with self._noting_problems():
                        self._move(_open_for_removal(name, self._here))
                        levels.append((name, os.fstat(self._here), self._remove_files()))
                else:
                    name, _, _ = levels.pop()
                    self._move(os.open("..", _PLACE, dir_fd=self._here))
                    if not os.path.samestat(os.fstat(self._here), levels[-1][1]):
                        raise OSError(
                            errno.ESTALE, "The folder was moved while being deleted", str(self._path)
                        )
                    with self._noting_problems():
                        os.rmdir(name, dir_fd=self._here)
        finally:
            os.close(self._here)
        if self._problem is not None:
            raise self._problem

    def _move(self, folder: int) -> None:
        self._here, before = folder, self._here
        os.close(before)

    def _remove_files(self) -> list[str]:
        """Delete the files in the open folder; return the names of its folders."""
        folders = []
        with self._noting_problems(), os.scandir(self._here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                    continue
                with self._noting_problems():
                    os.unlink(entry.name, dir_fd=self._here)
        return folders

    @contextlib.contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            pass  # deleted by another process
        except OSError as error:
            self._problem = self._problem or error


def _open_for_removal(name: str, folder: int) -> int:
    """Open the folder ``name`` in the open ``folder``, after granting the permissions it takes to empty it."""
    descriptor = os.open(name, _PLACE, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def move_to_high_descriptor(descriptor: int) -> int:
    """Move an open file to a high descriptor, safe from code that closes 0, 1, 2 and so on."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:
        return descriptor  # above this process's limit
    os.close(descriptor)
    return moved


def tree_bytes(folder: Path) -> int:
    """Total size in bytes of the regular files below ``folder``; files that vanish are ignored."""
    total = 0
    for parent, names in walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


@contextlib.contextmanager
def _folder_of(path: Path, below: Path) -> Iterator[tuple[str, int]]:
    """Yield the name to open and the descriptor of the folder to which it is relative."""
    try:
        parts = path.relative_to(below).parts
    except ValueError:
        parts = ("..",)
    if not parts or ".." in parts:
        raise UnreadableFile(f"{path.name} is outside of {below.name}")
    folder = os.open(below, _PLACE)
    try:
        for part in parts[:-1]:
            folder, above = os.open(part, _PLACE, dir_fd=folder), folder
            os.close(above)
        yield parts[-1], folder
    finally:
        os.close(folder)


def sync_folder(folder: Path) -> None:
    """Make the entries of ``folder`` durable: created, replaced and removed names."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the contents of the file ``path`` durable, whichever process wrote them."""
    _sync(path, os.O_RDONLY)


def sync_tree(folder: Path) -> None:
    """Make all files and folders below ``folder``, and ``folder`` itself, durable."""
    for parent, names in walk(folder):
        for name in names:
            sync_file(Path(parent, name))
        sync_folder(Path(parent))
    sync_folder(folder.parent)


def publish_folder(new: Path, target: Path) -> None:
    """Make the folder ``new`` durable and move it to ``target``, in the place of an earlier one, which is deleted.

    ``target`` is never missing or incomplete, even if the process is killed; then ``new`` may be left over. Both
    must be on the same file system. Without `RENAME_EXCHANGE`, as on NFS, ``target`` is missing for a moment. Raises
    OSError.
    """
    sync_tree(new)
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        old = new.with_name(f"{new.name}.replaced")
        remove_tree(old)
        target.rename(old)
        new.rename(target)
        remove_tree(old, ignore_errors=True)
    sync_folder(target.parent)
    remove_tree(new, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False if the kernel or the file system cannot."""
    with contextlib.suppress(AttributeError):  # a C library without the function
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        if not renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
            return True
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(number, os.strerror(number), str(other))
    return False


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
