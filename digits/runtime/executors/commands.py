"""Run the commands of a scheduler in native threads, with a timeout."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Mapping

from gevent.monkey import get_original

from digits.runtime.executors.cluster import Unreachable

_poll = get_original("select", "poll")
_posix_spawn = get_original("os", "posix_spawn")
_waitpid = get_original("os", "waitpid")
_sleep = get_original("time", "sleep")

# Prints the exit code as the last line, because gevent may reap the process.
_WITH_CODE = '"$@"; echo "$?"'


class CommandNotFound(Unreachable):
    """A command that is not installed."""


class Commands:
    """Runs commands with ``environment`` for at most ``seconds`` each.

    The methods block, and use nothing of gevent: call them in a native thread.
    """

    def __init__(self, environment: Mapping[str, str], seconds: float = 20.0) -> None:
        self._environment = dict(environment)
        self._seconds = seconds
        self._running: set[int] = set()

    def run(self, *command: str) -> tuple[int, str]:
        """Return the exit code of ``command``, and what it printed to either stream; raises Unreachable."""
        program = shutil.which(command[0], path=self._environment.get("PATH"))
        if program is None:
            raise CommandNotFound(f"the command {command[0]} is not installed")
        reading, writing = os.pipe()
        try:
            pid = _posix_spawn(
                "/bin/sh",
                ["sh", "-c", _WITH_CODE, "sh", program, *command[1:]],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_DUP2, writing, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._running.add(pid)
        try:
            output = self._read(reading)
            if output is None:
                _kill(pid)
        finally:
            os.close(reading)
            with contextlib.suppress(ChildProcessError):
                _waitpid(pid, 0)
            self._running.discard(pid)
        if output is None:
            raise Unreachable(f"{command[0]} did not end within {self._seconds:g} s")
        text, _, code = output.decode(errors="replace").removesuffix("\n").rpartition("\n")
        if not code.isdecimal():
            raise Unreachable(f"{command[0]} was killed")
        return int(code), text

    def close(self) -> None:
        """End the running commands, whose callers get Unreachable."""
        for pid in list(self._running):
            _kill(pid)

    def _read(self, pipe: int) -> bytes | None:
        """Return everything until the end of the ``pipe``; None if that takes too long."""
        deadline = time.monotonic() + self._seconds
        waiting = _poll()
        waiting.register(pipe, select.POLLIN)
        output = b""
        while (left := deadline - time.monotonic()) > 0:
            if waiting.poll(left * 1000):
                data = os.read(pipe, 65536)
                if not data:
                    return output
                output += data
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def sleep(seconds: float) -> None:
    """Sleep in a native thread."""
    _sleep(seconds)
