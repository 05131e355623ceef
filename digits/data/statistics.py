"""Dataset statistics: record counts per split, and properties of images and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from digits.core.files import MissingFile
from digits.data.health import health
from digits.data.health.health import Finding, Histogram
from digits.data.images.statistics import MODES
from digits.data.manifest import Manifest


class SplitStatistics(Struct):
    """A split: ``counts`` are the numbers of records of each class or label."""

    count: int
    bytes: int
    counts: dict[str, int]


class ImageFormat(Struct):
    """The format that all images of a dataset have."""

    width: int
    height: int
    channels: int
    encoding: str
    resize_mode: str
    mean_pixel: list[float]


class TargetStatistics(Struct):
    """The names of the classes or values, and the mean and the standard deviation of the values."""

    names: list[str]
    mean: list[float]
    std: list[float]


class Distribution(Struct):
    min: float
    max: float
    mean: float
    median: float
    std: float


class ImageStatistics(Struct):
    """The images of a split; the sizes of the sources are those that are known."""

    brightness: Distribution | None
    contrast: Distribution | None
    source_width: Distribution | None
    source_height: Distribution | None
    source_modes: dict[str, int]


class Statistics(Struct, kw_only=True):
    """The statistics of a dataset. The health check adds ``images`` by split, ``findings`` and ``histograms``."""

    content_hash: str
    splits: dict[str, SplitStatistics]
    image: ImageFormat
    target: TargetStatistics
    skipped: int
    images: dict[str, ImageStatistics] | None = None
    findings: list[Finding] | None = None
    histograms: list[Histogram] | None = None


def summarize(job_folder: Path, manifest: Manifest, counts: Mapping[str, Mapping[str, int]]) -> Statistics:
    """Return the statistics of a dataset; raises UnreadableFile.

    ``counts`` are those of each class or label by split.
    """
    statistics = Statistics(
        content_hash=manifest.content_hash,
        splits={
            name: SplitStatistics(split.count, split.bytes, dict(counts.get(name, {})))
            for name, split in manifest.splits.items()
        },
        image=ImageFormat(
            manifest.width,
            manifest.height,
            manifest.channels,
            manifest.encoding,
            manifest.resize_mode,
            manifest.mean_pixel,
        ),
        target=TargetStatistics(manifest.target.names, manifest.target.mean, manifest.target.std),
        skipped=manifest.skipped,
    )
    try:
        result = health.load(job_folder, manifest)
    except MissingFile:
        return statistics
    rows = {split: health.load_statistics(job_folder, manifest, split) for split in manifest.splits}
    statistics.images = {split: _images(split_rows) for split, split_rows in rows.items()}
    statistics.findings, statistics.histograms = result.findings, result.histograms
    return statistics


def _images(rows: NDArray[Any]) -> ImageStatistics:
    sources = rows[rows["width"] > 0]
    modes = np.bincount(rows["mode"], minlength=len(MODES))[: len(MODES)].tolist()
    return ImageStatistics(
        brightness=_distribution(rows["brightness"]),
        contrast=_distribution(rows["contrast"]),
        source_width=_distribution(sources["width"]),
        source_height=_distribution(sources["height"]),
        source_modes={name or "unknown": count for name, count in zip(MODES, modes, strict=True) if count},
    )


def _distribution(values: NDArray[Any]) -> Distribution | None:
    if not len(values):
        return None
    exact = values.astype(np.float64)
    return Distribution(
        min=float(exact.min()),
        max=float(exact.max()),
        mean=float(exact.mean()),
        median=float(np.median(exact)),
        std=float(exact.std()),
    )
