"""Saving a training: epoch snapshots, the best of them, and resume points; and choosing one to resume from."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import Any

import humanize
import tensorflow as tf

from digits.core import resume_point, snapshot_list
from digits.core.events import BestSnapshotChanged, EventLog, Removed, Resumed, Saved, Warned
from digits.core.files import UnreadableFile
from digits.core.metrics.best_metric import EarlyStopping
from digits.core.recipe import Train
from digits.core.resume_point import ResumePoint
from digits.core.snapshot_list import Snapshot, best_of, choose_metric
from digits.data.models.production import ProductionModels
from digits.worker import stopping
from digits.worker.failure import UserFault
from digits.worker.training.weights import snapshots

# Maximum training time lost when the process is killed, in seconds.
RESUME_SECONDS = 60.0

# Maximum fraction of the training time spent on saving resume points.
MAX_TIME_FRACTION = 0.02

Variables = Mapping[str, tf.Variable]
# Describes the present state of the training as the resume point of the snapshot with a given name.
MakePoint = Callable[[str], ResumePoint]

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves the state of a training in its job's folder and decides which snapshot is the best one.

    The best snapshot is the one with the best ``recipe.best_metric``. If that is unset, the kind's ``primary`` metric
    is used if the network reports it, else the loss, and only snapshots saved at the regular interval compete. If both
    are empty, there is no best snapshot, and the latest one is the default: this applies to trainings with fewer than
    `digits.core.recipe.FEWEST_TO_JUDGE` validation records. ``lower_is_better`` returns the direction of a metric.

    ``flush`` makes the other files of the training durable; it is called before a resume point refers to them.
    Without ``writes``, nothing is saved: another worker does that, and this one makes the same decisions.
    ``saved_step`` is the step of the latest epoch snapshot, -1 if there is none.
    """

    def __init__(
        self,
        recipe: Train,
        job_folder: Path,
        events: EventLog,
        primary: str,
        lower_is_better: Callable[[str], bool],
        flush: Callable[[], None] = lambda: None,
        writes: bool = True,
    ) -> None:
        self._writes = writes
        self._folder, self._events, self._flush = job_folder, events, flush
        self._retention = SnapshotRetention(job_folder, recipe.snapshots_kept, events)
        self._chosen, self._primary = recipe.best_metric, primary
        self._lower_is_better = lower_is_better
        self._best: Snapshot | None = None
        self._validated_step, self._metrics = -1, dict[str, float]()
        early = recipe.early_stopping
        after = recipe.fine_tune.head_epochs if recipe.fine_tune else -math.inf
        self.early_stopping = early and EarlyStopping(
            early.metric, early.patience, lower_is_better(early.metric), after=after
        )
        self.saved_step = -1
        self._is_disk_full = False
        self._due = time.monotonic() + RESUME_SECONDS
        self._newest = ""

    # Validation metrics

    def observe(self, step: int, epoch: float, values: Mapping[str, float]) -> None:
        """Record the validation metrics after ``step`` steps, which correspond to ``epoch`` epochs."""
        self._validated_step = step
        self._metrics = {name: value for name, value in values.items() if math.isfinite(value)}
        if self.early_stopping:
            self.early_stopping.observe(epoch, values)

    def has_unsaved_best(self, step: int, epoch: float) -> bool:
        """Return whether the validation at ``step`` was the best one by ``recipe.best_metric``, if it is set."""
        if self._chosen is None or step != self._validated_step:
            return False
        candidate = Snapshot(epoch, "", self._metrics)
        return self._better(candidate, self._chosen) is candidate

    def _better(self, candidate: Snapshot, metric: str) -> Snapshot | None:
        # A snapshot saved again replaces the previous one of the same epoch.
        best = self._best if self._best and self._best.epoch != candidate.epoch else None
        return best_of([item for item in (best, candidate) if item], metric, self._lower_is_better(metric))

    def reason_to_stop(self, epoch: float) -> str:
        """Return why the training ends early after ``epoch`` epochs; empty if it continues."""
        return self.early_stopping.reason(epoch) if self.early_stopping else ""

    # State, for resume points

    def state(self) -> dict[str, Any]:
        """Return the state to pass to `restore`, for JSON."""
        return {"early": self.early_stopping.as_json()} if self.early_stopping else {}

    def restore(self, point: ResumePoint, variables: Variables) -> None:
        """Restore the state saved at ``point``, the values of ``variables`` included.

        Raises UserFault if the snapshot is unreadable or does not match the variables.
        """
        snapshots.restore_exactly(self._folder / point.snapshot, variables)
        saved = snapshot_list.read(self._folder)
        # A killed training may have saved later snapshots, which will be saved again.
        earlier = [snapshot for snapshot in saved if snapshot.epoch <= point.epoch]
        metric = self._chosen or saved.metric
        self._best = best_of(earlier, metric, self._lower_is_better(metric))
        if self.early_stopping:
            self.early_stopping.restore(point.watched.get("early"))
        # Remove the snapshots that the killed training was about to remove.
        if self._writes:
            self._retention.remove(self._superseded(point.snapshot), {point.snapshot})
        self._newest, self.saved_step = point.snapshot, point.saved

    # Saving

    @property
    def has_snapshots(self) -> bool:
        """Whether there are snapshots of epochs."""
        return self.saved_step >= 0

    @property
    def is_due(self) -> bool:
        """Whether a resume point is due."""
        return self._writes and time.monotonic() >= self._due

    def save_epoch(
        self, epoch: float, step: int, variables: Variables, make_point: MakePoint, is_last: bool = False
    ) -> None:
        """Save the snapshot of an epoch and its resume point, if the disk has room.

        Raises UserFault if it does not have room for the last snapshot.
        """
        began = time.monotonic()
        target = snapshots.prefix(self._folder, epoch)
        if not self._save(target, step, variables, is_last):
            return
        self.saved_step = step
        metrics = self._metrics if step == self._validated_step else {}
        snapshot = Snapshot(epoch, target.name, metrics)
        metric = self._chosen or choose_metric(self._primary, metrics)
        try:
            selects = metric if metrics else ""
            if self._writes:
                snapshot_list.append(self._folder, snapshot, selects, self._lower_is_better(selects))
        except OSError as error:
            self._skip(snapshot_list.FILE_NAME, error)
        self._events.append(Saved(epoch, step, target.name))
        log.info("Snapshot saved: %s", target.name)
        if self._better(snapshot, metric) is snapshot:
            self._best = snapshot
            self._events.append(BestSnapshotChanged(epoch, metric, metrics[metric]))
            log.info("Best %s so far: %.6g", metric, metrics[metric])
        self._commit(make_point(target.name), began, is_last)

    def save_to_resume(self, step: int, variables: Variables, make_point: MakePoint) -> None:
        """Save a resume snapshot and its resume point, if the disk has room."""
        began = time.monotonic()
        target = snapshots.resume_prefix(self._folder, step)
        if self._save(target, step, variables):
            self._commit(make_point(target.name), began)

    def _save(self, target: Path, step: int, variables: Variables, is_needed: bool = False) -> bool:
        if not self._writes:
            return True
        try:
            snapshots.save(target, variables, step)
        except Exception as error:
            self._skip(target.name, error, is_needed)
            return False
        return True

    def _commit(self, point: ResumePoint, began: float, is_last: bool = False) -> None:
        """Make ``point``, whose snapshot is saved, the newest resume point; remove superseded snapshots.

        The logs are made durable first, and snapshots are removed last. So after a power loss there
        is always a resume point, and the logs are complete up to it.
        """
        if not self._writes:
            return
        try:
            self._flush()
            superseded = self._superseded(point.snapshot)
            self._events.sync()
            point.save(self._folder)
            # Keep the previous point, in case this one is damaged later.
            resumable = {point.snapshot} if is_last else {point.snapshot, self._newest}
            self._retention.remove(superseded, resumable)
        except OSError as error:
            self._skip(f"{point.snapshot}{resume_point.SUFFIX}", error)
            return
        self._newest = point.snapshot
        self._is_disk_full = False
        seconds = time.monotonic() - began
        stopping.reserve("saving the state", seconds)
        self._due = time.monotonic() + max(RESUME_SECONDS, seconds / MAX_TIME_FRACTION)

    def _superseded(self, newest: str) -> list[Path]:
        needed = {newest}
        if self._best:
            needed.add(self._best.name)
        return self._retention.superseded(needed)

    def _skip(self, name: str, error: Exception, is_needed: bool = False) -> None:
        """Continue without the file ``name``, which does not fit on the disk.

        Raises ``error`` if it has another cause, and UserFault if the file ``is_needed``.
        """
        if not snapshots.is_disk_full(error):
            raise error
        free = humanize.naturalsize(shutil.disk_usage(self._folder).free)
        message = f"The disk is full: {name} could not be written to {self._folder}, where {free} are free."
        if is_needed:
            raise UserFault(message, "Free up space there, then resume the training.") from error
        log.warning(message)
        if not self._is_disk_full:
            self._is_disk_full = True
            self._events.append(Warned(f"{message} The training continues and retries every minute."))
        self._due = time.monotonic() + RESUME_SECONDS


