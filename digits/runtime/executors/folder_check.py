"""Try out in a jobs folder what the server and its tasks require of the file system, which machines may share."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from digits.core import files
from digits.runtime.executors.cluster import Finding

PREFIX = ".check-"


class _Refused(Exception):
    """The file system accepted a call but did not do what it should."""


def check_folder(folder: Path) -> Iterator[Finding]:
    """Check the file system of ``folder`` from this machine, in a new folder that is removed at the end.

    Yield a finding for each requirement that is not met, or one if all are met. Call it in a thread, because a network
    file system may hang.
    """
    scratch = folder / f"{PREFIX}{secrets.token_hex(4)}"
    try:
        scratch.mkdir(mode=0o700)
    except OSError as error:
        yield Finding(
            title="This server can write to the jobs folder",
            is_ok=False,
            detail=f"{folder}: {error.strerror}.",
            remedy="Give the user of the server write access to the folder.",
        )
        return
    are_met = True
    try:
        for title, attempt, remedy in _REQUIREMENTS:
            if problem := _problem_of(attempt, scratch):
                are_met = False
                yield Finding(title=title, is_ok=False, detail=problem, remedy=remedy)
        if are_met:
            detail = (
                "private files, durable writes, replacement, exclusive creation, appended lines and locks"
            )
            yield Finding(title="The file system of the jobs folder is suitable", is_ok=True, detail=detail)
    finally:
        files.remove_tree(scratch, ignore_errors=True)


def _problem_of(attempt: Callable[[Path], None], scratch: Path) -> str:
    try:
        attempt(scratch)
    except OSError as error:
        return f"{error.strerror}."
    except _Refused as refused:
        return str(refused)
    return ""


def _private(scratch: Path) -> None:
    state = scratch.stat()
    if state.st_uid != os.geteuid():
        raise _Refused(f"New files belong to the user {state.st_uid}, not to {os.geteuid()}.")
    if state.st_mode & 0o077:
        raise _Refused("Other users can read new files.")


def _durable(scratch: Path) -> None:
    (scratch / "durable").write_bytes(b"x")
    files.sync_tree(scratch)


def _replacing(scratch: Path) -> None:
    path = scratch / "replaced"
    files.write_bytes(path, b"old")
    with open(path, "rb") as reader:
        files.write_bytes(path, b"new!")
        if path.read_bytes() != b"new!" or reader.read() != b"old":
            raise _Refused("A reader of the old file saw parts of the new one.")


def _exclusive(scratch: Path) -> None:
    path = scratch / "exclusive"
    path.touch(exist_ok=False)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return
    raise _Refused("Two programs can create the same file.")


def _appending(scratch: Path) -> None:
    """Append like a task and read like the server, which opens the log again for each part."""
    path, expected = scratch / "log", b""
    with open(path, "ab", buffering=0) as log:
        for number in range(5):
            line = f"{number}\n".encode()
            log.write(line)
            expected += line
            if files.read_bytes(path, below=scratch) != expected or path.stat().st_size != len(expected):
                raise _Refused("A file that was opened again lacks lines that had been appended.")


def _locking(scratch: Path) -> None:
    with open(scratch / "locked", "wb") as one, open(scratch / "locked", "rb") as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EBADF:  # network file systems lock only files open for writing
                return
            raise
    raise _Refused("Two programs can lock the same file.")


_REQUIREMENTS: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    (
        "New files belong to the server’s user, and only this user can read them",
        _private,
        "On NFS, run the server as an ordinary user rather than root, and mount a file system with Unix permissions.",
    ),
    ("Writes can be made durable", _durable, "Use a file system with fsync for files and folders."),
    (
        "A file can replace another one in one step",
        _replacing,
        "Use NFS 3 or newer, Lustre, GPFS, CephFS or a local disk, not a mounted object store.",
    ),
    (
        "Only one program can create a file",
        _exclusive,
        "Use NFS 3 or newer, Lustre, GPFS, CephFS or a local disk, not a mounted object store.",
    ),
    (
        "Appended lines are visible when a file is opened again",
        _appending,
        "Mount the file system with close-to-open consistency: on NFS, without the option “nocto”.",
    ),
    (
        "Files can be locked",
        _locking,
        "Mount the file system with locks (on Lustre with “flock”). Without them, the server waits half a minute after "
        "it was killed before it starts again.",
    ),
)
