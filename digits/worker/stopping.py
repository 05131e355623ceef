"""Ending a task on SIGTERM: at once, or after it has saved its state."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from digits.core import files
from digits.core.task import STOP_SECONDS_FILE
from digits.worker.failure import Stopped

EXIT_STOPPED = 128 + signal.SIGTERM

# Time that a stopping task has to end on its own before its process is killed, in seconds.
GRACE_SECONDS = 1.5

# The same for a task that saves its state first, unless that takes longer: see `reserve`. The supervisor waits a little
# longer.
SAVING_GRACE_SECONDS = 4.0


class _Request:
    """Whether the task was asked to stop, and whether it polls for that itself.

    ``reserved`` contains the durations of its activities by name, in seconds. The supervisor reads the resulting grace
    period from a file in the ``folder`` of the task.
    """

    asked = False
    is_deferred = False

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.reserved: dict[str, float] = {}
        self._published = SAVING_GRACE_SECONDS
        if folder:
            (folder / STOP_SECONDS_FILE).unlink(missing_ok=True)  # of an earlier run

    @property
    def saving_grace_seconds(self) -> float:
        # Each activity may have just begun for another reason, and is then repeated.
        return max(SAVING_GRACE_SECONDS, 1 + 2 * sum(self.reserved.values()))

    @property
    def grace_seconds(self) -> float:
        return self.saving_grace_seconds if self.is_deferred else GRACE_SECONDS

    def publish(self) -> None:
        """Write the grace period to the file if it has changed much."""
        seconds = self.saving_grace_seconds
        if self.folder and not 0.8 < seconds / self._published < 1.25:
            self._published = seconds
            with suppress(OSError):  # such as a full disk
                files.write_bytes(self.folder / STOP_SECONDS_FILE, f"{seconds:.1f}".encode(), durable=False)


_request = _Request()


@contextmanager
def handle_sigterm(task_folder: Path | None) -> Iterator[None]:
    """Raise Stopped on SIGTERM inside; kill the process if that does not end it in time.

    The time that the task needs is written to ``task_folder``, if that is given.

    Python runs signal handlers only between its own instructions, which can take long while a graph runs. The
    wake-up descriptor is written at once, and a thread that waits for it kills the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    global _request
    _request = _Request(task_folder)
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

    The task then has `SAVING_GRACE_SECONDS`, or longer if it called `reserve`, to raise Stopped itself.
    """
    _request.is_deferred = True
    try:
        yield lambda: _request.asked
    finally:
        _request.is_deferred = False


def reserve(activity: str, seconds: float) -> None:
    """Extend the grace period of `defer`: an ``activity`` before the end takes ``seconds``, such as saving the state.

    A later call replaces the duration of the same activity.
    """
    _request.reserved[activity] = seconds
    _request.publish()


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
