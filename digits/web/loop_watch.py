"""Measure how long greenlets block the event loop."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import gevent
import greenlet
from werkzeug.wsgi import ClosingIterator

Report = Callable[[str, float, float], None]

MAX_LABEL_CHARACTERS = 200
# Reading the CPU time is a system call, too slow for every switch: short runs share a reading.
CPU_TIME_SECONDS = 0.01


class LoopWatch:
    """Reports every greenlet of this thread that runs for ``seconds`` without yielding.

    ``report(label, seconds, cpu_seconds)`` is called in the same thread right after the switch and must
    not switch greenlets itself. The label is the request line for requests of a wrapped application, and the
    function for any other `gevent.Greenlet` that has not ended. Plain greenlets and the hub are not measured.
    CPU time much shorter than elapsed time indicates a blocking call or an overloaded machine. It is at most
    `CPU_TIME_SECONDS` too long.
    """

    def __init__(self, report: Report, seconds: float = 0.0) -> None:
        self._report = report
        self._seconds = seconds
        self._labels: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._before: Any = None
        self._begin()

    def start(self) -> None:
        """Start to measure this thread; an existing trace function is called as well."""
        self._begin()
        self._before = greenlet.settrace(self._switched)

    def stop(self) -> None:
        """Stop measuring and restore the previous trace function."""
        greenlet.settrace(self._before)

    def wrap(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """Wrap a WSGI application so that its requests and responses are labeled by request line."""

        def watched(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            current = greenlet.getcurrent()
            self._end_run(current)
            self._labels[current] = request_line(environ)
            try:
                answer = app(environ, start_response)
                if not isinstance(answer, list):
                    return ClosingIterator(answer, self._end_request)
            except BaseException:
                self._end_request()
                raise
            # Keep a list, from which servers compute Content-Length.
            self._end_request()
            return answer

        return watched

    def _begin(self) -> None:
        self._since = self._cpu_read_at = time.monotonic()
        self._cpu_since = time.thread_time()

    def _end_request(self) -> None:
        current = greenlet.getcurrent()
        self._end_run(current)
        self._labels.pop(current, None)

    def _switched(self, event: str, greenlets: tuple[Any, Any]) -> None:
        self._end_run(greenlets[0])
        if self._before is not None:
            self._before(event, greenlets)

    def _end_run(self, runner: Any) -> None:
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        is_reported = seconds >= self._seconds
        if not is_reported and now - self._cpu_read_at < CPU_TIME_SECONDS:
            return
        cpu_now = time.thread_time()
        cpu_seconds, self._cpu_since = min(seconds, cpu_now - self._cpu_since), cpu_now
        self._cpu_read_at = now
        if not is_reported:
            return
        label = self._labels.get(runner)
        if label is None and isinstance(runner, gevent.Greenlet):
            label = str(runner)
        if label is not None:
            self._report(label, seconds, cpu_seconds)


def request_line(environ: dict[str, Any]) -> str:
    """Method and path of a request, sanitized for logs."""
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    text = f"{environ.get('REQUEST_METHOD', '?')} {path}"
    return text[:MAX_LABEL_CHARACTERS].encode("unicode_escape").decode("ascii")
