"""What a training leaves in its job's folder: snapshots, which is the best, and where to go on."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import humanize
import tensorflow as tf

from digits.core.best_metric import Watch
from digits.core.events import BestSnapshotChanged, EventLog, Removed, Saved, Warned
from digits.core.files import write_json
from digits.core.recipe import Train
from digits.core.resume_point import ResumePoint
from digits.worker.failure import UserFault
from digits.worker.training import snapshots

BEST_FILE = "best.json"

# So much of a training is lost at most when it is killed.
RESUME_SECONDS = 60.0

# Of the time of a training, this part at most goes into snapshots to go on from.
_SHARE_OF_TIME = 0.02

Variables = Mapping[str, tf.Variable]

log = logging.getLogger(__name__)


class Keeper:
    """Saves snapshots and removes them, and watches the validation for the best one and for the end."""

    def __init__(self, recipe: Train, job_folder: Path, events: EventLog) -> None:
        self._folder, self._events = job_folder, events
        self._kept = recipe.snapshots_kept
        self._best = Watch(recipe.best_metric) if recipe.best_metric else None
        stopping = recipe.early_stopping
        self._early = Watch(stopping.metric) if stopping else None
        self._patience = stopping.patience if stopping else 0.0
        self._is_best = False
        self._best_before: dict[str, object] = {}
        self._is_disk_full = False
        self._due = time.monotonic() + RESUME_SECONDS
        self._newest = ""

    def check(self, metrics: Collection[str]) -> None:
        """Raises UserFault when a metric that is to be watched is none of the validation's ``metrics``."""
        for watch in filter(None, (self._best, self._early)):
            if watch.metric not in metrics:
                raise UserFault(
                    f"The validation measures no {watch.metric!r}, which was to be watched.",
                    f"Choose one of {', '.join(metrics)}."
                    if metrics
                    else "Validate with a part of the dataset.",
                )

    def watch(self, epoch: float, values: Mapping[str, float]) -> None:
        """Take in the validation after ``epoch`` epochs."""
        self._best_before = self._best.as_json() if self._best else {}
        self._is_best = bool(self._best and self._best.see(epoch, values))
        if self._early:
            self._early.see(epoch, values)

    def wants_snapshot(self) -> bool:
        """Whether the latest validation was the best one, so that its weights must be kept."""
        return self._is_best

    def reason_to_end(self, epoch: float) -> str:
        """Why the training ends after ``epoch`` epochs, if it does."""
        early = self._early
        if early is None or early.value is None or epoch - early.epoch < self._patience - 1e-9:
            return ""
        return (
            f"Stopped early after {epoch:g} epochs: the validation's {early.metric} has not been better than "
            f"{early.value:.6g} since epoch {early.epoch:g}."
        )

    @property
    def watched(self) -> dict[str, object]:
        """What `recall` needs."""
        watches = {"best": self._best, "early": self._early}
        return {name: watch.as_json() for name, watch in watches.items() if watch}

    def recall(self, watched: Mapping[str, dict[str, object]]) -> None:
        """Go on from what was ``watched`` before."""
        for name, watch in (("best", self._best), ("early", self._early)):
            if watch:
                watch.recall(watched.get(name))

    def save(self, epoch: float, step: int, variables: Variables) -> None:
        """Save the snapshot of an epoch."""
        target = snapshots.prefix(self._folder, epoch)
        snapshots.save(target, variables, step)
        self._events.append(Saved(epoch, step, target.name))
        log.info("Snapshot saved: %s", target.name)
        if self._is_best and self._best:
            self._is_best = False
            write_json(self._folder / BEST_FILE, {**self._best.as_json(), "snapshot": target.name})
            self._events.append(BestSnapshotChanged(epoch, self._best.metric, self._best.value))
            log.info("The best by %s so far: %.6g", self._best.metric, self._best.value)

    def save_to_resume(self, step: int, variables: Variables) -> None:
        """Save a resume snapshot."""
        snapshots.save(snapshots.resume_prefix(self._folder, step), variables, step)

    def do_without(self, name: str, error: Exception, is_needed: bool = False) -> None:
        """Continue without the file ``name`` of a snapshot, which could not be written because the disk is full.

        Raises ``error`` if it has another cause, and UserFault if the snapshot ``is_needed``.
        """
        if not snapshots.is_disk_full(error):
            raise error
        free = humanize.naturalsize(shutil.disk_usage(self._folder).free)
        message = f"The disk is full: {name} could not be written to {self._folder}, where {free} are free."
        if is_needed:
            raise UserFault(message, "Free up space there, then resume the training.") from error
        log.warning(message)
        if self._is_best and self._best:
            # The best snapshot is still the one before.
            self._is_best = False
            self._best.recall(self._best_before)
        if not self._is_disk_full:
            self._is_disk_full = True
            self._events.append(Warned(f"{message} The training continues and retries every minute."))
        self._due = time.monotonic() + RESUME_SECONDS

    def remember(self, point: ResumePoint, is_last: bool = False) -> None:
        """Make ``point``, whose snapshot is saved, the newest resume point; remove superseded snapshots.

        The event log is made durable first, and snapshots are removed last. So after a power loss there
        is always a resume point, and the log is complete up to it. Raises OSError.
        """
        superseded = self._superseded(point.snapshot)
        self._events.sync()
        point.save(self._folder)
        # Keep the previous point, in case this one is damaged later.
        kept = {point.snapshot} if is_last else {point.snapshot, self._newest}
        self._remove(superseded, kept)
        self._newest = point.snapshot

    def clear_away(self, newest: str) -> None:
        """Remove the superseded snapshots left by a killed training that resumes from the snapshot ``newest``."""
        self._remove(self._superseded(newest), {newest})
        self._newest = newest

    def is_due(self) -> bool:
        """Whether a resume snapshot is due."""
        return time.monotonic() >= self._due

    def took(self, seconds: float) -> None:
        """Record that saving a resume snapshot took this many seconds."""
        self._is_disk_full = False
        self._due = time.monotonic() + max(RESUME_SECONDS, seconds / _SHARE_OF_TIME)

    def _superseded(self, newest: str) -> list[Path]:
        """The epoch snapshots to remove once ``newest`` is saved.

        Their removal is logged before it happens; a training killed in between logs it again.
        """
        if self._kept is None:
            return []
        needed = {newest}
        if self._best and self._best.value is not None:
            needed.add(snapshots.prefix(self._folder, self._best.epoch).name)
        old = snapshots.of_epochs(self._folder)[max(1, self._kept) :]
        superseded = [(epoch, path) for epoch, path in old if path.name not in needed]
        self._events.append(*(Removed(epoch, path.name) for epoch, path in superseded))
        return [path for _, path in superseded]

    def _remove(self, superseded: list[Path], kept: Collection[str]) -> None:
        snapshots.remove_resume_snapshots(self._folder, kept)
        for path in superseded:
            snapshots.remove(path)
            log.info("Snapshot removed: %s", path.name)
