"""Client of the fork server (`digits.worker.forkserver`), which keeps TensorFlow imported."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from digits.runtime.executors import processes

log = logging.getLogger(__name__)

# A fork takes a few milliseconds. A fork server that takes longer than this is killed.
FORK_SECONDS = 5.0
# Tasks start without a fork server if it ended this often within `RESTART_SECONDS`.
MAX_STARTS = 5
RESTART_SECONDS = 600.0
# Time in which a forked process becomes a supervisor.
_EXEC_SECONDS = 0.05


class ForkServer:
    """A fork server with ``environment``, started when needed and restarted when it dies or hangs."""

    def __init__(self, log_file: Path | None, environment: Mapping[str, str], fork_seconds: float) -> None:
        self._log_file = log_file
        self._environment = {**environment, "OPENBLAS_NUM_THREADS": "1"}
        self._fork_seconds = fork_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._starts: deque[float] = deque(maxlen=MAX_STARTS)
        self._is_closed = False
        self.is_ready = False

    @property
    def pid(self) -> int | None:
        """The process id while it is running."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process if it is not running, without waiting until it is ready."""
        if self._process is not None or self._is_closed or self._has_failed_often():
            return
        try:
            with open(self._log_file or os.devnull, "ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "digits.worker.forkserver"],
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            # Tasks start without it, but more slowly.
            log.warning("could not start the fork server: %s", error)
            return
        self._starts.append(time.monotonic())
        threading.Thread(target=self._wait_until_ready, args=(self._process,), daemon=True).start()

    def fork(self, folder: Path, environment: Mapping[str, str]) -> int | None:
        """Fork a task; return the process id of its supervisor, or None if the fork server is unavailable."""
        if not self.is_ready:
            self.start()
            return None
        request = json.dumps({"folder": str(folder), "environment": dict(environment)})
        with self._lock:
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                return None  # it died while this greenlet was waiting
            try:
                process.stdin.write(request.encode() + b"\n")
                process.stdin.flush()
                if not select.select([process.stdout], [], [], self._fork_seconds)[0]:
                    raise TimeoutError(f"no answer in {self._fork_seconds:g} seconds")
                return int(json.loads(process.stdout.readline())["pid"])
            except (OSError, ValueError, KeyError) as error:
                log.warning("the fork server failed (%s); restarting it", error)
                process.kill()  # so that it cannot start the task later
                self._forget()
        self.start()
        time.sleep(_EXEC_SECONDS)
        return processes.supervisor_of(folder)  # it may have started the task before it failed

    def close(self) -> None:
        self._is_closed = True
        self._forget()

    def _has_failed_often(self) -> bool:
        return len(self._starts) == MAX_STARTS and time.monotonic() - self._starts[0] < RESTART_SECONDS

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        line = process.stdout.readline()
        if process is not self._process:
            return
        try:
            answer = json.loads(line)
        except ValueError:
            log.warning("the fork server ended while importing TensorFlow; the next task starts it again")
            self._forget()
            return
        if answer.get("ready"):
            self.is_ready = True
            log.info("the fork server is ready")
            return
        log.warning("no fork server: %s", answer.get("error"))
        self._is_closed = True
        self._forget()

    def _forget(self) -> None:
        process, self._process, self.is_ready = self._process, None, False
        if process is None:
            return
        if process.stdin:
            # Closing retries the write that a dead server did not read.
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
