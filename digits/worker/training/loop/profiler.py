"""Profiles every N-th training step, for the page of step traces and TensorBoard's profile plugin."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from digits.worker.training.loop import step_trace

log = logging.getLogger(__name__)


class Profiler:
    """Profiles one step every ``interval`` steps (0 for never) into ``folder``; not the ``first_step``.

    The traces of the steps are saved in ``job_folder``.
    """

    def __init__(self, folder: Path, job_folder: Path, interval: int, first_step: int) -> None:
        self._folder, self._job_folder = folder, job_folder
        self._interval, self._first_step = interval, first_step

    def steps_until_next(self, step: int) -> int | None:
        """The number of steps after ``step`` before the next profiled one; None if there is none."""
        if not self._interval:
            return None
        # The first step also builds its graph, so its times are not representative.
        return -step % self._interval if step > self._first_step else self._interval

    @contextlib.contextmanager
    def profiling(self, step: int) -> Iterator[None]:
        """Profile the block, which runs ``step``."""
        before = self._profiles()
        tf.profiler.experimental.start(str(self._folder))
        try:
            yield
        finally:
            tf.profiler.experimental.stop()
        for profile in self._profiles() - before:
            try:
                step_trace.save(profile, self._job_folder, step)
            except (OSError, ValueError, tf.errors.OpError) as error:
                log.warning("The trace of step %d could not be saved: %s", step, error)

    def _profiles(self) -> set[Path]:
        return set(self._folder.glob("plugins/profile/*/*.xplane.pb"))
