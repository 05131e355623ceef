"""Profiles every N-th training step for TensorBoard's profile plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf


class Profiler:
    """Profiles one step every ``interval`` steps (0 for never) into ``folder``; not the ``first_step``."""

    def __init__(self, folder: Path, interval: int, first_step: int) -> None:
        self._folder, self._interval, self._first_step = folder, interval, first_step

    def steps_until_next(self, step: int) -> int | None:
        """The number of steps after ``step`` before the next profiled one; None if there is none."""
        if not self._interval:
            return None
        # The first step also builds its graph, so its times are not representative.
        return -step % self._interval if step > self._first_step else self._interval

    @contextlib.contextmanager
    def profiling(self) -> Iterator[None]:
        """Profile the block."""
        tf.profiler.experimental.start(str(self._folder))
        try:
            yield
        finally:
            tf.profiler.experimental.stop()
