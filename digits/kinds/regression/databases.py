"""Images and numbers in generic datasets of DIGITS 4 to 6: a database of images and one of labels per split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from digits.data.databases import Database, find_job, open_arrays
from digits.data.sources import Progress, UnusableSource, count_of, show
from digits.data.tables import Table
from digits.kinds.regression.recipe import MAX_TARGETS

PROGRESS_RECORDS = 5000


@dataclass
class Split:
    """The images of a split, and their numbers."""

    images: Database
    table: Table


def is_database(path: Path) -> bool:
    """Return whether ``path`` is the folder of a DIGITS job, not a table."""
    return find_job(path) is not None


def open_images(root: Path) -> dict[str, Database]:
    """Open the images of the generic dataset in the folder ``root`` by split; raises UnusableSource."""
    job = find_job(root)
    if job is None or set(job.targets) != set(job.images):
        raise UnusableSource(
            f"{show(str(root))} is not a generic DIGITS dataset.",
            "Enter a job folder that contains train_db/features and train_db/labels.",
        )
    return {name: open_arrays(path, root) for name, path in job.images.items()}


def read(root: Path, progress: Progress) -> dict[str, Split]:
    """Read the numbers of all splits of a generic dataset; raises UnusableSource."""
    found: dict[str, Split] = {}
    for name, images in open_images(root).items():
        path = root / f"{name}_db"
        progress.reading(f"Reading {show(str(path))}: {count_of(images.count, 'record')}")
        found[name] = Split(images, _table(images, path, root))
    return found


def _table(images: Database, path: Path, root: Path) -> Table:
    place = show(str(path))
    targets = open_arrays(path / "labels", root)
    if not images.count or images.count != targets.count:
        raise UnusableSource(
            f"{place} has {count_of(images.count, 'image')}, but {targets.count:,} labels.",
            "Both databases must contain the same keys.",
        )
    names: list[str] = []
    rows: list[list[float]] = []
    for entry, (name, values) in zip(images.entries(), targets.vectors(), strict=True):
        fault = _fault(entry.name, entry.fault, name, values, len(rows[0]) if rows else len(values))
        if fault:
            raise UnusableSource(f"The record {show(entry.name)} of {place} cannot be used: {fault}.")
        names.append(name)
        rows.append(values)
    return Table(column_names(len(rows[0])), names, np.array(rows, np.float64))


def _fault(image: str, fault: str, name: str, values: list[float], width: int) -> str:
    if fault:
        return fault
    if image != name:
        return f"its label has a different key, {show(name)}"
    if len(values) != width:
        return f"it has {count_of(len(values), 'number')}, but the first record has {width:,}"
    if width > MAX_TARGETS:
        return f"it has {width:,} numbers; the limit is {MAX_TARGETS}"
    if not np.isfinite(values).all():
        return "a label is NaN or infinite"
    return ""


def column_names(count: int) -> list[str]:
    """Return names for the numbers of a record, which the databases do not contain."""
    return ["label"] if count == 1 else [f"label {number}" for number in range(1, count + 1)]


def first_values(root: Path, limit: int) -> Iterator[list[float]]:
    """Yield the numbers of the first training records; raises UnusableSource."""
    targets = open_arrays(root / "train_db" / "labels", root)
    for number, (_, values) in enumerate(targets.vectors()):
        if number == limit:
            break
        yield values
