"""Find what a test leaves behind: processes, open files, and temporary files."""

from __future__ import annotations

import gc
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gevent
import psutil

from tests.shared_executor import SharedExecutor

# Processes get this long to end.
LEAVE_SECONDS = 20.0
# Executors whose fork server runs until the end of the session; the processes that it forks belong to a test.
SHARED: list[SharedExecutor] = []


@dataclass
class Leftovers:
    """A snapshot of a test process's resources, to compare with a later one.

    Every program started by tests, even if it detaches itself, inherits their folder of temporary files.
    """

    processes: set[int]
    files: dict[int, str]
    temporary: set[str]

    @classmethod
    def now(cls) -> Leftovers:
        return cls(set(psutil.pids()), open_files(), set(os.listdir(tempfile.gettempdir())))

    def since(self, *, shared: bool) -> list[str]:
        """Describe the processes and files left over since this snapshot, and end those processes.

        With ``shared``, list only child processes, regular files and folders: a site shared by several tests may keep
        an inference server and its connection.
        """
        kinds = (stat.S_ISREG, stat.S_ISDIR) if shared else (lambda mode: True,)
        return [*self._processes(shared), *self._files(kinds), *self._temporary()]

    def _processes(self, shared: bool) -> list[str]:
        deadline = time.monotonic() + LEAVE_SECONDS
        while (left := list(self._started(shared))) and time.monotonic() < deadline:
            time.sleep(0.02)
        described = [f"process {' '.join(_command(process))[:200]}" for process in left]
        for process in left:
            _kill_with_descendants(process)
        return described

    def _started(self, shared: bool) -> Iterator[psutil.Process]:
        """Return children of this process, and programs it started that have detached themselves.

        Descendants of a process that was already running belong to it, such as the tabs of a shared browser.
        """
        fork_servers = _fork_servers()
        for pid in psutil.pids():
            if pid in self.processes or pid in fork_servers:
                continue
            try:
                process = psutil.Process(pid)
                is_child = process.ppid() == os.getpid()
                if (is_child or (not shared and _is_ours(pid) and not self._has_owner(process))) and _runs(
                    process
                ):
                    yield process
            except psutil.NoSuchProcess:
                continue

    def _has_owner(self, process: psutil.Process) -> bool:
        earlier = self.processes - _fork_servers()
        return any(parent.pid in earlier and _is_ours(parent.pid) for parent in process.parents())

    def _files(self, kinds: Sequence[Callable[[int], bool]]) -> list[str]:
        new = self._new_files(kinds)
        if new:
            gc.collect()  # close files kept open by reference cycles
            new = self._new_files(kinds)
        deadline = time.monotonic() + LEAVE_SECONDS
        # Threads of a site that several tests share may still delete or measure folders, and those of Arrow read files.
        while new and time.monotonic() < deadline:
            gevent.sleep(0.02)
            new = self._new_files(kinds)
        return [f"open file {name}" for name in new]

    def _new_files(self, kinds: Sequence[Callable[[int], bool]]) -> list[str]:
        # The pipes to a fork server, which runs until the end of the session.
        pipes = {name for pid in _fork_servers() for name in open_files([stat.S_ISFIFO], pid).values()}
        return [
            name
            for number, name in open_files(kinds).items()
            if self.files.get(number) != name and name not in pipes
        ]

    def _temporary(self) -> list[str]:
        deadline = time.monotonic() + LEAVE_SECONDS
        # A server that several tests share may still answer a request whose page is gone.
        while (left := self._new_temporary()) and time.monotonic() < deadline:
            gevent.sleep(0.02)
        return [f"temporary file {tempfile.gettempdir()}/{name}" for name in left]

    def _new_temporary(self) -> list[str]:
        new = set(os.listdir(tempfile.gettempdir())) - self.temporary
        # AutoGraph creates files here and removes them when the process ends.
        return [name for name in new if not name.startswith(("__autograph_", "__pycache__"))]


def open_files(
    kinds: Sequence[Callable[[int], bool]] = (lambda mode: True,), process: int | str = "self"
) -> dict[int, str]:
    """Return the files of these types that a process has open, by descriptor; by default this process."""
    folder = f"/proc/{process}/fd"
    found: dict[int, str] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found  # the process has ended
    for name in names:
        try:
            if any(is_kind(os.stat(f"{folder}/{name}").st_mode) for is_kind in kinds):
                found[int(name)] = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # it was closed, or it is the descriptor of the listing itself
    return found


def check_folders_of_server(pid: int) -> None:
    """Fail if a running server keeps folders open other than that of its jobs, which it always does."""
    deadline = time.monotonic() + LEAVE_SECONDS
    # A request may still be in progress.
    while len(folders := open_files([stat.S_ISDIR], pid)) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(folders) <= 1, f"the server left folders open: {folders}"


def _fork_servers() -> set[int]:
    return {executor.fork_server_pid for executor in SHARED if executor.fork_server_pid}


def _is_ours(pid: int) -> bool:
    try:
        return f"TMPDIR={tempfile.gettempdir()}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(
            b"\0"
        )
    except OSError:  # it has ended, or another user owns it
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        # Python's shared-memory tracker runs as long as the tests.
        return process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(
            process.cmdline()
        )
    except psutil.NoSuchProcess:
        return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return [process.name()]


def _kill_with_descendants(process: psutil.Process) -> None:
    try:
        descendants = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for one in [*descendants, process]:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            pass  # it has already ended
