"""Dataset statistics: record counts per split, and properties of images and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from digits.core.files import MissingFile
from digits.data import health
from digits.data.image_statistics import MODES
from digits.data.manifest import Manifest

_MEASURES = ("brightness", "contrast")
_SIZES = ("width", "height")


def summarize(
    job_folder: Path, manifest: Manifest, counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return the statistics of a dataset as JSON; raises UnreadableFile.

    ``counts`` are those of each class or label by split. The properties of the images are null until the health check
    has examined them.
    """
    return {
        "content_hash": manifest.content_hash,
        "splits": {
            name: {"count": split.count, "bytes": split.bytes, "counts": dict(counts.get(name, {}))}
            for name, split in manifest.splits.items()
        },
        "image": {
            "width": manifest.width,
            "height": manifest.height,
            "channels": manifest.channels,
            "encoding": manifest.encoding,
            "resize_mode": manifest.resize_mode,
            "mean_pixel": manifest.mean_pixel,
        },
        "target": {
            "names": manifest.target.names,
            "mean": manifest.target.mean,
            "std": manifest.target.std,
        },
        "skipped": manifest.skipped,
        **_checked(job_folder, manifest),
    }


def _checked(job_folder: Path, manifest: Manifest) -> dict[str, Any]:
    try:
        result = health.load(job_folder, manifest)
    except MissingFile:
        return {"images": None, "findings": None, "histograms": None}
    rows = {split: health.load_statistics(job_folder, manifest, split) for split in manifest.splits}
    return {
        "images": {split: _images(found) for split, found in rows.items()},
        "findings": msgspec.to_builtins(result.findings),
        "histograms": msgspec.to_builtins(result.histograms),
    }


def _images(rows: NDArray[Any]) -> dict[str, Any]:
    """Return the statistics of the images of a split; those of the sources without the ones whose size is not known."""
    sources = rows[rows["width"] > 0]
    modes = np.bincount(rows["mode"], minlength=len(MODES))[: len(MODES)].tolist()
    return {
        **{name: _distribution(rows[name]) for name in _MEASURES},
        **{f"source_{name}": _distribution(sources[name]) for name in _SIZES},
        "source_modes": {name or "unknown": count for name, count in zip(MODES, modes, strict=True) if count},
    }


def _distribution(values: NDArray[Any]) -> dict[str, float] | None:
    if not len(values):
        return None
    exact = values.astype(np.float64)
    return {
        "min": float(exact.min()),
        "max": float(exact.max()),
        "mean": float(exact.mean()),
        "median": float(np.median(exact)),
        "std": float(exact.std()),
    }
