"""The snapshots of models that requests choose."""

from __future__ import annotations

import numpy as np
from flask import request

from digits.core.errors import BadRequest, NotFound, Unavailable
from digits.core.model_job import ModelJob, epoch_label
from digits.core.snapshot_list import Snapshot
from digits.data.numbers import parse_number
from digits.runtime.offload import in_thread
from digits.web.services import services


def snapshot_of(job: ModelJob, epoch: str | None) -> Snapshot:
    """Return the snapshot of ``epoch``: by default the best one, for -1 the newest one."""
    saved = services().snapshots_of(job)
    default = saved.default
    if default is None:
        raise BadRequest(f"“{job.name}” has no snapshot yet.")
    if not epoch:
        return default
    if epoch == "-1":
        return saved.snapshots[0]
    try:
        wanted = parse_number(epoch)
    except ValueError:
        raise BadRequest(f"“{epoch}” is not an epoch.") from None
    snapshot = saved.of_epoch(wanted)
    if snapshot is None:
        raise NotFound(f"“{job.name}” has no snapshot of epoch {epoch}.")
    return snapshot


def requested_snapshot(job: ModelJob, default: str = "") -> Snapshot:
    """Return the snapshot that this request asks for; raises an error if it may not or cannot be used."""
    if not services().tensorflow.available:
        raise Unavailable("TensorFlow support is disabled.", services().tensorflow.reason)
    return snapshot_of(job, request.values.get("snapshot_epoch") or default)


def spread_snapshots(job: ModelJob, most: int) -> dict[str, str]:
    """Return the epochs of at most ``most`` snapshots by name, evenly spread, from the first to the last one."""
    saved = [snapshot for snapshot in reversed(in_thread(job.snapshots).snapshots) if snapshot.is_intact]
    places = {round(place) for place in np.linspace(0, len(saved) - 1, most)} if saved else ()
    return {saved[place].name: epoch_label(saved[place].epoch) for place in sorted(places)}
