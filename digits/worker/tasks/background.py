"""What the tasks beside a training share: the lowest priority, no GPU, reports of progress, and published results."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.events import EventLog, Progressed, ReportInterval
from digits.core.files import is_disk_full, publish_folder, remove_tree, write_json
from digits.worker.failure import UserFault

LOWEST_PRIORITY = 19
PROGRESS_SECONDS = 0.25


def lower_priority() -> None:
    """Run this process only when no other one needs the processor."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)


def begin(events: EventLog, doing: str = "Loading the model") -> None:
    """Run at a low priority without GPUs, and report the first activity, ``doing``."""
    lower_priority()
    hide_gpus()
    events.append(Progressed(0.0, doing=doing))


def hide_gpus() -> None:
    """Leave the GPUs to trainings. Must be called before TensorFlow runs any operation."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")


@contextlib.contextmanager
def reporting_full_disk(what: str) -> Iterator[None]:
    """Raise UserFault if ``what``, such as "the result", cannot be saved inside because the disk is full."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise UserFault(f"The disk is full: {what} could not be saved.", "Free some space.") from error
        raise


class ItemProgress:
    """Reports how many of ``total`` items are ``done``, and the time that the others will take.

    The items are the first ``share`` of the task. The time counts from the construction.
    """

    def __init__(self, events: EventLog, doing: str, total: int, share: float = 1.0) -> None:
        self.done = 0
        self._events, self._doing, self._total, self._share = events, doing, total, share
        self._interval, self._began = ReportInterval(PROGRESS_SECONDS), time.monotonic()

    def advance(self, count: int) -> None:
        """Add ``count`` items."""
        self.done += count
        if self.done and self._interval.is_due():
            seconds_left = (self._total - self.done) * (time.monotonic() - self._began) / self.done
            doing = f"{self._doing}: {self.done:,} of {self._total:,}"
            self._events.append(Progressed(self._share * self.done / self._total, seconds_left, doing))


def publish(
    task_folder: Path, target: Path, arrays: Mapping[str, NDArray[Any]], documents: Mapping[str, Any]
) -> None:
    """Write a result, files of ``arrays`` and JSON ``documents`` by name, in the place of an earlier ``target``.

    The folder ``target`` is complete at any time; see `publish_folder`. Raises OSError.
    """
    new = task_folder / "result"
    remove_tree(new)
    new.mkdir()
    for name, array in arrays.items():
        np.save(new / name, array, allow_pickle=False)
    for name, document in documents.items():
        write_json(new / name, document)
    publish_folder(new, target)
