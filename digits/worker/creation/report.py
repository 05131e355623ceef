"""The progress of the creation of a dataset."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from digits.core.events import Counted, EventLog, Progressed, ReportInterval, Skipped, Warned
from digits.core.splits import Split
from digits.data.sources.plan import Plan, Progress, Remark, Unusable

MAX_SKIPPED_EVENTS = 1000
PROGRESS_SECONDS = 0.25
SHARE_OF_DOWNLOAD = SHARE_OF_ADDITIONS = 0.5


class Report(Progress):
    """Reports the progress of the task as events, no more often than a reader can follow."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._interval = ReportInterval(PROGRESS_SECONDS)
        self._started_at = 0.0
        self.done = 0
        self._skipped = 0
        self._listed: set[Unusable] = set()
        self.images = 0
        # The progress before writing starts, and when it ends.
        self.share, self.end = 0.0, 1.0
        # Replaces paths in texts for the user.
        self.show: Callable[[str], str] = str

    def warn(self, message: str) -> None:
        self._events.append(Warned(self.show(message), isinstance(message, Remark)))

    def counted(self, split: str, plan: Plan, counts: NDArray[np.integer[Any]]) -> None:
        if plan.counted:
            self._events.append(Counted(cast(Split, split), plan.counted, counts.tolist()))

    def reading(self, what: str) -> None:
        self._events.append(Progressed(self.share, None, self.show(what)))

    def downloaded(self, fraction: float, what: str, seconds_left: float | None = None) -> None:
        self.share = SHARE_OF_DOWNLOAD
        if self._interval.is_due(now=fraction >= 1):
            self._events.append(Progressed(fraction * self.share, seconds_left, what))

    def start_writing(self, count: int) -> None:
        """Begin to count ``count`` images; the task may have to write them again."""
        self.images, self.done, self._skipped = count, 0, 0
        self._started_at = time.monotonic()

    def skipped(self, unusable: list[Unusable]) -> None:
        for item in unusable[: max(0, MAX_SKIPPED_EVENTS - self._skipped)]:
            if item not in self._listed:
                self._events.append(Skipped(item.path, item.reason, item.split, item.group))
                self._listed.add(item)
        self._skipped += len(unusable)

    def advanced(self, images: int) -> None:
        """Report that ``images`` more images are done."""
        self.done += images
        if self._interval.is_due():
            fraction = self.done / self.images
            rate = self.done / max(time.monotonic() - self._started_at, 1e-3)
            what = f"Writing images: {self.done:,} of {self.images:,} ({rate:,.0f} img/s)"
            fraction = self.share + (self.end - self.share) * fraction
            self._events.append(Progressed(fraction, self._seconds_left(), what))

    def finished(self) -> None:
        self._events.append(Progressed(self.end, 0.0, "Done"))

    def _seconds_left(self) -> float | None:
        if not self.done:
            return None
        return (self.images - self.done) * (time.monotonic() - self._started_at) / self.done
