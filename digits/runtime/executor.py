"""Start, poll and stop the processes of tasks, and find them again after a restart.

`Executor` is the scheduler's interface. `LocalExecutor` runs tasks on this
machine, each under a supervisor (`digits.runtime.supervisor`) that outlives the server. The
two sides share only the task's folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from digits.core import files
from digits.core.environment import TASK_VARIABLES, inherited
from digits.core.schema import Count, Integer, UnixTime
from digits.core.task import Handle
from digits.runtime import supervisor as shim

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a task's process ended, when (Unix time), and its running time in seconds.

    ``lost``: the supervisor was killed, or its record is damaged; then ``damage`` is the reason.
    """

    code: int | None = None
    signal: int | None = None
    stopped: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    lost: bool = False
    damage: str = ""
    at: float | None = field(default=None, compare=False)
    seconds: float | None = field(default=None, compare=False)

    @property
    def went_well(self) -> bool:
        return self.code == 0


class _ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's record of the end of a run: the fields of `Exit`, and the number of the run."""

    code: Integer | None
    signal: Integer | None
    stopped: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    at: UnixTime | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    run: Count = 1


class Executor(Protocol):
    """Runs tasks. A handle identifies a running task across restarts of the server; every run has a new number."""

    def start(self, folder: Path, environment: Mapping[str, str], run: int = 1) -> Handle:
        """Start the task whose recipe is in ``folder``."""

    def find(self, folder: Path, run: int) -> Handle | None:
        """Find a ``run`` of the task in ``folder`` whose handle was not saved because the server was killed.

        The run may have ended in the meantime.
        """

    def poll(self, folder: Path, handle: Handle | None) -> Exit | None:
        """How the task ended; None while any of its processes runs."""

    def stop(self, handle: Handle) -> None:
        """Ask the task to stop; it is killed if it does not. Returns at once."""

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        """Kill all processes of the tasks in or below ``folder``; return whether none was left."""


class LocalExecutor:
    """Runs tasks as processes of this machine.

    With ``standby``, a fork server keeps TensorFlow imported, so that tasks start
    at once; while it is unavailable, tasks start with a fresh interpreter.
    ``program`` is the command of a worker; the task's folder is added to it.
    ``pass_env`` names additional environment variables that tasks inherit.
    """

    def __init__(
        self,
        *,
        standby: bool = True,
        log_file: Path | None = None,
        # -P: import installed modules only, not those in the current folder.
        program: Sequence[str] = (sys.executable, "-P", "-m", "digits.worker"),
        pass_env: Sequence[str] = (),
    ) -> None:
        self._program = tuple(program)
        self._pass_env = tuple(pass_env)
        self._fork_server = ForkServer(log_file, pass_env) if standby else None
        self._children: set[int] = set()

    def start(self, folder: Path, environment: Mapping[str, str], run: int = 1) -> Handle:
        for path in folder.glob(f"{shim.EXIT_FILE}*"):
            path.unlink(missing_ok=True)
        # Before the process starts, so that a full disk is reported now and not when it ends.
        os.close(shim.reserve_exit(str(folder)))
        environment = {
            **child_environment(os.environ, self._pass_env),
            **environment,
            _TASK_VARIABLE: str(folder),
            shim.RUN_VARIABLE: str(run),
        }
        pid = self._fork_server.fork(folder, environment) if self._fork_server else None
        if pid is None:
            pid = self._start_fresh(folder, environment)
        return _handle(pid, run)

    def find(self, folder: Path, run: int) -> Handle | None:
        supervisor = _supervisor_of(folder)
        if supervisor is not None:
            return _handle(supervisor, run)
        # A run that has ended is known by its supervisor's record only.
        return _handle(0, run) if _read_exit(folder, run) else None

    def poll(self, folder: Path, handle: Handle | None) -> Exit | None:
        self._reap()
        try:
            # A task can forge its exit record, so do not read it while any of its processes runs.
            if handle and is_alive(handle):
                return None
            if not self.clear(folder, [handle] if handle else ()):
                return None
            ended = _read_exit(folder, handle.get("run", 1) if handle else 1)
            return ended or Exit(lost=True, at=_last_change(folder))
        except OSError as error:
            log.warning("could not determine whether the task in %s is running: %s", folder, error)
            return None

    def stop(self, handle: Handle) -> None:
        if is_alive(handle):
            for number in (signal.SIGTERM, signal.SIGCONT):  # the task may have stopped its supervisor
                with contextlib.suppress(OSError):
                    os.kill(handle["pid"], number)

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        left = list(_processes_in(folder, handles))
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._reap()
        return not left

    def warm_up(self) -> None:
        """Start the fork server now, in the background."""
        if self._fork_server:
            self._fork_server.start()

    def is_warm(self) -> bool:
        """Whether the fork server is running and ready."""
        return bool(self._fork_server and self._fork_server.is_ready)

    def close(self) -> None:
        """Stop the fork server. Tasks keep running."""
        if self._fork_server:
            self._fork_server.close()

    def _start_fresh(self, folder: Path, environment: Mapping[str, str]) -> int:
        program = [sys.executable, "-I", "-S", shim.__file__, str(folder), "--", *self._program, str(folder)]
        to_null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        # Not subprocess.Popen: this process is meant to outlive the object that started it.
        # A stop that comes before the supervisor is ready for it has to wait, not to kill it.
        child = os.posix_spawn(
            program[0],
            program,
            dict(environment),
            file_actions=to_null,
            setsid=True,
            setsigmask=[signal.SIGTERM],
        )
        self._children.add(child)
        return child

    def _reap(self) -> None:
        for child in list(self._children):
            try:
                gone = os.waitpid(child, os.WNOHANG)[0] == child
            except ChildProcessError:
                gone = True  # gevent was quicker
            if gone:
                self._children.discard(child)


