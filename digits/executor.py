"""Starts, polls and stops the processes of tasks, and finds them again after a restart.

`Executor` is all that the scheduler knows. `LocalExecutor` runs tasks on this
machine, each under a supervisor (`digits.shim`) that outlives the server. What
the two sides share is the task's folder; nothing else is assumed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from digits import files, shim
from digits.environment import TASK_VARIABLES, inherited

log = logging.getLogger(__name__)

Handle = dict[str, Any]


@dataclass(frozen=True)
class Exit:
    """How a task's process ended, and when (Unix time). ``lost``: nobody was there to see it."""

    code: int | None = None
    signal: int | None = None
    stopped: bool = False
    out_of_memory: bool = False
    lost: bool = False
    at: float | None = field(default=None, compare=False)

    @property
    def went_well(self) -> bool:
        return self.code == 0


class Executor(Protocol):
    """Runs tasks. A handle is a JSON value that finds a task again after a restart."""

    def start(self, folder: Path, environment: Mapping[str, str]) -> Handle:
        """Start the task whose recipe is in ``folder``."""

    def find(self, folder: Path, since: float) -> Handle | None:
        """The task in ``folder`` if it was started after ``since``, a Unix time, by a server that
        was killed before it could note that; it may have ended meanwhile.
        """

    def poll(self, folder: Path, handle: Handle) -> Exit | None:
        """How the task ended; None while it runs."""

    def stop(self, handle: Handle) -> None:
        """Ask the task to stop; it is killed if it does not. Returns at once."""


class LocalExecutor:
    """Runs tasks as processes of this machine.

    With ``standby``, a fork server holds TensorFlow imported, so that a task starts
    at once; whenever it is not there, tasks start with a fresh interpreter.
    ``program`` is the command of a worker; the task's folder is added to it.
    ``pass_env`` names more variables of the environment that tasks inherit.
    """

    def __init__(
        self,
        *,
        standby: bool = True,
        log_file: Path | None = None,
        # -P: modules come from where they are installed, not from the folder that a program starts in.
        program: Sequence[str] = (sys.executable, "-P", "-m", "digits.worker"),
        pass_env: Sequence[str] = (),
    ) -> None:
        self._program = tuple(program)
        self._pass_env = tuple(pass_env)
        self._fork_server = ForkServer(log_file, pass_env) if standby else None
        self._children: set[int] = set()

    def start(self, folder: Path, environment: Mapping[str, str]) -> Handle:
        for path in folder.glob(f"{shim.EXIT_FILE}*"):
            path.unlink(missing_ok=True)
        environment = {
            **child_environment(os.environ, self._pass_env),
            **environment,
            _TASK_VARIABLE: str(folder),
        }
        pid = self._fork_server.fork(folder, environment) if self._fork_server else None
        if pid is None:
            pid = self._start_fresh(folder, environment)
        return _handle(pid)

    def find(self, folder: Path, since: float) -> Handle | None:
        ended = self._read_exit(folder)
        if ended:
            # All that is left of it is what it wrote.
            return _handle(0) if ended.at is not None and ended.at >= since else None
        supervisor = _supervisor_of(folder) if (folder / shim.OUTPUT_FILE).exists() else None
        return None if supervisor is None else _handle(supervisor)

    def poll(self, folder: Path, handle: Handle) -> Exit | None:
        self._reap()
        ended = self._read_exit(folder)
        if ended is None and not is_alive(handle):
            # The supervisor may have written its last word since the first look.
            ended = self._read_exit(folder) or _lost(folder)
        return ended

    def stop(self, handle: Handle) -> None:
        if is_alive(handle):
            try:
                os.kill(handle["pid"], signal.SIGTERM)
            except ProcessLookupError:
                pass

    def warm_up(self) -> None:
        """Start the fork server now, in the background."""
        if self._fork_server:
            self._fork_server.start()

    def is_warm(self) -> bool:
        """Whether the fork server is there and ready."""
        return bool(self._fork_server and self._fork_server.is_ready)

    def close(self) -> None:
        """End the fork server. Tasks go on."""
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

    @staticmethod
    def _read_exit(folder: Path) -> Exit | None:
        try:
            body = files.read_json(folder / shim.EXIT_FILE)
            return Exit(
                code=body["code"],
                signal=body["signal"],
                stopped=bool(body.get("stopped")),
                out_of_memory=bool(body.get("out_of_memory")),
                at=float(body["at"]) if "at" in body else None,
            )
        except (files.UnreadableFile, KeyError, TypeError, ValueError):
            return None


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
        """Start the process if it is not there; does not wait until it is ready."""
        if self._process is not None or self._starts >= self.MAX_STARTS:
            return
        self._starts += 1
        output = open(self._log_file, "ab") if self._log_file else subprocess.DEVNULL  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "digits.worker.forkserver"],
            env={**child_environment(os.environ, self._pass_env), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        if self._log_file:
            output.close()  # type: ignore[union-attr]
        threading.Thread(target=self._wait_until_ready, args=(self._process,), daemon=True).start()

    def fork(self, folder: Path, environment: Mapping[str, str]) -> int | None:
        """The process id of the new task's supervisor; None if the server is not there."""
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


# Tells the processes of a task from all others: they inherit it.
_TASK_VARIABLE = "DIGITS_TASK"


def child_environment(environment: Mapping[str, str], pass_env: Sequence[str] = ()) -> dict[str, str]:
    """What a task may know of the server's environment: no token, no password, no key.

    ``pass_env`` names variables to keep besides `digits.environment.TASK_VARIABLES`.
    """
    kept = inherited(environment, (*TASK_VARIABLES, *pass_env))
    package_home = str(Path(__file__).resolve().parents[1])
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
    """What a task must be told to see these devices only: ``cpu``, or GPUs by their number."""
    # An empty value hides the GPUs from a task that is to run on the CPU.
    gpus = ",".join(device for device in devices if device != "cpu")
    # The driver numbers GPUs by their bus; CUDA would otherwise put the fastest first.
    return {"CUDA_VISIBLE_DEVICES": gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _handle(pid: int) -> Handle:
    return {"boot": _boot_id(), "pid": pid, "began": _start_ticks(pid)}


def _supervisor_of(folder: Path) -> int | None:
    """The process that supervises the task in ``folder``; None if there is none."""
    wanted = [os.fsencode(Path(shim.__file__).name), os.fsencode(folder)]
    for pid, words in shim.words_of_all("cmdline"):
        # python -I -S …/shim.py FOLDER …
        if [os.path.basename(words[3]) if len(words) > 4 else b"", *words[4:5]] == wanted:
            return pid
    return None


def _lost(folder: Path) -> Exit:
    """The end of a task whose supervisor was killed; what the task has started is killed now."""
    at = _last_change(folder)
    mark = os.fsencode(f"{_TASK_VARIABLE}={folder}")
    for pid, words in shim.words_of_all("environ"):
        if mark in words:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    return Exit(lost=True, at=at)


def _last_change(folder: Path) -> float | None:
    """When a file of ``folder`` was written last."""
    try:
        return max((entry.stat().st_mtime for entry in os.scandir(folder)), default=None)
    except OSError:
        return None


def is_alive(handle: Handle) -> bool:
    """Whether the very process of the handle runs: not another one that got its number."""
    return handle.get("boot") == _boot_id() and (
        handle.get("began") is not None and handle["began"] == _start_ticks(handle.get("pid", 0))
    )


def _start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None if it is dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
