"""Identify processes of this machine by ``/proc``: whether they run, and which belong to a task."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from digits.core import schema
from digits.core.schema import Count
from digits.core.task import Handle
from digits.runtime import supervisor

# Identifies the processes of a task, which inherit it.
TASK_VARIABLE = "DIGITS_TASK"

_DEAD = (b"Z", b"X")


class Supervisor(Struct, frozen=True):
    """The supervisor of a run, as saved in its `Handle`.

    ``boot`` is the boot id, ``pid`` is 0 if the run has ended, ``began`` is the start time in clock ticks since
    boot, and ``run`` is the number of the run.
    """

    boot: str = ""
    pid: Annotated[int, Meta(ge=0, le=2**31)] = 0
    began: Count | None = None
    run: Count = 1

    @classmethod
    def of_process(cls, pid: int, run: int) -> Supervisor:
        return cls(boot_id(), pid, start_ticks(pid), run)

    @classmethod
    def of_handle(cls, handle: Handle | None) -> Supervisor:
        """Return the supervisor that ``handle`` identifies, or one that has ended."""
        try:
            return schema.convert(handle or {}, cls)
        except schema.Malformed:
            return cls()

    @property
    def handle(self) -> Handle:
        known: Handle = msgspec.to_builtins(self)
        return known

    @property
    def is_alive(self) -> bool:
        """Whether the process is running, as opposed to another one that reuses its id.

        Raises OSError if that cannot be determined, for example with too many open files.
        """
        return self._is_of_this_boot and self.began == start_ticks(self.pid)

    @property
    def may_have_session(self) -> bool:
        """Whether the session with the id of the process must be the one it led."""
        if not self._is_of_this_boot:
            return False
        stat = _stat(self.pid)
        # A process id is not reused while its session has members.
        return stat is None or int(stat[19]) == self.began

    @property
    def _is_of_this_boot(self) -> bool:
        return self.pid > 1 and self.began is not None and self.boot == boot_id()


def start_ticks(pid: int) -> int | None:
    """Return the start time of the process in clock ticks since boot, or None if it is dead or a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in _DEAD else int(stat[19])


def supervisor_of(folder: Path) -> int | None:
    """Return the id of the process that supervises the task in ``folder``, or None."""
    wanted = [os.fsencode(Path(supervisor.__file__).name), os.fsencode(folder)]
    for pid, text in supervisor.contents_of_all("cmdline"):
        words = text.split(b"\0")
        # python -I -S …/supervisor.py FOLDER …
        if [os.path.basename(words[3]) if len(words) > 4 else b"", *words[4:5]] == wanted:
            return pid
    return None


def wait_until_identifiable(pid: int) -> None:
    """Wait until `processes_in` can identify the new process ``pid``, at most for five seconds.

    The kernel reports a program as started before its arguments and environment can be read. Raises OSError if
    they cannot be read at all, for example with too many open files.
    """
    deadline = time.monotonic() + 5.0
    while start_ticks(pid) is not None and time.monotonic() < deadline:
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/environ", "rb") as file,
        ):
            if file.read(1):
                return
        time.sleep(0.001)


def processes_in(folder: Path, supervisors: Iterable[Supervisor] = ()) -> Iterator[int]:
    """Return the running processes of the tasks in or below ``folder``.

    Their initial environment names the task, or, if they were forked by the fork server, they
    belong to the session of their supervisor, whose environment does, or of one of ``supervisors``.
    """
    sessions = {known.pid for known in supervisors if known.may_have_session}
    variable = b"\0" + os.fsencode(f"{TASK_VARIABLE}={folder}")
    marks = (variable + b"\0", variable + os.sep.encode())
    running: list[tuple[int, int]] = []
    marked: set[int] = set()
    for pid, text in supervisor.contents_of_all("environ"):
        stat = _stat(pid)
        if stat is None or stat[0] in _DEAD or pid == os.getpid():
            continue
        session = int(stat[3])
        running.append((pid, session))
        environment = b"\0" + text + b"\0"
        if any(mark in environment for mark in marks):
            marked.add(pid)
            if pid == session:
                sessions.add(pid)
    return (pid for pid, session in running if pid in marked or session in sessions)


def task_of(pid: int) -> Path | None:
    """Return the folder of the task that a process belongs to, as in `processes_in`; None for any other process."""
    stat = _stat(pid)
    mark = os.fsencode(f"{TASK_VARIABLE}=")
    for marked in (pid, int(stat[3])) if stat else ():
        with contextlib.suppress(OSError), open(f"/proc/{marked}/environ", "rb") as file:
            for word in file.read().split(b"\0"):
                if word.startswith(mark):
                    return Path(os.fsdecode(word[len(mark) :]))
    return None


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` from the third one on: state, parent, group, session, and so on."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split() or None
    except (FileNotFoundError, ProcessLookupError):
        return None


@functools.cache
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
