"""Wait for something that another process or greenlet does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import psutil


def wait_until(question: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Let other greenlets run until ``question()`` returns a true value, and return it; fail after ``seconds``."""
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        assert waited < seconds, "timed out"
        gevent.sleep(pause_after(waited))
    return answer


def pause_after(waited: float) -> float:
    """Return how many seconds to sleep before a question is repeated, after ``waited`` seconds.

    Questions take processor time from what is waited for, so a long wait asks less often.
    """
    return min(max(0.01, waited / 10), 0.5)


def has_ended(process: psutil.Process | int) -> bool:
    """Return whether ``process`` or the one with this id has ended; its parent may not have noticed yet."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
