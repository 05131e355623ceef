"""Derive the findings of the health checks from the statistics of all records: a pure function.

Memory: about 110 bytes a record for the statistics and shapes, and up to 60 more while duplicates are searched by
sorting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from digits.core.splits import SPLITS, Split
from digits.data.health.health import (
    MAX_GROUPS,
    MAX_LISTED,
    RECORD_DTYPE,
    Finding,
    GroupCount,
    Health,
    Histogram,
    Severity,
)
from digits.data.images.near_duplicates import find_sets
from digits.data.images.statistics import MODES
from digits.data.manifest import Manifest

# Gray values, 0 to 255. Cleanvision uses similar limits of the percentiles.
BLANK_CONTRAST = 1.0
LOW_CONTRAST = 8.0
DARK_HIGH = 64
BRIGHT_LOW = 242
# A source is tiny if its area is smaller than that of the dataset's images by this factor.
UPSCALED_AREA = 4
# The aspect ratio of a source differs from that of the dataset's images by this factor.
ODD_ASPECT = 3.0
FEW_IMAGES = 10
# The page of a dataset shows the counts of so few groups side by side.
FEW_GROUPS = 10
IMBALANCE = 10
PLAIN_MODES = ("", "L", "RGB")

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_BINS = 16
# If the largest value exceeds the smallest by more than this factor, the axis of the histogram is logarithmic.
_LINEAR_FACTOR = 8

Statistics = NDArray[Any]
# Places with equal values, and the number of the run of each.
Runs = tuple[NDArray[np.int64], NDArray[np.uint32]]


class _Text(NamedTuple):
    title: str
    explanation: str
    severity: Severity = "warning"


# By the id of the finding.
_TEXTS = {
    "exact_duplicates_across_splits": _Text(
        "The same image in several splits",
        "Metrics are too optimistic if images of the validation or test split are also trained on. Excluding them "
        "keeps the copies in the last of these splits, such as the one for validation.",
        "error",
    ),
    "conflicting_targets": _Text(
        "The same image with different targets",
        "At least one of the targets is wrong, and a model cannot learn both. Because the correct one is not "
        "known, all copies are excluded.",
        "error",
    ),
    "exact_duplicates": _Text(
        "Exact duplicates in a split",
        "Images with equal pixels count several times in the loss and in metrics. Excluding them keeps the first of "
        "each set.",
    ),
    "near_duplicates_across_splits": _Text(
        "Near duplicates in several splits",
        "Images that look the same, such as a photo in two sizes, are in several splits: metrics may be too "
        "optimistic. Excluding them keeps the copies in the last of these splits.",
    ),
    "near_duplicates": _Text(
        "Near duplicates in a split",
        "Images that look the same, such as frames of a video, or a photo in two sizes. Excluding them keeps the first "
        "of each set.",
    ),
    "blank": _Text("Blank images", "All pixels have nearly the same value."),
    "dark": _Text("Dark images", f"99% of the pixels are darker than {DARK_HIGH} of 255."),
    "bright": _Text("Bright images", f"99% of the pixels are brighter than {BRIGHT_LOW} of 255."),
    "low_contrast": _Text(
        "Low contrast", f"The standard deviation of the gray values is below {LOW_CONTRAST:g} of 255."
    ),
    "tiny_sources": _Text(
        "Tiny source images",
        "They have less than a quarter of the pixels of {size}, so they were enlarged and look blurred.",
    ),
    "odd_aspect": _Text(
        "Unusual aspect ratio",
        f"Their aspect ratio differs from that of {{size}} by more than a factor of {ODD_ASPECT:g}: they were strongly "
        "distorted, cropped or padded, depending on the resize mode.",
        "info",
    ),
    "odd_mode": _Text(
        "Unusual pixel format",
        "The source images have a palette, transparency, 16 bits or another color space ({modes}). They were "
        "converted to {colors}; check that they look as expected.",
        "info",
    ),
    "few_images": _Text(
        "Few training images",
        f"These have fewer than {FEW_IMAGES} training images, which is rarely enough to learn from.",
    ),
    "imbalance": _Text(
        "Imbalanced training images",
        "The largest has {most:,} training images, the smallest {least:,}. Class balancing, a setting of new models, "
        "may help.",
        "info",
    ),
    "similar_names": _Text(
        "Names that differ only in case or spaces",
        "They may mean the same thing: rename or merge them in the source.",
    ),
    "skipped": _Text(
        "Skipped images",
        "These files could not be used, so they are not part of the dataset. The list of skipped images names the "
        "reasons.",
    ),
}


@dataclass(frozen=True)
class Result:
    """The result of the checks; ``records`` are those of the findings, an array of `RECORD_DTYPE`."""

    health: Health
    records: NDArray[Any]


@dataclass
class _Table:
    """The statistics of the records of all splits, one after the other, with the split and number of each."""

    rows: Statistics
    shapes: NDArray[np.int8]
    split: NDArray[np.uint8]
    number: NDArray[np.uint32]
    group: NDArray[np.int32]


@dataclass
class _Members:
    """Records of a finding: their ``places`` in the table, their sets, and whether they are removable."""

    places: NDArray[np.int64]
    sets: NDArray[np.uint32]
    removable: NDArray[np.bool_]
    has_sets: bool = False

    @classmethod
    def single(cls, places: NDArray[np.int64], *, removable: bool = False) -> _Members:
        """Records that do not belong together."""
        count = len(places)
        return cls(places, np.zeros(count, np.uint32), np.full(count, removable, np.bool_))


def find(
    manifest: Manifest,
    statistics: dict[str, Statistics],
    shapes: dict[str, NDArray[np.int8]],
    groups: dict[str, NDArray[np.int32]],
    seconds: float = 0.0,
    *,
    appearance: bool = True,
    counts: bool = True,
) -> Result:
    """Return the findings from the statistics, shapes and groups of the records of each split, most severe first.

    Without ``appearance``, findings about how images look are omitted; without ``counts``, those about the number of
    images in each group.
    """
    table = _join(statistics, shapes, groups)
    search = _Search(table, manifest)
    search.find_exact_duplicates()
    if appearance:
        search.find_near_duplicates()
        search.find_unusual_pixels()
        search.find_unusual_sources()
    if counts:
        search.find_unusual_counts()
    search.add_groups("similar_names", np.array(_similar_names(manifest.groups), np.int64))
    search.add("skipped", _Members.single(np.zeros(0, np.int64)), count=manifest.skipped)
    found = sorted(search.found, key=lambda item: _SEVERITIES.index(item[0].severity))
    health = Health(
        content_hash=manifest.content_hash,
        images=len(table.rows),
        seconds=seconds,
        findings=[finding for finding, _ in found],
        histograms=_histograms(table, manifest, appearance),
    )
    return Result(health, _record_array(table, [members for _, members in found]))


def _join(
    statistics: dict[str, Statistics],
    shapes: dict[str, NDArray[np.int8]],
    groups: dict[str, NDArray[np.int32]],
) -> _Table:
    names = [name for name in SPLITS if name in statistics]
    parts = [statistics[name] for name in names]
    return _Table(
        rows=np.concatenate(parts),
        shapes=np.concatenate([shapes[name] for name in names]),
        split=np.concatenate(
            [
                np.full(len(part), SPLITS.index(name), np.uint8)
                for name, part in zip(names, parts, strict=True)
            ]
        ),
        number=np.concatenate([np.arange(len(part), dtype=np.uint32) for part in parts]),
        group=np.concatenate([groups[name] for name in names]),
    )


class _Search:
    """Collects the findings with their records."""

    def __init__(self, table: _Table, manifest: Manifest) -> None:
        self.found: list[tuple[Finding, _Members]] = []
        self._table, self._manifest, self._rows = table, manifest, table.rows

    # Duplicates

    def find_exact_duplicates(self) -> None:
        exact = _equal_runs(self._rows["pixels_hash"])
        self._add_between("exact_duplicates_across_splits", exact)
        if not self._manifest.target.in_image:
            places, sets = _runs_with_several(exact, self._rows["target_hash"])
            members = _Members(places, sets, np.ones(len(places), np.bool_), has_sets=True)
            self.add("conflicting_targets", members)
        self._add_within("exact_duplicates", exact)

    def find_near_duplicates(self) -> None:
        # Hashes and shapes of nearly uniform images are arbitrary.
        usable = np.flatnonzero(self._rows["contrast"] >= LOW_CONTRAST)
        _, first, copies = np.unique(
            self._rows["pixels_hash"][usable], return_index=True, return_inverse=True
        )
        different = usable[first]
        sets = find_sets(self._rows["perceptual_hash"][different], self._table.shapes[different])
        in_set = np.full(len(self._rows), -1)
        in_set[usable] = sets[copies]
        near = _runs_with_several(_equal_runs(in_set, usable), self._rows["pixels_hash"])
        self._add_between("near_duplicates_across_splits", near)
        self._add_within("near_duplicates", near)

    def _add_between(self, finding_id: str, runs: Runs) -> None:
        """Add the runs that lie in several splits. Removable are the places that are not in the last one."""
        split = self._table.split
        places, sets = _runs_with_several(runs, split)
        last = np.maximum.reduceat(split[places], _run_starts(sets)) if len(sets) else split[:0]
        self.add(finding_id, _Members(places, sets, split[places] < last[sets], has_sets=True))

    def _add_within(self, finding_id: str, runs: Runs) -> None:
        """Add the parts of runs in one split with several places. Removable are all but the first."""
        places, sets = runs
        # Places ascend by split, so that the places of a run in one split are neighbors.
        keys = sets.astype(np.int64) * len(SPLITS) + self._table.split[places]
        places, sets = _select_runs(places, _run_starts(keys))
        removable = np.ones(len(places), np.bool_)
        removable[_run_starts(sets)] = False
        self.add(finding_id, _Members(places, sets, removable, has_sets=True))

    # Single images

    def find_unusual_pixels(self) -> None:
        rows = self._rows
        blank = rows["contrast"] < BLANK_CONTRAST
        dark = ~blank & (rows["high"] < DARK_HIGH)
        bright = ~blank & (rows["low"] > BRIGHT_LOW)
        flat = ~blank & ~dark & ~bright & (rows["contrast"] < LOW_CONTRAST)
        for finding_id, chosen in {
            "blank": blank,
            "dark": dark,
            "bright": bright,
            "low_contrast": flat,
        }.items():
            self._add_single(finding_id, chosen)

    def find_unusual_sources(self) -> None:
        rows, manifest = self._rows, self._manifest
        width, height = rows["width"].astype(np.float64), rows["height"].astype(np.float64)
        known = (width > 0) & (height > 0)
        size = f"{manifest.width}×{manifest.height}"
        tiny = known & (width * height * UPSCALED_AREA < manifest.width * manifest.height)
        self._add_single("tiny_sources", tiny, size=size)
        ratio = np.ones(len(rows))
        np.divide(width * manifest.height, height * manifest.width, out=ratio, where=known)
        odd = known & ((ratio > ODD_ASPECT) | (ratio < 1 / ODD_ASPECT))
        self._add_single("odd_aspect", odd, size=size)
        unusual = np.array([mode not in PLAIN_MODES for mode in MODES])[rows["mode"]]
        modes = ", ".join(sorted({MODES[index] for index in np.unique(rows["mode"][unusual])}))
        colors = "grayscale" if manifest.channels == 1 else "RGB"
        self._add_single("odd_mode", unusual, removable=False, modes=modes, colors=colors)

    def _add_single(
        self, finding_id: str, chosen: NDArray[np.bool_], *, removable: bool = True, **facts: Any
    ) -> None:
        self.add(finding_id, _Members.single(np.flatnonzero(chosen), removable=removable), **facts)

    # Groups

    def find_unusual_counts(self) -> None:
        counts = np.array(self._train_counts, np.int64)
        few = np.flatnonzero(counts < FEW_IMAGES)
        in_few = (self._table.split == 0) & np.isin(self._table.group, few)
        self.add_groups("few_images", few, np.flatnonzero(in_few))
        if len(counts) > 1 and counts.max() > IMBALANCE * max(1, int(counts.min())):
            extremes = np.array([counts.argmax(), counts.argmin()])
            self.add_groups("imbalance", extremes, most=counts.max(), least=counts.min())

    def add_groups(
        self,
        finding_id: str,
        groups: NDArray[np.int64],
        places: NDArray[np.int64] | None = None,
        **facts: Any,
    ) -> None:
        if not len(groups):
            return
        members = _Members.single(np.zeros(0, np.int64) if places is None else places)
        names, counts = self._manifest.groups, self._train_counts
        listed = [
            GroupCount(index=int(group), name=names[group][:2000], count=counts[group] if counts else 0)
            for group in groups[:MAX_GROUPS]
        ]
        self.add(finding_id, members, groups=listed, count=len(groups), **facts)

    @property
    def _train_counts(self) -> list[int]:
        """The number of training images of each group; of a class, those that contain it."""
        train = self._manifest.splits.get("train")
        if not train or not train.class_counts:
            return train.counts if train else []
        containing = dict(zip(self._manifest.contained, train.class_counts, strict=True))
        return [
            containing.get(name, count)
            for name, count in zip(self._manifest.groups, train.counts, strict=True)
        ]

    def add(
        self,
        finding_id: str,
        members: _Members,
        *,
        groups: Sequence[GroupCount] = (),
        count: int = 0,
        **facts: Any,
    ) -> None:
        """Add a finding, unless it has no records and no ``count``. The ``facts`` are parts of its explanation."""
        table, text = self._table, _TEXTS[finding_id]
        count = count or len(members.places)
        if not count:
            return
        removable = members.places[members.removable]
        sets = len(_run_starts(members.sets)) if members.has_sets else 0
        in_splits = np.bincount(table.split[members.places], minlength=len(SPLITS))
        finding = Finding(
            id=finding_id,
            title=text.title,
            explanation=text.explanation.format(**facts),
            severity=text.severity,
            count=count,
            fraction=len(members.places) / len(table.rows) if len(table.rows) else 0.0,
            splits={name: number for name, number in zip(SPLITS, in_splits.tolist(), strict=True) if number},
            has_sets=members.has_sets,
            sets=sets,
            records=_listed(table, members.places),
            removable=_listed(table, removable),
            removable_count=len(removable),
            groups=list(groups),
        )
        self.found.append((finding, members))


def _equal_runs(values: NDArray[Any], places: NDArray[np.int64] | None = None) -> Runs:
    """Return the places with values that occur several times, sorted by value, and the number of the run of each.

    Runs are in the order of their first places, and places within a run ascend.
    """
    if places is None:
        places = np.arange(len(values))
    order = places[np.argsort(values[places], kind="stable")]
    return _select_runs(order, _run_starts(values[order]))


def _run_starts(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return where the runs of equal ``keys`` start."""
    if not len(keys):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1]).astype(np.int64)


