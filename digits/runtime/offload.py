"""Keep the event loop free: run blocking calls in native threads, and long computations in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import gevent
from gevent._hub_local import get_hub_if_exists
from gevent.lock import BoundedSemaphore

from digits.core.events import TURN_SECONDS

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# A delay rounds up to one iteration of the event loop, which reads the data that has arrived. With a delay of 0,
# gevent would run up to 50 other greenlets first.
ONE_ITERATION_SECONDS = 1e-6

_waiting = BoundedSemaphore(1)
_began: WeakKeyDictionary[gevent.Greenlet, float] = WeakKeyDictionary()


def in_thread(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call ``function`` in a native thread and wait for it while other greenlets run.

    ``function`` must not use gevent, nor wait for semaphores, conditions or events, which are gevent's. Python code in
    the thread shares the interpreter with the event loop in slices of a few milliseconds; C calls that hold the GIL
    still block it, so bound them.
    """

    def attempt() -> tuple[R | None, BaseException | None]:
        # Return exceptions as a result, because the thread pool would print their traceback.
        try:
            return function(*arguments, **keywords), None
        except BaseException as error:
            return None, error
        finally:
            # Waiting for a patched lock gave this thread a hub of gevent, even in an import that two threads begin at
            # once. Its event loop would never run again, but locks, files and sockets would leave work to it.
            if (hub := get_hub_if_exists()) is not None:
                hub.destroy(destroy_loop=True)

    result, error = gevent.get_hub().threadpool.apply(attempt)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def each_in_thread(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Iterate over ``pieces``, computing each one in a native thread."""
    while (piece := in_thread(next, pieces, None)) is not None:
        yield piece


def in_turns(pieces: Iterable[T]) -> Iterator[T]:
    """Iterate over ``pieces``, in turns of a few milliseconds."""
    for piece in pieces:
        yield piece
        end_long_turn()


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
        gevent.sleep(ONE_ITERATION_SECONDS)
    begin_turn()