def check_watched_metrics(recipe: Train, metrics: Collection[str]) -> None:
    """Raise UserFault if ``recipe`` watches a metric that is not among the validation ``metrics``."""
    for metric in filter(None, (recipe.best_metric, recipe.early_stopping and recipe.early_stopping.metric)):
        if metric not in metrics:
            raise UserFault(
                f"The validation does not report the metric {metric!r}.",
                f"Choose one of {', '.join(metrics)}."
                if metrics
                else "Validate the training, with a dataset that has a validation split.",
            )


class SnapshotRetention:
    """Keeps the newest ``limit`` epoch snapshots in ``folder``; None keeps all of them.

    The snapshot to resume from, the best one and those in production are always kept.
    """

    def __init__(self, folder: Path, limit: int | None, events: EventLog) -> None:
        self._folder, self._limit, self._events = folder, limit, events

    def superseded(self, needed: Set[str]) -> list[Path]:
        """The epoch snapshots to remove, except those with the names in ``needed``.

        Their removal is logged before it happens; a training killed in between logs it again.
        """
        if self._limit is None:
            return []
        old = snapshots.of_epochs(self._folder)[max(1, self._limit) :]
        if not old:
            return []
        try:
            promoted = ProductionModels(self._folder.parent).snapshots_of(self._folder.name)
        except UnreadableFile as error:
            log.warning("No snapshots are removed: the list of production models cannot be read: %s", error)
            return []
        removed = [(epoch, path) for epoch, path in old if path.name not in needed | promoted]
        self._events.append(*(Removed(epoch, path.name) for epoch, path in removed))
        return [path for _, path in removed]

    def remove(self, superseded: Collection[Path], resumable: Collection[str]) -> None:
        """Remove the ``superseded`` snapshots, and all resume snapshots except the ``resumable`` ones."""
        snapshots.remove_resume_snapshots(self._folder, resumable)
        for path in superseded:
            snapshots.remove(path)
            log.info("Snapshot removed: %s", path.name)


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