def _select_runs(
    places: NDArray[np.int64], starts: NDArray[np.int64], wanted: NDArray[np.bool_] | None = None
) -> Runs:
    """Return the ``wanted`` runs of at least two places, ordered and numbered by their first places."""
    lengths = np.diff(np.append(starts, len(places)))
    is_kept = lengths > 1 if wanted is None else (lengths > 1) & wanted
    kept = np.flatnonzero(is_kept)
    kept = kept[np.argsort(places[starts[kept]], kind="stable")]
    lengths = lengths[kept]
    ends = np.cumsum(lengths)
    inside = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return places[np.repeat(starts[kept], lengths) + inside], np.repeat(
        np.arange(len(kept), dtype=np.uint32), lengths
    )


def _runs_with_several(runs: Runs, values: NDArray[Any]) -> Runs:
    """Return the runs whose places have several ``values``."""
    places, sets = runs
    starts = _run_starts(sets)
    if not len(starts):
        return runs
    own = values[places]
    return _select_runs(places, starts, np.minimum.reduceat(own, starts) != np.maximum.reduceat(own, starts))


def _similar_names(names: list[str]) -> list[int]:
    """Return the positions of names that are equal apart from case and white space, side by side."""
    same = defaultdict(list)
    for position, name in enumerate(names):
        same["".join(name.casefold().replace("_", " ").split())].append(position)
    return [position for positions in same.values() if len(positions) > 1 for position in positions]


