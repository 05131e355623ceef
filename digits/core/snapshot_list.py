"""List the snapshots of a training with their validation metrics, and select the best one.

Before reporting a snapshot, the training appends a record to `FILE_NAME`. Records are never modified: the last one of
a name is valid, and those of removed snapshots are ignored.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from digits.core import append_log, schema
from digits.core.files import UnreadableFile, read_bytes
from digits.core.metrics.best_metric import lower_is_better
from digits.core.schema import Count

FILE_NAME = "snapshots.jsonl"
SUFFIXES = (".index", ".data-00000-of-00001")
LOSS = "loss"
# Far more records than any training saves. Files read into memory have a maximum size.
MAX_BYTES = 16 * 1024 * 1024
_INDEX = re.compile(r"(snapshot_(\d+(?:\.\d+)?)\.ckpt)\.index")


@dataclass(frozen=True)
class Snapshot:
    """A snapshot saved after ``epoch`` epochs, with the prefix ``name`` in the job's folder.

    ``metrics`` are the validation metrics at the same step; empty if there was no validation. A snapshot
    ``is_intact`` if its files still have the size recorded when it was saved.
    """

    epoch: float
    name: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    is_intact: bool = True


@dataclass(frozen=True)
class SnapshotList:
    """The complete snapshots of a training, newest first.

    ``metric`` selects the best one: that with the lowest value if ``lower_is_better``, else with the highest.
    """

    snapshots: tuple[Snapshot, ...] = ()
    metric: str = ""
    lower_is_better: bool = True

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    def __len__(self) -> int:
        return len(self.snapshots)

    @cached_property
    def best(self) -> Snapshot | None:
        """The best intact snapshot, or None if none has been validated."""
        return best_of(self.snapshots, self.metric, self.lower_is_better)

    @cached_property
    def default(self) -> Snapshot | None:
        """The best snapshot, else the newest intact one, else the newest one; None without snapshots."""
        intact = [snapshot for snapshot in self.snapshots if snapshot.is_intact]
        return self.best or next(iter([*intact, *self.snapshots]), None)

    def of_epoch(self, epoch: float) -> Snapshot | None:
        return next((snapshot for snapshot in self.snapshots if snapshot.epoch == epoch), None)


def best_of(snapshots: Iterable[Snapshot], metric: str, is_lower_better: bool) -> Snapshot | None:
    """Return the intact snapshot with the best ``metric``; ties go to the lowest loss, then to the first one."""
    validated = [item for item in snapshots if item.is_intact and metric in item.metrics]
    sign = 1 if is_lower_better else -1
    return min(
        validated,
        key=lambda item: (sign * item.metrics[metric], item.metrics.get(LOSS, 0.0), item.epoch),
        default=None,
    )


def choose_metric(primary: str, metrics: Iterable[str]) -> str:
    """Return the default metric for the best snapshot: ``primary`` or a metric named after it, else the loss.

    ``metrics`` are the names of the validation metrics. Return an empty string if they contain neither, or without
    ``primary``.
    """
    names = list(metrics)
    candidates = [primary, *(name for name in names if primary in name.lower()), LOSS] if primary else []
    return next((name for name in candidates if name in names), "")


_Name = Annotated[str, Meta(max_length=200)]


class _Record(Struct):
    """The record of a snapshot: with the total size of its files, and the metric that selects the best one.

    Records of earlier versions lack the direction of the metric, which its name then implies.
    """

    name: _Name
    bytes: Count
    metric: _Name = ""
    lower_is_better: bool | None = None
    metrics: dict[_Name, float] = msgspec.field(default_factory=dict)


def append(folder: Path, snapshot: Snapshot, metric: str, is_lower_better: bool | None = None) -> None:
    """Durably record a ``snapshot`` in ``folder``, with the ``metric`` that selects the best one; raises OSError.

    By default, the name of the metric implies whether lower values are better. The files of the snapshot must be
    durable, and its metrics finite.
    """
    size = sum(os.stat(folder / f"{snapshot.name}{suffix}").st_size for suffix in SUFFIXES)
    record = _Record(snapshot.name, size, metric, is_lower_better, dict(snapshot.metrics))
    append_log.append(folder / FILE_NAME, [record])


def read(folder: Path) -> SnapshotList:
    """Return the complete snapshots in a model job's folder."""
    sizes = _sizes(folder)
    records = _records(folder) if sizes else {}
    snapshots = []
    for file_name in sizes:
        if match := _INDEX.fullmatch(file_name):
            name, record = match[1], records.get(match[1])
            metrics = record.metrics if record else {}
            is_intact = record is None or record.bytes == sum(sizes.get(name + end, 0) for end in SUFFIXES)
            snapshots.append(Snapshot(float(match[2]), name, metrics, is_intact))
    snapshots.sort(key=lambda snapshot: snapshot.epoch, reverse=True)
    latest = next((record for record in reversed(records.values()) if record.metric), None)
    if latest is None:
        return SnapshotList(tuple(snapshots))
    direction = latest.lower_is_better
    is_lower_better = lower_is_better(latest.metric) if direction is None else direction
    return SnapshotList(tuple(snapshots), latest.metric, is_lower_better)


def exists(folder: Path, name: str) -> bool:
    """Return whether ``folder`` contains the files of the snapshot ``name``, without reading them."""
    return all(os.path.isfile(f"{folder}/{name}{suffix}") for suffix in SUFFIXES)


def newest_name(folder: Path) -> str | None:
    """Return the name of the newest complete snapshot without reading any files."""
    with contextlib.suppress(OSError):
        matches = [match for name in os.listdir(folder) if (match := _INDEX.fullmatch(name))]
        return max(matches, key=lambda match: float(match[2]))[1] if matches else None
    return None


def _sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of the snapshots' files in bytes."""
    sizes = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("snapshot_"):
                with contextlib.suppress(OSError):  # the training may have removed it
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def _records(folder: Path) -> dict[str, _Record]:
    """Return the valid records by name, in the order in which they were last written."""
    try:
        lines = read_bytes(folder / FILE_NAME, MAX_BYTES, below=folder).splitlines()
    except (UnreadableFile, OSError):
        return {}
    records: dict[str, _Record] = {}
    for line in lines:
        with contextlib.suppress(schema.Malformed, ValueError, RecursionError):
            record = schema.decode(line, _Record)
            records.pop(record.name, None)
            records[record.name] = record
    return records