class ForkServer:
    """The server's end of `digits.worker.forkserver`. It is started again when it dies."""

    MAX_STARTS = 5

    def __init__(self, log_file: Path | None, pass_env: Sequence[str] = ()) -> None:
        self._log_file = log_file
        self._pass_env = tuple(pass_env)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._starts = 0
        self.is_ready = False

    def start(self) -> None:
        """Start the process if it is not running, without waiting until it is ready."""
        if self._process is not None or self._starts >= self.MAX_STARTS:
            return
        self._starts += 1
        environment = {**child_environment(os.environ, self._pass_env), "OPENBLAS_NUM_THREADS": "1"}
        try:
            with open(self._log_file or os.devnull, "ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "digits.worker.forkserver"],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            self._starts -= 1
            # Tasks start without it, but more slowly.
            log.warning("could not start the fork server: %s", error)
            return
        threading.Thread(target=self._wait_until_ready, args=(self._process,), daemon=True).start()

    def fork(self, folder: Path, environment: Mapping[str, str]) -> int | None:
        """The process id of the new task's supervisor; None if the fork server is unavailable."""
        if not self.is_ready:
            self.start()
            return None
        process = self._process
        assert process is not None and process.stdin and process.stdout
        request = {"folder": str(folder), "environment": dict(environment)}
        with self._lock:
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return int(json.loads(process.stdout.readline())["pid"])
            except (OSError, ValueError, KeyError) as error:
                log.warning("the fork server is gone (%s); starting it again", error)
                self._forget()
        self.start()
        return None

    def close(self) -> None:
        self._starts = self.MAX_STARTS
        self._forget()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        line = process.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            answer = {"error": "it ended while importing TensorFlow"}
        if process is not self._process:
            return
        if answer.get("ready"):
            self.is_ready = True
            return
        log.warning("no fork server: %s", answer.get("error"))
        self._starts = self.MAX_STARTS
        self._forget()

    def _forget(self) -> None:
        process, self._process, self.is_ready = self._process, None, False
        if process is None:
            return
        if process.stdin:
            # Closing tries once more to write what a dead server did not read.
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


# Identifies the processes of a task, which inherit it.
_TASK_VARIABLE = "DIGITS_TASK"


def child_environment(environment: Mapping[str, str], pass_env: Sequence[str] = ()) -> dict[str, str]:
    """The environment variables that a task inherits: no token, password or key of the server.

    ``pass_env`` names variables to keep in addition to `digits.core.environment.TASK_VARIABLES`.
    """
    kept = inherited(environment, (*TASK_VARIABLES, *pass_env))
    package_home = str(Path(__file__).resolve().parents[2])
    path = [package_home, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONNOUSERSITE": "1",
        "TF_CPP_MIN_LOG_LEVEL": kept.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def devices_environment(devices: Sequence[str]) -> dict[str, str]:
    """The environment variables that restrict a task to ``devices``: ``cpu``, or GPU indexes."""
    # An empty value hides the GPUs from a task that is to run on the CPU.
    gpus = ",".join(device for device in devices if device != "cpu")
    # The driver numbers GPUs by their bus; CUDA would otherwise put the fastest first.
    return {"CUDA_VISIBLE_DEVICES": gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _handle(pid: int, run: int) -> Handle:
    return {"boot": _boot_id(), "pid": pid, "began": _start_ticks(pid), "run": run}


def _read_exit(folder: Path, run: int) -> Exit | None:
    """The exit record of this ``run``; None if there is none."""
    path = folder / shim.EXIT_FILE
    try:
        record = files.read_json(path, _ExitRecord, below=folder.parent)
    except files.UnreadableFile as error:
        if _is_blank(path):
            return None
        return Exit(lost=True, damage=str(error), at=_last_change(folder))
    known = msgspec.structs.asdict(record)
    return Exit(**known) if known.pop("run") == run else None


def _supervisor_of(folder: Path) -> int | None:
    """The process that supervises the task in ``folder``; None if there is none."""
    wanted = [os.fsencode(Path(shim.__file__).name), os.fsencode(folder)]
    for pid, words in shim.words_of_all("cmdline"):
        # python -I -S …/supervisor.py FOLDER …
        if [os.path.basename(words[3]) if len(words) > 4 else b"", *words[4:5]] == wanted:
            return pid
    return None


def _is_blank(path: Path) -> bool:
    """Whether the file is missing or blank."""
    try:
        return not files.read_bytes(path).strip(b"\0 \n")
    except files.UnreadableFile:
        return not os.path.lexists(path)


def _processes_in(folder: Path, handles: Sequence[Handle]) -> Iterator[int]:
    """The running processes of the tasks in or below ``folder``.

    Their initial environment names the task, or, if they were forked by the fork server, they
    belong to their supervisor's session, which is that of a handle.
    """
    sessions = {handle["pid"] for handle in handles if _may_have_session(handle)}
    mark = os.fsencode(f"{_TASK_VARIABLE}={folder}")
    for pid, words in shim.words_of_all("environ"):
        stat = _stat(pid)
        if stat is None or stat[0] in _DEAD or pid == os.getpid():
            continue
        if int(stat[3]) in sessions or any(
            word == mark or word.startswith(mark + os.sep.encode()) for word in words
        ):
            yield pid


def _may_have_session(handle: Handle) -> bool:
    """Whether the session with the id of the handle's process must be the one that it led."""
    if handle["pid"] <= 1 or handle["boot"] != _boot_id() or handle["began"] is None:
        return False
    stat = _stat(handle["pid"])
    # A process id is not reused while its session has members.
    return stat is None or int(stat[19]) == handle["began"]


def _last_change(folder: Path) -> float | None:
    """Time of the last change to a file in ``folder``, as Unix time."""
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=None)
    except OSError:
        return None


def is_alive(handle: Handle) -> bool:
    """Whether the process of the handle is running, as opposed to another one that reuses its id.

    Raises OSError if that cannot be determined, for example with too many open files.
    """
    return (
        handle["pid"] > 1
        and handle["began"] is not None
        and handle["boot"] == _boot_id()
        and handle["began"] == _start_ticks(handle["pid"])
    )


def _start_ticks(pid: int) -> int | None:
    """Start time of the process in clock ticks since boot; None if it is dead or a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in _DEAD else int(stat[19])


_DEAD = (b"Z", b"X")


def _stat(pid: int) -> list[bytes] | None:
    """The fields of ``/proc/PID/stat`` from the third one on: state, parent, group, session, and so on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split() or None
    except (FileNotFoundError, ProcessLookupError):
        return None


@functools.cache
def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