def _listed(table: _Table, places: NDArray[np.int64]) -> list[tuple[Split, int]]:
    first = places[:MAX_LISTED]
    return [
        (SPLITS[split], number)
        for split, number in zip(table.split[first].tolist(), table.number[first].tolist(), strict=True)
    ]


def _record_array(table: _Table, members: list[_Members]) -> NDArray[Any]:
    array = np.zeros(sum(len(item.places) for item in members), RECORD_DTYPE)
    start = 0
    for position, item in enumerate(members):
        part = array[start : start + len(item.places)]
        part["finding"] = position
        part["split"], part["number"] = table.split[item.places], table.number[item.places]
        part["set"], part["removable"] = item.sets, item.removable
        start += len(part)
    return array


def _histograms(table: _Table, manifest: Manifest, appearance: bool) -> list[Histogram]:
    histograms = _image_histograms(table.rows) if appearance else []
    train = manifest.splits.get("train")
    if train and len(train.counts) > FEW_GROUPS:
        counts = np.array(train.counts, np.float64)
        edges = np.unique(np.linspace(0, counts.max() + 1, _BINS + 1).round())
        histograms.append(_histogram("Training images per group", "", "", counts, edges))
    return histograms


def _image_histograms(rows: Statistics) -> list[Histogram]:
    known = (rows["width"] > 0) & (rows["height"] > 0)
    width, height = rows["width"][known].astype(np.float64), rows["height"][known].astype(np.float64)
    brightness = np.linspace(0, 256, _BINS + 1)
    histograms = [_histogram("Brightness", "", "brightness", rows["brightness"], brightness)]
    if len(width):
        size, aspect = np.sqrt(width * height), width / height
        histograms += [
            _histogram("Source size (mean of the sides)", "px", "source_size", size, _round_edges(size)),
            _histogram("Source aspect ratio (width / height)", "", "aspect", aspect, _round_edges(aspect)),
        ]
    return histograms


