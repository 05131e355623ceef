"""Snapshot retention: which snapshots a training removes when it has saved a newer one."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from digits.core.events import EventLog, Removed
from digits.worker.training import snapshots

log = logging.getLogger(__name__)


class SnapshotRetention:
    """Keeps the newest ``limit`` epoch snapshots in ``folder``; None keeps all of them.

    The snapshot to resume from and the best one are always kept.
    """

    def __init__(self, folder: Path, limit: int | None, events: EventLog) -> None:
        self._folder, self._limit, self._events = folder, limit, events

    def superseded(self, needed: Collection[str]) -> list[Path]:
        """The epoch snapshots to remove, except those with the names in ``needed``.

        Their removal is logged before it happens; a training killed in between logs it again.
        """
        if self._limit is None:
            return []
        old = snapshots.of_epochs(self._folder)[max(1, self._limit) :]
        found = [(epoch, path) for epoch, path in old if path.name not in needed]
        self._events.append(*(Removed(epoch, path.name) for epoch, path in found))
        return [path for _, path in found]

    def remove(self, superseded: Collection[Path], resumable: Collection[str]) -> None:
        """Remove the ``superseded`` snapshots, and all resume snapshots except the ``resumable`` ones."""
        snapshots.remove_resume_snapshots(self._folder, resumable)
        for path in superseded:
            snapshots.remove(path)
            log.info("Snapshot removed: %s", path.name)
