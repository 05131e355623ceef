"""Changes to jobs, as the scheduler reports them.

The web zone turns changes into messages for browsers; this module does not depend on how
they are displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from digits.core.events import Event
from digits.core.job import Job
from digits.core.metrics.series import Metrics
from digits.core.task import Task


@dataclass(frozen=True)
class Change:
    """Base class of changes. ``job`` already has its new state."""

    job: Job


@dataclass(frozen=True)
class JobAdded(Change):
    """A job was created."""


@dataclass(frozen=True)
class JobDeleted(Change):
    """A job and its folder were deleted."""


@dataclass(frozen=True)
class JobEdited(Change):
    """A user edited ``attribute`` of the job: its name, group or notes."""

    attribute: str


@dataclass(frozen=True)
class StatusChanged(Change):
    """The job's status, or the reason why it waits, has changed."""


@dataclass(frozen=True)
class ProgressChanged(Change):
    """The job has made progress."""


@dataclass(frozen=True)
class OutputWritten(Change):
    """``task`` printed ``text``."""

    task: Task
    text: str


@dataclass(frozen=True)
class EventsApplied(Change):
    """``events`` were folded into the state of ``task``."""

    task: Task
    events: Sequence[Event]


@dataclass(frozen=True)
class CurveChanged(Change):
    """The job's curves, ``metrics``, have new points."""

    metrics: Metrics


Report = Callable[[Change], None]
