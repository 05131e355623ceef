"""Run the program that downloads remote files (`digits.data.remote.fetch`) and monitor it."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

import msgspec

from digits.core.errors import BadRequest
from digits.core.machine import programs
from digits.core.machine.environment import inherited
from digits.data.remote.fetch import News, Request

# Kill the program if it receives less than `STALL_BYTES` and neither lists nor completes a file for this long.
STALL_SECONDS = 90.0
STALL_BYTES = 1000


class FetchFailed(BadRequest):
    """Remote files could not be read."""


def run(
    request: Request,
    *,
    environment: Mapping[str, str] = os.environ,
    stall_seconds: float = STALL_SECONDS,
    seconds: float | None = None,
) -> Iterator[News]:
    """Run the program; yield its news, of which the last one is finished. Raises FetchFailed.

    The program ends with this generator. It is killed if nothing arrives for ``stall_seconds``, or after ``seconds``.
    """
    process = programs.start(
        "digits.data.remote.fetch", _without_proxies(environment), stderr=subprocess.DEVNULL
    )
    watch = _Watch(process, stall_seconds, seconds)
    news = News()
    try:
        assert process.stdout is not None
        programs.send(process, request)
        for line in process.stdout:
            news = msgspec.json.decode(line, type=News)
            watch.note(news)
            if news.error:
                raise FetchFailed(news.error, news.hint)
            yield news
        if not news.is_finished:
            raise FetchFailed(watch.problem or "The program that downloads files ended unexpectedly.")
    finally:
        watch.stop()
        programs.end(process)


class _Watch:
    """Kill a process that stops making progress."""

    def __init__(self, process: subprocess.Popen[bytes], stall_seconds: float, seconds: float | None) -> None:
        self.problem = ""
        self._process = process
        self._stall_seconds = stall_seconds
        self._end = None if seconds is None else time.monotonic() + seconds
        self._seen = News()
        self._changed_at = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def note(self, news: News) -> None:
        """Record progress."""
        seen = self._seen
        if news.listed > seen.listed or news.files > seen.files or news.bytes >= seen.bytes + STALL_BYTES:
            self._seen, self._changed_at = news, time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(min(1.0, self._stall_seconds / 4)):
            now = time.monotonic()
            if now - self._changed_at > self._stall_seconds:
                self.problem = f"The server sent nothing for {self._stall_seconds:g} seconds."
            elif self._end is not None and now > self._end:
                self.problem = "The server did not answer in time."
            if self.problem:
                self._process.kill()
                return


def _without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program: without proxies, behind which connections cannot be checked."""
    return inherited(environment, [name for name in environment if not name.lower().endswith("_proxy")])
