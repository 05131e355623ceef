"""The states of a job or task, and the legal transitions between them."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Status(enum.Enum):
    """State of a job or task. The value is the one-letter code stored on disk."""

    INIT = "I"
    WAIT = "W"
    RUN = "R"
    DONE = "D"
    ABORT = "A"
    ERROR = "E"

    @property
    def title(self) -> str:
        """The name in JSON, such as ``Running``."""
        return _WORDS[self][0]

    @property
    def label(self) -> str:
        """The name on pages. JSON keeps DIGITS' name for a job that was just created."""
        return "Created" if self is Status.INIT else self.title

    @property
    def css(self) -> str:
        """The color of the state on pages: ``warning``, ``info``, ``success`` or ``danger``."""
        return _WORDS[self][1]

    @property
    def is_running(self) -> bool:
        """Whether the job may still change without a request."""
        return self in (Status.INIT, Status.WAIT, Status.RUN)

    def may_become(self, other: Status) -> bool:
        """Return whether the transition to ``other`` is legal."""
        return other in LEGAL_STEPS[self]


# The name and the color of each.
_WORDS = {
    Status.INIT: ("Initialized", "warning"),
    Status.WAIT: ("Waiting", "warning"),
    Status.RUN: ("Running", "info"),
    Status.DONE: ("Done", "success"),
    Status.ABORT: ("Aborted", "warning"),
    Status.ERROR: ("Error", "danger"),
}

LEGAL_STEPS: dict[Status, frozenset[Status]] = {
    Status.INIT: frozenset({Status.WAIT, Status.RUN, Status.ABORT, Status.ERROR}),
    Status.WAIT: frozenset({Status.RUN, Status.ABORT, Status.ERROR}),
    # The executor may interrupt a task and queue it again.
    Status.RUN: frozenset({Status.WAIT, Status.DONE, Status.ABORT, Status.ERROR}),
    # Stopped and failed jobs may be resumed, and finished trainings continued.
    Status.DONE: frozenset({Status.INIT}),
    Status.ABORT: frozenset({Status.INIT}),
    Status.ERROR: frozenset({Status.INIT}),
}

# A job has the worst status of its tasks; it is Done only if all of them are.
_WORST_FIRST = (Status.ERROR, Status.ABORT, Status.RUN, Status.WAIT, Status.INIT, Status.DONE)


def worst(statuses: Iterable[Status]) -> Status:
    """Return the status of a job whose tasks have these statuses; INIT for no tasks."""
    present = set(statuses)
    return next((status for status in _WORST_FIRST if status in present), Status.INIT)
