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


def check_folder(folder: Path) -> Iterator[Finding]:
    """Check the file system of ``folder`` from this machine, in a new folder that is removed at the end.

    Yield a finding for each requirement that is not met, or one if all are met. Call it in a thread, because a network
    file system may hang.
    """
    scratch = folder / f"{PREFIX}{secrets.token_hex(4)}"
    try:
        scratch.mkdir(mode=0o700)
    except OSError as error:
        title, remedy = (
            "This server can write to the jobs folder",
            "Give the user of the server write access to it.",
        )
        yield Finding(title=title, is_ok=False, detail=f"{folder}: {error.strerror}.", remedy=remedy)
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


def _problem_of(attempt: Callable[[Path], str], scratch: Path) -> str:
    try:
        return attempt(scratch)
    except OSError as error:
        return f"{error.strerror}."


# Each of these returns what the file system does wrong, and is empty if nothing is.


def _private(scratch: Path) -> str:
    state = scratch.stat()
    if state.st_uid != os.geteuid():
        return f"New files belong to the user {state.st_uid}, not to {os.geteuid()}."
    return "Other users can read new files." if state.st_mode & 0o077 else ""


def _durable(scratch: Path) -> str:
    (scratch / "durable").write_bytes(b"x")
    files.sync_tree(scratch)
    return ""


def _replacing(scratch: Path) -> str:
    path = scratch / "replaced"
    files.write_bytes(path, b"old")
    with open(path, "rb") as reader:
        files.write_bytes(path, b"new!")
        is_atomic = path.read_bytes() == b"new!" and reader.read() == b"old"
    return "" if is_atomic else "A reader of the old file saw parts of the new one."


def _exclusive(scratch: Path) -> str:
    path = scratch / "exclusive"
    path.touch(exist_ok=False)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return ""
    return "Two programs can create the same file."


def _appending(scratch: Path) -> str:
    """Append like a task and read like the server, which opens the log again for each part."""
    path, expected = scratch / "log", b""
    with open(path, "ab", buffering=0) as log:
        for number in range(5):
            line = f"{number}\n".encode()
            log.write(line)
            expected += line
            if files.read_bytes(path, below=scratch) != expected or path.stat().st_size != len(expected):
                return "A file that was opened again lacks lines that had been appended."
    return ""


def _locking(scratch: Path) -> str:
    with open(scratch / "locked", "wb") as one, open(scratch / "locked", "rb") as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Network file systems lock only files open for writing.
            if isinstance(error, BlockingIOError) or error.errno == errno.EBADF:
                return ""
            raise
    return "Two programs can lock the same file."


_OTHER_SYSTEM = "Use NFS 3 or newer, Lustre, GPFS, CephFS or a local disk, not a mounted object store."
_REQUIREMENTS: tuple[tuple[str, Callable[[Path], str], str], ...] = (
    (
        "New files belong to the server’s user, and only this user can read them",
        _private,
        "On NFS, run the server as an ordinary user rather than root, and mount a file system with Unix permissions.",
    ),
    ("Writes can be made durable", _durable, "Use a file system with fsync for files and folders."),
    ("A file can replace another one in one step", _replacing, _OTHER_SYSTEM),
    ("Only one program can create a file", _exclusive, _OTHER_SYSTEM),
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
