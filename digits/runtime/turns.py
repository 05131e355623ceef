"""Share the event loop between requests and long computations, which run in turns."""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

import gevent
from gevent.lock import BoundedSemaphore

from digits.core.events import TURN_SECONDS

# A delay rounds up to one iteration of the event loop, which reads the data that has arrived. With a delay of 0,
# gevent would run up to 50 other greenlets first.
_ONE_ITERATION_SECONDS = 1e-6

_waiting = BoundedSemaphore(1)
_began: WeakKeyDictionary[gevent.Greenlet, float] = WeakKeyDictionary()


def begin_turn() -> None:
    """Start to measure the turn of the current greenlet, which has just waited."""
    _began[gevent.getcurrent()] = time.monotonic()


def end_long_turn() -> None:
    """Wait for the next turn if the current greenlet has used up its turn, `TURN_SECONDS`."""
    now = time.monotonic()
    if now - _began.setdefault(gevent.getcurrent(), now) >= TURN_SECONDS:
        next_turn()


def next_turn() -> None:
    """Wait for the next turn of the current greenlet.

    Requests that have arrived run first, and only one computation runs per iteration of the event loop.
    """
    with _waiting:
        gevent.sleep(_ONE_ITERATION_SECONDS)
    begin_turn()
