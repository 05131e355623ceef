"""Run a module of this package in a process of its own, which reads a request and prints lines of JSON.

Files of clients are decoded there, so neither their size nor their contents affect the server. These helpers work for
one request and end with it; tasks, which have a folder and a log, are run by the task runner.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Self, TypeVar

import msgspec
from msgspec import Struct

from digits.core.errors import DigitsError, explain
from digits.core.machine.environment import SYSTEM_VARIABLES, for_program, inherited

NICENESS = 10

# The address space of programs that read a whole source.
MEMORY_BYTES = 6 << 30

T = TypeVar("T")


def start(
    module: str, environment: Mapping[str, str] | None = None, **pipes: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Run ``module`` as a program that this process talks to through pipes; `end` it.

    ``environment`` contains the variables to pass, by default the general ones. ``pipes`` may replace ``stdout`` and
    ``stderr``. Raises OSError.
    """
    if environment is None:
        environment = inherited(os.environ, SYSTEM_VARIABLES)
    options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **pipes}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        **options,
        cwd="/",
        # A thread per core would reserve a large part of the memory that the program may use.
        env=for_program(environment) | {"OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C in a terminal ends the server, which ends its programs.
    )


def send(process: subprocess.Popen[bytes], request: Any) -> None:
    """Send ``request`` as a line of JSON to a program, which may have ended."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        process.stdin.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program, unless it has ended, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def limit_resources(memory_bytes: int) -> None:
    """Limit the address space of this process, and let the server go first.

    Arrow and NumPy reserve some addresses without using the memory.
    """
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def receive(request_type: type[T]) -> T:
    """Return the request that the server sent to this program; end the program when the server does."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=request_type)
    threading.Thread(target=_exit_with_server, daemon=True).start()
    return request


def _exit_with_server() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    os._exit(1)


def take(request_type: type[T], seconds: int) -> T:
    """Return the only request that the server sends to this program, which may then work for some ``seconds``."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=request_type)
    limit_resources(MEMORY_BYTES)
    signal.alarm(seconds)
    return request


class _Reply(Struct):
    """An answer, or an error with the ``status``."""

    answer: Any = None
    status: int = 0
    message: str = ""
    hint: str = ""


def reply(work: Callable[[], Any]) -> None:
    """Print what ``work`` returns, or the DigitsError or OSError that it raises, for `Program.answer`."""
    try:
        sent = _Reply(work())
    except (DigitsError, OSError) as error:
        known = error if isinstance(error, DigitsError) else explain(error)
        if known is None:
            raise
        sent = _Reply(status=known.http_status, message=known.message, hint=known.hint)
    sys.stdout.buffer.write(msgspec.json.encode(sent) + b"\n")
    sys.stdout.buffer.flush()


class Program:
    """The process of a ``module`` while it works on a ``request``; leaving the block kills it."""

    def __init__(self, module: str, request: Struct) -> None:
        self._module = module
        self._request = request

    def __enter__(self) -> Self:
        self._process = start(self._module)
        return self

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the program prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        send(self._process, self._request)
        self._process.stdin.close()
        yield from self._process.stdout

    def answer(self) -> Any:
        """Return what the program says with `reply`, None if it ends before; raises its DigitsError."""
        for line in self.lines():
            sent = msgspec.json.decode(line, type=_Reply)
            if sent.status:
                error = DigitsError(sent.message, sent.hint)
                error.http_status = sent.status
                raise error
            return sent.answer
        return None

    @property
    def was_too_slow(self) -> bool:
        """Whether the program has ended because of an alarm."""
        return self._process.wait() == -signal.SIGALRM

    def __exit__(self, *error: object) -> None:
        end(self._process)
