"""Snapshot retention: which snapshots a training removes when it has saved a newer one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Set
from pathlib import Path

from digits.core.events import EventLog, Removed
from digits.core.files import UnreadableFile
from digits.data.production import ProductionModels
from digits.worker.training.weights import snapshots

log = logging.getLogger(__name__)


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
