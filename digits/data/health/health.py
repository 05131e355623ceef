"""The result of a dataset's health checks: ``health.json`` in its job's folder, and arrays beside it.

``health.json`` contains the findings with their counts and the first records of each, which pages show. The arrays
contain all records of the findings, and the statistics of every record. They are written before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.schema import Count, Fraction
from digits.core.splits import SPLITS, Split
from digits.data.arrays import load_rows, write_array
from digits.data.images.statistics import STATISTICS_DTYPE
from digits.data.manifest import HEALTH_FILE, HEALTH_RECORDS_FILE, Manifest, Sha256, health_statistics_file

MAX_LISTED = 1000
MAX_GROUPS = 100
MAX_FINDINGS = 100
MAX_BINS = 100

# A record of a finding. ``finding`` is the position of the finding in ``health.json``, ``split`` that of the split in
# `SPLITS`. Records with the same ``set`` belong together, such as duplicates of each other. Excluding all that are
# ``removable`` resolves the finding.
_NUMBER_BITS = 48
RECORD_DTYPE = np.dtype(
    [("finding", "<u2"), ("split", "u1"), ("removable", "?"), ("number", "<u4"), ("set", "<u4")]
)

Severity = Literal["error", "warning", "info"]
Text = Annotated[str, Meta(max_length=2000)]
ListedRecord = tuple[Split, Count]


class GroupCount(Struct, frozen=True):
    """A group of a finding, by its position in the manifest, and its number of training images."""

    index: Count
    name: Text
    count: Count


class Finding(Struct, frozen=True, kw_only=True):
    """A problem of a dataset, or a notable property. ``id`` is stable, such as ``exact_duplicates``.

    ``count`` is the number of records, or of groups if the finding is about ``groups``. ``fraction`` is their share of
    all. ``records`` are the first `MAX_LISTED` records, and ``removable`` those to exclude to resolve the finding, also
    up to `MAX_LISTED` of ``removable_count``; `removable_records` returns all. With ``has_sets``, the records belong to
    several ``sets``, such as duplicates of each other.
    """

    id: Annotated[str, Meta(pattern=r"^(?a:[a-z_]{1,40})\Z")]
    title: Text
    explanation: Text
    severity: Severity
    count: Count
    fraction: Fraction = 0.0
    splits: dict[Split, Count] = field(default_factory=dict)
    has_sets: bool = False
    sets: Count = 0
    records: Annotated[list[ListedRecord], Meta(max_length=MAX_LISTED)] = field(default_factory=list)
    removable: Annotated[list[ListedRecord], Meta(max_length=MAX_LISTED)] = field(default_factory=list)
    removable_count: Count = 0
    groups: Annotated[list[GroupCount], Meta(max_length=MAX_GROUPS)] = field(default_factory=list)


class Histogram(Struct, frozen=True, kw_only=True):
    """The number of images, or of groups, between neighboring ``edges``.

    ``filter`` is the argument of the Explore page that selects the records of a bin, if there is one.
    """

    title: Text
    unit: Text = ""
    filter: Text = ""
    edges: Annotated[list[float], Meta(min_length=2, max_length=MAX_BINS + 1)]
    counts: Annotated[list[Count], Meta(min_length=1, max_length=MAX_BINS)]

    def __post_init__(self) -> None:
        """Raise ValueError if the numbers of edges and counts do not match."""
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError("a histogram has one more edge than counts")


class Health(Struct, frozen=True, kw_only=True):
    """The result of the health checks of the dataset with ``content_hash``."""

    content_hash: Sha256
    images: Count
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    findings: Annotated[list[Finding], Meta(max_length=MAX_FINDINGS)] = field(default_factory=list)
    histograms: Annotated[list[Histogram], Meta(max_length=10)] = field(default_factory=list)

    def position(self, finding_id: str) -> int | None:
        """Return the position of a finding, or None if there is no such finding."""
        return next((at for at, finding in enumerate(self.findings) if finding.id == finding_id), None)


def save(job_folder: Path, health: Health, array: NDArray[Any], statistics: dict[str, NDArray[Any]]) -> None:
    """Write the result: the arrays first. ``array`` has `RECORD_DTYPE`, and ``statistics`` an array for each split."""
    for split, rows in statistics.items():
        write_array(job_folder / health_statistics_file(split), rows)
    write_array(job_folder / HEALTH_RECORDS_FILE, array)
    write_json(job_folder / HEALTH_FILE, {"schema": 1, **msgspec.to_builtins(health)}, type(health))


def load(job_folder: Path, manifest: Manifest) -> Health:
    """Load the result for the dataset of ``manifest``; raises UnreadableFile if it is missing, damaged or outdated."""
    health = read_json(job_folder / HEALTH_FILE, Health, below=job_folder)
    if health.content_hash != manifest.content_hash:
        raise UnreadableFile(f"{HEALTH_FILE} describes other records")
    return health


def load_records(job_folder: Path, health: Health, finding_id: str) -> NDArray[Any]:
    """Return all records of a finding, an array of `RECORD_DTYPE` in the order of their sets.

    Raises UnreadableFile.
    """
    rows = load_rows(job_folder / HEALTH_RECORDS_FILE, below=job_folder, dtype=RECORD_DTYPE)
    if np.any(rows["split"] >= len(SPLITS)):
        raise UnreadableFile(f"{HEALTH_RECORDS_FILE} contains an unknown split")
    position = health.position(finding_id)
    return rows[:0] if position is None else rows[rows["finding"] == position]


def load_statistics(job_folder: Path, manifest: Manifest, split: str) -> NDArray[Any]:
    """Return the statistics of all records of a split, an array of `STATISTICS_DTYPE`; raises UnreadableFile."""
    name = health_statistics_file(split)
    rows = load_rows(job_folder / name, below=job_folder, dtype=STATISTICS_DTYPE)
    if len(rows) != manifest.splits[split].count:
        raise UnreadableFile(f"{name} does not describe the records of the split")
    return rows


def findings_of(job_folder: Path, health: Health, split: str, number: int) -> list[Finding]:
    """Return the findings to which a record belongs; raises UnreadableFile."""
    rows = load_rows(job_folder / HEALTH_RECORDS_FILE, below=job_folder, dtype=RECORD_DTYPE)
    own = rows["finding"][(rows["split"] == SPLITS.index(split)) & (rows["number"] == number)]
    return [finding for index, finding in enumerate(health.findings) if index in own]


def removable_records(job_folder: Path, health: Health, finding_ids: Sequence[str]) -> list[tuple[str, int]]:
    """Return the split and number of all records to exclude to resolve the findings, sorted; raises UnreadableFile."""
    keys = [np.zeros(0, np.int64)]
    for finding_id in finding_ids:
        rows = load_records(job_folder, health, finding_id)
        rows = rows[rows["removable"]]
        keys.append(rows["split"].astype(np.int64) << _NUMBER_BITS | rows["number"])
    # There may be a million: NumPy lets others run while it sorts.
    records = np.unique(np.concatenate(keys)).tolist()
    return [(SPLITS[key >> _NUMBER_BITS], key & ((1 << _NUMBER_BITS) - 1)) for key in records]
