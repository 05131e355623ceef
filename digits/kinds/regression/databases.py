"""Images and numbers in generic datasets of DIGITS 4 to 6: a database of images and one of labels per split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from digits.data.databases import Database, find_job, open_arrays
from digits.data.databases import is_database as has_database
from digits.data.sources import Progress, UnusableSource, count_of, show
from digits.data.tables import Table
from digits.kinds.regression.recipe import MAX_TARGETS

PROGRESS_RECORDS = 5000


@dataclass
class Split:
    """The images of a split, and their numbers."""

    images: Database
    table: Table


class Paths(NamedTuple):
    """The databases of the images and of the numbers of a split. Links are not followed ``below`` a job folder."""

    images: Path
    numbers: Path
    below: Path | None = None

    @property
    def place(self) -> str:
        """The path of both, or that of the numbers, for messages."""
        return show(str(self.numbers.parent if self.below else self.numbers))


def is_database(path: Path) -> bool:
    """Return whether ``path`` is the folder of a DIGITS job or a database, not a table."""
    return find_job(path) is not None or has_database(path)


def find(sources: Iterable[tuple[str, str, str]]) -> dict[str, Paths]:
    """Return the databases in ``sources``, which are a split, a table and a folder each, by split.

    The table of the training split is the folder of a generic dataset. Otherwise, tables are the databases of numbers,
    and folders those of images. Raises UnusableSource.
    """
    found: dict[str, Paths] = {}
    for split, table, folder in sources:
        root = Path(table)
        job = find_job(root)
        if split == "train" and job is not None and set(job.targets) == set(job.images):
            found |= {name: Paths(path, job.targets[name], root) for name, path in job.images.items()}
        elif has_database(root) and has_database(Path(folder)) and root != Path(folder):
            found[split] = Paths(Path(folder), root)
        else:
            raise UnusableSource(
                f"{show(table)} is not a generic DIGITS dataset.",
                "Enter a job folder that contains train_db/features and train_db/labels, or the database of the "
                "labels, and as the image folder that of the images.",
            )
    return found


def open_images(found: Mapping[str, Paths]) -> dict[str, Database]:
    """Open the databases of images by split; raises UnusableSource."""
    return {name: open_arrays(paths.images, paths.below) for name, paths in found.items()}


def read(sources: Iterable[tuple[str, str, str]], progress: Progress) -> dict[str, Split]:
    """Read the numbers of all splits of the databases in ``sources``; see `find`. Raises UnusableSource."""
    found = find(sources)
    splits: dict[str, Split] = {}
    for name, images in open_images(found).items():
        progress.reading(f"Reading {found[name].place}: {count_of(images.count, 'record')}")
        splits[name] = Split(images, _table(images, found[name]))
    return splits


def _table(images: Database, paths: Paths) -> Table:
    place = paths.place
    targets = open_arrays(paths.numbers, paths.below)
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


def first_values(paths: Paths, limit: int) -> Iterator[list[float]]:
    """Yield the numbers of the first records; raises UnusableSource."""
    for number, (_, values) in enumerate(open_arrays(paths.numbers, paths.below).vectors()):
        if number == limit:
            break
        yield values
