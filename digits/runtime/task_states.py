"""Read the states of tasks from their event logs in short time slices, so that no log blocks the event loop."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from digits.core import events, saved_state
from digits.core.files import UnreadableFile
from digits.core.job import Job
from digits.core.task import EVENTS_FILE, Task, TaskState
from digits.runtime.offload import next_turn

log = logging.getLogger(__name__)

# Maximum size of the part of a log that is read again after a restart, or when a discarded state is needed.
SAVE_BYTES = 2 * 1024 * 1024
STATES_KEPT = 32


class TaskStates:
    """Read the states of tasks, keeping those of followed tasks and of recently requested jobs in memory.

    ``is_followed`` returns whether a `TaskFollower` reads and reports the events of a task.
    """

    def __init__(self, is_followed: Callable[[Job, Task], bool]) -> None:
        self._is_followed = is_followed
        self._recent: OrderedDict[str, Job] = OrderedDict()

    def get(self, job: Job, task: Task) -> TaskState:
        """Return the state of ``task``, yielding to other greenlets while a long log is read."""
        while not self._is_followed(job, task):
            _, is_complete = self.advance(job, task)
            if is_complete:
                self.keep(job)
                break
            next_turn()
        return task.state

    def advance(self, job: Job, task: Task) -> tuple[list[events.Event], bool]:
        """Update the state of ``task`` for one time slice.

        Return the new events, and whether the state is up to date. Raises OSError for temporary problems.
        """
        folder = job.task_folder(task)
        size, cursor = _size_of(folder / EVENTS_FILE), task.state.cursor
        if size is None:
            return [], True
        if _is_unsaved(task):
            self._save(task, folder)
            return [], size == cursor
        if cursor == 0 and size > SAVE_BYTES and self._restore(task, folder):
            return [], False
        if size == cursor:
            return [], True
        deadline = time.monotonic() + events.TURN_SECONDS
        happened, is_complete = task.read_events(folder / EVENTS_FILE, deadline)
        return happened, is_complete and not _is_unsaved(task)

    def keep(self, job: Job) -> None:
        """Keep the states of ``job`` in memory, discarding those of the least recently used job."""
        self._recent[job.id] = job
        self._recent.move_to_end(job.id)
        while len(self._recent) > STATES_KEPT:
            _, oldest = self._recent.popitem(last=False)
            for task in oldest.tasks:
                if not self._is_followed(oldest, task):
                    task.forget_events()

    def forget(self, job: Job) -> None:
        self._recent.pop(job.id, None)

    def _restore(self, task: Task, folder: Path) -> bool:
        saved_state.restore(task, folder)
        return task.state.cursor > 0

    def _save(self, task: Task, folder: Path) -> None:
        try:
            saved_state.save(task, folder)
        except (OSError, UnreadableFile, ValueError) as error:  # the file is only a cache
            log.info("the state of the task in %s could not be saved: %s", folder, error)


def _is_unsaved(task: Task) -> bool:
    return task.state.cursor - task.saved_cursor >= SAVE_BYTES


def _size_of(path: Path) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None