def _round_edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return round edges of about `_BINS` bins that contain all positive ``values``."""
    low, high = float(values.min()), float(values.max())
    if high > _LINEAR_FACTOR * low:
        # 1, 2, 5, 10, …
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        steps: NDArray[np.float64] = np.outer(powers, (1, 2, 5)).ravel()
        first, last = np.searchsorted(steps, low, "right") - 1, np.searchsorted(steps, high)
        return steps[max(0, first) : last + 1]
    rough = (high - low) / _BINS or 1.0
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    edges: NDArray[np.float64] = step * np.arange(np.floor(low / step), np.ceil(high / step) + 1)
    return edges


def _histogram(title: str, unit: str, filter: str, values: NDArray[Any], edges: Any) -> Histogram:
    """Count the ``values`` between ``edges``, which also limit them; equal values are one bin without width."""
    if len(values) and np.all(values == values[0]):
        return Histogram(
            title=title, unit=unit, filter=filter, edges=[float(values[0])] * 2, counts=[len(values)]
        )
    edges = np.asarray(edges, np.float64)
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    used = np.flatnonzero(counts)
    first, last = (
        (int(used[0]), int(used[-1])) if len(used) and filter != "brightness" else (0, len(counts) - 1)
    )
    return Histogram(
        title=title,
        unit=unit,
        filter=filter,
        edges=edges[first : last + 2].tolist(),
        counts=counts[first : last + 1].tolist(),
    )
