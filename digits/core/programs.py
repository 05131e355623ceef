"""Run a module of this package in a process of its own, which reads a request and prints lines of JSON.

What the server would have to decode for a client is decoded there: neither its size nor its contents affect the server.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from digits.core.environment import SYSTEM_VARIABLES, for_program, inherited


class Program:
    """The process of a ``module`` while it works on a ``request``; leaving the block kills it."""

    def __init__(self, module: str, request: Struct) -> None:
        self._command = [sys.executable, "-P", "-m", module]
        self._request = request

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=for_program(inherited(os.environ, SYSTEM_VARIABLES)),
        )
        return self

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the program prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(self._request))
            self._process.stdin.close()
        yield from self._process.stdout

    @property
    def was_too_slow(self) -> bool:
        """Whether the program ended because of the time `limit` allows."""
        return self._process.wait() == -signal.SIGALRM

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def limit(memory_bytes: int, seconds: int) -> None:
    """Limit the address space of this process, and end it after ``seconds``.

    Arrow and NumPy reserve some addresses without using the memory.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.alarm(seconds)
