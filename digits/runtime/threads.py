"""Run blocking calls in native threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import gevent
from gevent._hub_local import get_hub_if_exists

P = ParamSpec("P")
R = TypeVar("R")


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
            _remove_hub()

    result, error = gevent.get_hub().threadpool.apply(attempt)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _remove_hub() -> None:
    """Remove the gevent hub of this native thread, if any.

    Waiting for a patched lock creates one, even in an import that two threads begin at once. Its event loop would never
    run again, but locks, files and sockets would leave work to it.
    """
    hub = get_hub_if_exists()
    if hub is not None:
        hub.destroy(destroy_loop=True)
