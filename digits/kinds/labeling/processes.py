"""Run a module in a process of its own that answers one request, and return its answer or raise its error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from digits.core.errors import DigitsError, TookTooLong, explain
from digits.core.machine.programs import Program, limit_resources

MEMORY_BYTES = 6 << 30

R = TypeVar("R", bound=Struct)


class _Reply(Struct):
    """The answer, or an error."""

    answer: Any = None
    status: int = 0
    message: str = ""
    hint: str = ""


def ask(module: str, request: Struct, late: TookTooLong) -> Any:
    """Run ``module``, and return its answer to the request; raises DigitsError, or ``late`` without an answer."""
    with Program(module, request) as program:
        for line in program.lines():
            reply = msgspec.json.decode(line, type=_Reply)
            if reply.status:
                error = DigitsError(reply.message, reply.hint)
                error.http_status = reply.status
                raise error
            return reply.answer
    raise late


def answer(request_type: type[R], work: Callable[[R], Any], seconds: int) -> None:
    """Print the answer of ``work`` to the request on standard input, or its DigitsError or OSError."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=request_type)
    limit_resources(MEMORY_BYTES)
    signal.alarm(seconds)
    try:
        reply = _Reply(work(request))
    except DigitsError as error:
        reply = _refusal(error)
    except OSError as error:
        if (explained := explain(error)) is None:
            raise
        reply = _refusal(explained)
    sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
    sys.stdout.buffer.flush()


def _refusal(error: DigitsError) -> _Reply:
    return _Reply(status=error.http_status, message=error.message, hint=error.hint)
