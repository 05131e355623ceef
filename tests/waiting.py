"""Wait for something that another process or greenlet does."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent
import psutil


def wait_until(question: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until ``question()`` is true, while other greenlets run; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline
        gevent.sleep(0.01)


def has_ended(process: psutil.Process) -> bool:
    """Return whether ``process`` has ended; whoever is its parent then may not have noticed yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
