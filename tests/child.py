"""A process in which tests use TensorFlow."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any


class Child:
    """A fork of this process that calls functions until it is closed."""

    def __init__(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._pipe.close()
            _call_functions(theirs)
        theirs.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.close()
        os.waitpid(self._pid, 0)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of ``function``, which can be imported, in the child; raises AssertionError if it fails."""
        self._pipe.send((function, arguments))
        went_well, value = self._pipe.recv()
        assert went_well, value
        return value


def _call_functions(pipe: Any) -> None:
    """Call the functions that arrive, until the other end is closed, and end the process."""
    try:
        while True:
            function, arguments = pipe.recv()
            try:
                answer = (True, function(*arguments))
            except BaseException:
                answer = (False, traceback.format_exc())
            pipe.send(answer)
    finally:
        os._exit(0)
