"""Run long computations outside the event loop, or in short time slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from digits.runtime.threads import in_thread
from digits.runtime.turns import end_long_turn

__all__ = ["each_in_thread", "in_thread", "in_turns"]

T = TypeVar("T")


def each_in_thread(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Iterate over ``pieces``, computing each one in a native thread."""
    while (piece := in_thread(next, pieces, None)) is not None:
        yield piece


def in_turns(pieces: Iterator[T]) -> Iterator[T]:
    """Iterate over ``pieces``, in turns of a few milliseconds."""
    for piece in pieces:
        yield piece
        end_long_turn()
