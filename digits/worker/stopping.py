"""Ending a task on SIGTERM: at once, or after it has saved its state."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from digits.core import files
from digits.worker.failure import Stopped

EXIT_STOPPED = 128 + signal.SIGTERM

# Time that a stopping task has to end on its own before its process is killed, in seconds.
GRACE_SECONDS = 1.5

# The same for a task that saves its state first. The supervisor waits a little longer than this.
SAVING_GRACE_SECONDS = 4.0


class _Request:
    """Whether the task was asked to stop, and whether it polls for that itself."""

    asked = False
    is_deferred = False

    @property
    def grace_seconds(self) -> float:
        return SAVING_GRACE_SECONDS if self.is_deferred else GRACE_SECONDS


_request = _Request()


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """Raise Stopped on SIGTERM inside; kill the process if that does not end it in time.

    Python runs signal handlers only between its own instructions, which can take long while a graph runs. The
    wake-up descriptor is written at once, and a thread that waits for it kills the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    reading, writing = map(files.move_to_high_descriptor, os.pipe())
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_end_when_asked, args=(reading,), name="stop-watcher", daemon=True)
    watcher.start()
    before = signal.signal(signal.SIGTERM, _handle)
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        signal.signal(signal.SIGTERM, before)
        with suppress(OSError):  # the network may have closed it
            os.close(writing)
        watcher.join(timeout=SAVING_GRACE_SECONDS + 1)


@contextmanager
def defer() -> Iterator[Callable[[], bool]]:
    """Suppress the interruption by SIGTERM inside; yield a function that returns whether it was received.

    The task then has `SAVING_GRACE_SECONDS` to raise Stopped itself.
    """
    _request.is_deferred = True
    try:
        yield lambda: _request.asked
    finally:
        _request.is_deferred = False


def _handle(signum: int, frame: object) -> None:
    _request.asked = True
    if not _request.is_deferred:
        raise Stopped


def _end_when_asked(reading: int) -> None:
    """Read signal numbers until the pipe closes; after SIGTERM, wait for the grace period, then kill the
    process.
    """
    with suppress(OSError):  # the network may have closed it
        while number := os.read(reading, 1):
            if number[0] == signal.SIGTERM:
                _wait_for_end_of(reading)
                return
        os.close(reading)


def _wait_for_end_of(reading: int) -> None:
    deadline = time.monotonic() + _request.grace_seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0] and not os.read(reading, 64):
            return  # the task ended on its own
    os._exit(EXIT_STOPPED)
