"""Images and numbers in generic datasets of DIGITS 4 to 6: a database of images and one of labels per split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from digits.data.databases.folders import Database, find_job, open_arrays
from digits.data.databases.folders import is_database as has_database
from digits.data.sources.plan import Progress, SplitPlan, UnusableSource, count_of, show
from digits.kinds.regression.recipe import MAX_TARGETS
from digits.kinds.sources.tables import need_same_columns

PROGRESS_RECORDS = 5000


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
    """Return the databases by split. Each of the ``sources`` consists of a split, a table and a folder.

    The table of the training split is the folder of a generic dataset. Otherwise, tables are the databases of numbers,
    and folders those of images. Raises UnusableSource.
    """
    paths: dict[str, Paths] = {}
    for split, table, folder in sources:
        root = Path(table)
        job = find_job(root)
        if split == "train" and job is not None and set(job.targets) == set(job.images):
            paths |= {name: Paths(path, job.targets[name], root) for name, path in job.images.items()}
        elif has_database(root) and has_database(Path(folder)) and root != Path(folder):
            paths[split] = Paths(Path(folder), root)
        else:
            raise UnusableSource(
                f"{show(table)} is not a generic DIGITS dataset.",
                "Enter a job folder that contains train_db/features and train_db/labels. Or enter the database of the "
                "labels here, and that of the images as the image folder.",
            )
    return paths


def open_images(paths_of: Mapping[str, Paths]) -> dict[str, Database]:
    """Open the databases of images by split; raises UnusableSource."""
    return {name: open_arrays(paths.images, paths.below) for name, paths in paths_of.items()}


def read(sources: Iterable[tuple[str, str, str]], progress: Progress) -> dict[str, SplitPlan]:
    """Return the images of all splits of the databases in ``sources``, with their numbers as targets; see `find`.

    Raises UnusableSource.
    """
    paths = find(sources)
    splits: dict[str, SplitPlan] = {}
    opened = open_images(paths)
    counts = ", ".join(f"{name} {images.count:,}" for name, images in opened.items())
    total = count_of(sum(images.count for images in opened.values()), "image")
    progress.say(f"A generic DIGITS dataset with {total}: {counts}.")
    for name, images in opened.items():
        progress.reading(f"Reading {paths[name].place}: {count_of(images.count, 'record')}")
        splits[name] = split = _plan(images, paths[name])
        own, train = (column_names(len(each.targets[0])) for each in (split, splits["train"]))
        need_same_columns(name, own, train)
    return splits


def _plan(images: Database, paths: Paths) -> SplitPlan:
    place = paths.place
    targets = open_arrays(paths.numbers, paths.below)
    if not images.count or images.count != targets.count:
        raise UnusableSource(
            f"{place} has {count_of(images.count, 'image')}, but {targets.count:,} labels.",
            "Both databases must contain the same keys.",
        )
    split = SplitPlan(images, source=images.describe())
    for entry, (name, values) in zip(images.entries(), targets.vectors(), strict=True):
        width = len(split.targets[0]) if split.targets else len(values)
        fault = _fault(entry.name, entry.fault, name, values, width)
        if fault:
            raise UnusableSource(f"The record {show(entry.name)} of {place} cannot be used: {fault}.")
        split.files.append(name)
        split.targets.append(values)
    return split


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
