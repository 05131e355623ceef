"""The sizes of the folders of jobs, measured in threads and kept while the server runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gevent

from digits.core.files import tree_bytes
from digits.core.job import Job
from digits.runtime.offload import in_thread

# A page waits this long for a size that was never measured.
PATIENCE_SECONDS = 0.25
# A size is measured again when it is older than this, and older than this many times what measuring it took.
FRESH_SECONDS = 10.0
FRESH_TIMES = 100


@dataclass(frozen=True)
class _Size:
    bytes: int
    fresh_until: float


class FolderSizes:
    """Measures the folder of each job in one thread at a time.

    ``report`` is called with a job whose page did not wait for a measurement, and shows another size.
    """

    def __init__(
        self,
        report: Callable[[Job], object],
        measure: Callable[[Path], int] = tree_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._measure, self._clock = report, measure, clock
        self._sizes: dict[str, _Size] = {}
        self._measuring: dict[str, gevent.Greenlet] = {}
        # What the pages that did not wait have shown.
        self._shown: dict[str, int | None] = {}

    def of(self, job: Job) -> int | None:
        """Return the size of the job's folder in bytes as it was measured last; None if that takes too long."""
        size = self._sizes.get(job.id)
        if size is None or size.fresh_until < self._clock():
            if job.id not in self._measuring:
                self._measuring[job.id] = gevent.spawn(self._update, job)
            if size is None:
                self._measuring[job.id].join(PATIENCE_SECONDS)
                size = self._sizes.get(job.id)
        if job.id in self._measuring:
            self._shown[job.id] = size.bytes if size else None
        return size.bytes if size else None

    def forget(self, job: Job) -> None:
        self._sizes.pop(job.id, None)

    def _update(self, job: Job) -> None:
        began = self._clock()
        try:
            size = in_thread(self._measure, job.folder)
            now = self._clock()
            self._sizes[job.id] = _Size(size, now + max(FRESH_SECONDS, FRESH_TIMES * (now - began)))
        finally:
            del self._measuring[job.id]
        if self._shown.pop(job.id, size) != size:
            self._report(job)
