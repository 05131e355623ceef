"""A log of refused requests and connections that stays short however many there are."""

from __future__ import annotations

import logging

import gevent

# Each line takes longer to write than the refusal, so a flood of them would block the event loop.
MAX_LINES = 10
PERIOD_SECONDS = 1.0


class RefusalLog:
    """Logs refusals to ``log``: at most `MAX_LINES` in a period, and then the number of further ones."""

    def __init__(self, log: logging.Logger, period_seconds: float = PERIOD_SECONDS) -> None:
        self._log = log
        self._seconds = period_seconds
        self._count = 0

    def add(self, line: str) -> None:
        """Log ``line``, or count it if there are too many in this period."""
        if not self._count:
            gevent.spawn_later(self._seconds, self._end_period)
        self._count += 1
        if self._count <= MAX_LINES:
            self._log.info("%s", line)

    def _end_period(self) -> None:
        more, self._count = self._count - MAX_LINES, 0
        if more > 0:
            self._log.info("%s more refused in %.0f s", f"{more:,}", self._seconds)
