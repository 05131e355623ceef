"""One TensorBoard process for each job whose logs are viewed.

The processes listen on loopback, below a path that only this server knows, and exit when they are idle or the server
exits. A proxy (`digits.web.services.tensorboard`) forwards requests to them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from digits.core.machine.environment import SYSTEM_VARIABLES, inherited
from digits.runtime import tensorboard_process
from digits.runtime.tensorboard_process import PORT_LINE

PROGRAM = Path(tensorboard_process.__file__)
MAX_PROCESSES = 8
IDLE_SECONDS = 15 * 60.0
START_SECONDS = 60.0
STOP_SECONDS = 5.0


class TensorBoards:
    """The TensorBoard processes of this server. All methods are safe to call from any greenlet."""

    def __init__(
        self,
        *,
        max_processes: int = MAX_PROCESSES,
        idle_seconds: float = IDLE_SECONDS,
        start_seconds: float = START_SECONDS,
        program: Path = PROGRAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.start_seconds = start_seconds
        self._max_processes = max_processes
        self._idle_seconds = idle_seconds
        self._program = program
        self._clock = clock
        self._lock = threading.Lock()
        self._processes: dict[str, TensorBoard] = {}
        self._watch: threading.Thread | None = None
        atexit.register(_stop_all_of, weakref.ref(self))

    def open(self, job_id: str, logdir: Path) -> TensorBoard:
        """Return the process that shows the logs in ``logdir``, which may still be starting."""
        surplus: list[TensorBoard] = []
        try:
            with self._lock:
                process = self._processes.get(job_id)
                if process is not None and process.is_alive():
                    process.last_use = self._clock()
                    return process
                surplus = self._take_surplus(job_id)
                process = self._processes[job_id] = TensorBoard(self._program, logdir, self._clock)
                self._start_watch()
                return process
        finally:
            for other in surplus:
                other.stop()

    def discard(self, job_id: str, process: TensorBoard) -> None:
        """Stop a ``process`` that failed; the next request starts another one."""
        with self._lock:
            if self._processes.get(job_id) is process:
                del self._processes[job_id]
        process.stop()

    def stop(self, job_id: str) -> None:
        """Stop the TensorBoard of a job, if one is running."""
        with self._lock:
            process = self._processes.pop(job_id, None)
        if process is not None:
            process.stop()

    def stop_all(self) -> None:
        """Stop all processes."""
        with self._lock:
            processes, self._processes = [*self._processes.values()], {}
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.stop()

    def stop_idle(self) -> None:
        """Stop idle processes."""
        latest = self._clock() - self._idle_seconds
        with self._lock:
            idle = [name for name, process in self._processes.items() if process.is_idle_since(latest)]
        for job_id in idle:
            self.stop(job_id)

    def running(self) -> list[str]:
        """The ids of the jobs whose TensorBoard is running or starting."""
        with self._lock:
            return [job_id for job_id, process in self._processes.items() if process.is_alive()]

    def _take_surplus(self, job_id: str) -> list[TensorBoard]:
        """Remove ended processes, and stop the least recently used ones so that one more may start."""
        dead = self._processes.pop(job_id, None)
        by_use = sorted(self._processes, key=lambda name: self._processes[name].last_use)
        surplus = by_use[: max(0, len(by_use) + 1 - self._max_processes)]
        taken = [self._processes.pop(name) for name in surplus]
        return [dead, *taken] if dead is not None else taken

    def _start_watch(self) -> None:
        if self._watch is None or not self._watch.is_alive():
            pause = min(30.0, self._idle_seconds / 4)
            self._watch = threading.Thread(target=_watch, args=(weakref.ref(self), pause), daemon=True)
            self._watch.start()


class TensorBoard:
    """A TensorBoard process. It reads from a pipe of this process, so it cannot outlive it.

    It listens on ``port``, which is None until it is ready, below the path ``prefix``.
    """

    def __init__(self, program: Path, logdir: Path, clock: Callable[[], float]) -> None:
        self.port: int | None = None
        self.prefix = f"/{secrets.token_urlsafe(24)}"
        self.last_use = clock()
        self._clock = clock
        self._users = 0
        self._settled = threading.Event()
        self._said: deque[str] = deque(maxlen=20)
        self._process = subprocess.Popen(
            # -P: this file's folder has modules named like libraries.
            [sys.executable, "-P", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            start_new_session=True,
            env=inherited(os.environ, SYSTEM_VARIABLES),
        )
        self._tell({"logdir": str(logdir), "path_prefix": self.prefix})
        threading.Thread(target=self._listen, daemon=True).start()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait until it responds or has ended; return False if it is still starting."""
        return self._settled.wait(seconds)

    def last_words(self) -> str:
        return "\n".join(self._said)[-2000:]

    def is_idle_since(self, moment: float) -> bool:
        return not self._users and self.last_use <= moment

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the process from being idle."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.last_use = self._clock()

    def ask_to_stop(self) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stop it and its child processes, and reap it."""
        self.ask_to_stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _tell(self, settings: dict[str, str]) -> None:
        assert self._process.stdin is not None
        # It may have ended already; then it never reports a port, which is noticed.
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(settings) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        """Read its output until the end, so that it never blocks on a full pipe."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(PORT_LINE):
                    self.port = int(line.removeprefix(PORT_LINE))
                    self._settled.set()
                else:
                    self._said.append(line.rstrip()[:500])
        self._settled.set()


def _watch(owner: weakref.ref[TensorBoards], pause: float) -> None:
    """Stop idle processes until there are none left."""
    while True:
        time.sleep(pause)
        boards = owner()
        if boards is None or not boards._processes:
            return
        boards.stop_idle()
        del boards


def _stop_all_of(owner: weakref.ref[TensorBoards]) -> None:
    boards = owner()
    if boards is not None:
        boards.stop_all()
