"""The records that the Explore page shows: those of a split, of a group, of a finding, or in ranges of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest, NotFound
from digits.data import health, label_check
from digits.data.health import Finding
from digits.data.manifest import SPLITS, Manifest
from digits.kinds.jobs import DatasetJob

# All splits together, for findings.
ALL = "all"


@dataclass(frozen=True)
class Range:
    """Values from ``low`` to below ``high``; ``text`` is the argument, such as ``16:32`` or ``:16``."""

    name: str
    title: str
    text: str
    low: float
    high: float

    @classmethod
    def parse(cls, name: str, title: str, text: str) -> Self:
        """Parse an argument; raises BadRequest."""
        low, colon, high = text.partition(":")
        try:
            bounds = float(low or -math.inf), float(high or math.inf)
        except ValueError:
            bounds = math.nan, math.nan
        if not colon or any(map(math.isnan, bounds)):
            raise BadRequest(f"{name}: write a range as LOW:HIGH, such as 16:32.")
        return cls(name, title, text, *bounds)

    @property
    def words(self) -> str:
        """The range for display, such as ``brightness 16 to 32``."""
        if math.isinf(self.low):
            return f"{self.title} below {self.high:.4g}"
        if math.isinf(self.high):
            return f"{self.title} from {self.low:.4g}"
        return f"{self.title} {self.low:.4g} to {self.high:.4g}"

    def select(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = (values >= self.low) & (values < self.high)
        return chosen


def _aspect(rows: NDArray[Any]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = rows["width"] / np.maximum(rows["height"], 1)
    return ratio


def _size(rows: NDArray[Any]) -> NDArray[np.float64]:
    size: NDArray[np.float64] = np.sqrt(rows["width"].astype(np.float64) * rows["height"])
    return size


# Arguments of the page: their title, and the value of each record.
RANGES: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "brightness": ("brightness", lambda rows: rows["brightness"]),
    "source_size": ("source size", _size),
    "aspect": ("source aspect ratio", _aspect),
}


@dataclass(frozen=True)
class Selection:
    """Records by split and number. Those with the same number in ``sets`` belong together."""

    splits: str | NDArray[np.uint8]
    numbers: Sequence[int] | NDArray[Any]
    sets: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Selection:
        splits = self.splits if isinstance(self.splits, str) else self.splits[part]
        return Selection(splits, self.numbers[part], None if self.sets is None else self.sets[part])

    def __iter__(self) -> Iterator[tuple[str, int, int | None]]:
        """Yield the split, the number and the set of each record."""
        for place, number in enumerate(self.numbers):
            split = self.splits if isinstance(self.splits, str) else SPLITS[self.splits[place]]
            yield split, int(number), None if self.sets is None else int(self.sets[place])


def parse_ranges(arguments: Mapping[str, str]) -> list[Range]:
    """Return the ranges in the arguments of a request; raises BadRequest."""
    return [
        Range.parse(name, title, arguments[name])
        for name, (title, _) in RANGES.items()
        if arguments.get(name)
    ]


def find(job: DatasetJob, manifest: Manifest, finding_id: str) -> tuple[Finding, NDArray[Any]]:
    """Return a finding of the health checks and its records; raises NotFound, or UnreadableFile if it is damaged."""
    if finding_id == label_check.FINDING:
        check = label_check.load(job.folder, manifest)
        return check.finding, label_check.as_records(label_check.load_errors(job.folder, manifest))
    result = health.load(job.folder, manifest)
    position = result.position(finding_id)
    if position is None:
        raise NotFound(f"The health checks did not find “{finding_id}”.", "Check the dataset again.")
    rows = health.load_records(job.folder, result, finding_id)
    counts = np.array([manifest.splits[name].count if name in manifest.splits else 0 for name in SPLITS])
    return result.findings[position], rows[rows["number"] < counts[rows["split"]]]


def suggestions(job: DatasetJob, manifest: Manifest) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the class that the search for wrong labels suggests for each record of its finding, by split and number.

    Raises UnreadableFile.
    """
    names = manifest.target.names
    return {
        (SPLITS[row["split"]], int(row["number"])): {
            "index": int(row["suggested"]),
            "label": names[row["suggested"]],
            "percent": 100 * float(row["confidence"]),
        }
        for row in label_check.load_errors(job.folder, manifest)
    }


def in_ranges(job: DatasetJob, manifest: Manifest, split: str, ranges: list[Range]) -> NDArray[np.int64]:
    """Return the numbers of the records of a split that lie in all ``ranges``; raises UnreadableFile."""
    rows = health.load_statistics(job.folder, manifest, split)
    chosen = np.ones(len(rows), np.bool_)
    for item in ranges:
        chosen &= item.select(RANGES[item.name][1](rows))
        if item.name != "brightness":
            chosen &= rows["width"] > 0
    return np.flatnonzero(chosen)
