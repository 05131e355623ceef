"""Answer the same request of many people at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from flask import Response
from gevent.event import AsyncResult

SECONDS = 1.0
MAX_ANSWERS = 50


@dataclass
class _Answer:
    until: float
    response: AsyncResult = field(default_factory=AsyncResult)


class Crowd:
    """Makes one response for equal requests that arrive within ``seconds``."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._answers: dict[Hashable, _Answer] = {}

    def response(self, key: Hashable, make: Callable[[], Response]) -> Response:
        """Return a copy of the response that ``make`` returned to an earlier or a simultaneous request with ``key``."""
        answer = self._answers.get(key)
        if answer is None or time.monotonic() >= answer.until:
            answer = self._answers[key] = _Answer(time.monotonic() + self._seconds)
            while len(self._answers) > MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            try:
                answer.response.set(make())
            except BaseException as error:
                self._answers.pop(key, None)
                answer.response.set_exception(error)
                raise
        made: Response = answer.response.get()
        return Response(made.get_data(), made.status, list(made.headers))
