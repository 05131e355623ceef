"""Choosing the point from which a training resumes."""

from __future__ import annotations

import logging
from pathlib import Path

from digits.core import resume_point
from digits.core.events import EventLog, Resumed, Warned
from digits.core.recipe import Train
from digits.core.resume_point import ResumePoint
from digits.worker.failure import UserFault
from digits.worker.training.weights import snapshots

log = logging.getLogger(__name__)


def choose_point(recipe: Train, job_folder: Path, events: EventLog) -> ResumePoint | None:
    """The newest intact resume point if ``recipe`` requests to resume; None to start from the first step.

    Logs the event `Resumed`, which invalidates earlier events for later steps, and warns about damaged points.
    Raises UserFault if all resume points are damaged.
    """
    if not recipe.resume:
        return None
    snapshots.remove_incomplete(job_folder)
    point, faults = _newest_intact(job_folder)
    damage = " ".join(f"{fault.rstrip('.')}." for fault in faults.values())
    if faults and point is None:
        intact = snapshots.newest_intact(job_folder)
        raise UserFault(
            f"The training cannot resume because all of its resume points are damaged. {damage}",
            f"Start a new training with the weights of {intact.name}, which is intact."
            if intact
            else "Start a new training.",
        )
    # If they become readable again, their rows are no longer in the log.
    resume_point.discard(job_folder, faults)
    step, epoch = (point.step, point.epoch) if point else (0, 0.0)
    events.append(Resumed(step, round(epoch, 6)))
    log.info("Resuming after step %d (epoch %.6g)", step, epoch)
    if point and faults:
        _warn(
            f"{damage} The training resumes from {point.snapshot} instead, after step {step:,} (epoch {epoch:.6g}).",
            events,
        )
    elif point is None and snapshots.of_epochs(job_folder):
        _warn("There is no resume point: the training restarts from the first step.", events)
    return point


def _newest_intact(job_folder: Path) -> tuple[ResumePoint | None, dict[str, str]]:
    """The newest intact resume point, and the faults of newer ones by snapshot."""
    points, faults = resume_point.resume_points(job_folder)
    for point in points:
        fault = snapshots.fault(job_folder / point.snapshot)
        if not fault:
            return point, faults
        faults[point.snapshot] = fault
    return None, faults


def _warn(message: str, events: EventLog) -> None:
    log.warning(message)
    events.append(Warned(message))
