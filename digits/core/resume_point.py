"""Resume points, from which a training that was stopped, killed or failed can continue.

A resume point is a file beside a checkpoint, ``snapshot_3.ckpt.resume.json`` or ``resume_1234.ckpt.resume.json``,
with its own checksum. It is written after the checkpoint and the event log up to its step are durable.
An intact point is therefore valid, regardless of what else a killed training or a power loss left in the folder.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from digits.core import schema
from digits.core.files import UnreadableFile, read_json, sync_folder, write_json
from digits.core.schema import Count, Integer, JsonObject

SUFFIX = ".resume.json"


class ResumePoint(Struct, frozen=True, kw_only=True):
    """A training after ``step`` steps, ``epoch`` epochs. ``snapshot`` is a prefix in the job's folder.

    ``validated`` and ``saved`` are the steps of the latest validation and the latest
    snapshot of an epoch, -1 for none. ``seed``, ``records`` and ``step_records`` (records
    of the dataset, and of a step) define the position in the record order. ``watched``
    is the state of `digits.core.metrics.best_metric`, and ``curve`` the pending part of the next metrics row. ``trunk``
    lists the names of the pretrained variables of a fine-tuning. ``workers`` shared the training.
    """

    snapshot: str
    step: Count
    epoch: float
    seed: Integer
    records: Integer
    step_records: Integer
    validated: Integer = -1
    saved: Integer = -1
    wants_pictures: bool = False
    watched: JsonObject = field(default_factory=dict)
    curve: JsonObject | None = None
    trunk: list[str] = field(default_factory=list)
    workers: Count = 1

    def save(self, job_folder: Path) -> None:
        """Write this point beside its checkpoint, which must be durable; raises OSError."""
        body = structs.asdict(self)
        write_json(job_folder / f"{self.snapshot}{SUFFIX}", {"sha256": _checksum(body), "point": body})


class _File(Struct):
    sha256: str
    point: JsonObject


def resume_points(job_folder: Path) -> tuple[list[ResumePoint], dict[str, str]]:
    """Return the resume points in ``job_folder``, newest first, and the errors of damaged ones by checkpoint.

    The checkpoints themselves are not read.
    """
    points, faults = [], {}
    for path in sorted(job_folder.glob(f"*.ckpt{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        try:
            status = path.lstat()
            points.append(_load(path, name, (status.st_ino, status.st_mtime_ns, status.st_size)))
        except UnreadableFile as error:
            faults[name] = str(error)
        except FileNotFoundError:
            continue  # the training has removed it
    return sorted(points, key=lambda point: point.step, reverse=True), faults


def resume_point(job_folder: Path) -> ResumePoint | None:
    """Return the newest resume point in ``job_folder`` whose checkpoint exists; None if there is none."""
    points, _ = resume_points(job_folder)
    return next((point for point in points if (job_folder / f"{point.snapshot}.index").is_file()), None)


def discard(job_folder: Path, snapshots: Iterable[str]) -> None:
    """Remove the resume points of ``snapshots``, but not the snapshots."""
    for name in snapshots:
        (job_folder / f"{name}{SUFFIX}").unlink(missing_ok=True)
    sync_folder(job_folder)


@functools.lru_cache(maxsize=64)
def _load(path: Path, snapshot: str, version: tuple[int, int, int]) -> ResumePoint:
    """Read a resume point, unless the same ``version`` of the file was read before."""
    file = read_json(path, _File)
    if file.sha256 != _checksum(file.point):
        raise UnreadableFile(f"{path.name} does not match its checksum")
    try:
        point = schema.convert(file.point, ResumePoint)
    except schema.Malformed as error:
        raise UnreadableFile(f"{path.name} is not a resume point: {error}") from error
    if point.snapshot != snapshot:
        raise UnreadableFile(f"{path.name} belongs to {point.snapshot}")
    return point


def _checksum(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
