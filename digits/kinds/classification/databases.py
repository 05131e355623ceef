"""Labeled images in Caffe and DIGITS 4–6 databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from sys import intern

import numpy as np
from numpy.typing import NDArray

from digits.data.databases.caffe import Entry, Shape, read_mean
from digits.data.databases.folders import LABELS_FILE, Database, find_job, open_database
from digits.data.sources.causes import Causes
from digits.data.sources.class_names import read_names
from digits.data.sources.plan import Plan, Progress, SplitPlan, UnusableSource, count_of, show
from digits.data.tables.tables import SourceNotes
from digits.kinds.classification.listing import plan_listings
from digits.kinds.classification.recipe import CreateClassification, Databases

PROGRESS_RECORDS = 5000
MAX_FAULTS = 1000


@dataclass
class OpenDatabases:
    """The databases of a source by split, and the names of the classes, if they are known.

    ``job`` is whether they are those of a dataset job of DIGITS.
    """

    databases: dict[str, Database] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    mean: NDArray[np.float32] | None = None
    job: bool = False

    def close(self) -> None:
        """Close the databases."""
        for database in self.databases.values():
            database.close()


def find(source: Databases) -> OpenDatabases:
    """Open the databases of ``source``; raises UnusableSource."""
    root = Path(source.folder)
    job = find_job(root)
    opened = OpenDatabases(job=job is not None)
    labels = Path(source.labels) if source.labels else None
    if job is not None:
        if job.targets:
            raise UnusableSource(
                f"{show(source.folder)} is a generic dataset: its labels are arrays instead of classes.",
                "If the labels are numbers, create a regression dataset from it.",
            )
        if job.labels is None and labels is None:
            raise UnusableSource(
                f"{show(source.folder)} has no {LABELS_FILE}.",
                "Copy it from the job folder, or choose a file with the class names.",
            )
        labels = labels or job.labels
        opened.databases = {name: open_database(path, root) for name, path in job.images.items()}
        opened.mean = read_mean(job.mean, root) if job.mean is not None else None
    else:
        opened.databases["train"] = open_database(root)
    for name, path in (("val", source.val), ("test", source.test)):
        if path:
            opened.databases[name] = open_database(Path(path))
    if labels is not None:
        opened.names = read_names(labels)
    for name, database in opened.databases.items():
        if not database.count:
            raise UnusableSource(f"The database {database.describe()} is empty.", f"It has no {name} images.")
    return opened


class Checks:
    """Finds faults of records: labels out of range, and raw images of different shapes, also between splits."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._place = ""
        self.shape: Shape | None = None

    def fault(self, entry: Entry, place: str) -> str:
        """Return the fault of a record in the database ``place``, or an empty string."""
        if entry.fault:
            return entry.fault
        if entry.label < 0 or (self._names and entry.label >= len(self._names)):
            reason = f"not between 0 and {len(self._names) - 1}" if self._names else "negative"
            return f"the label {entry.label:g} is {reason}"
        if entry.encoding in ("raw pixels", "numbers"):
            if self.shape is None:
                self.shape, self._place = entry.shape, place
            elif entry.shape != self.shape:
                where = "" if place == self._place else f" in {self._place}"
                return f"its shape is {entry.shape}, unlike {self.shape}{where}"
        return ""

    def class_name(self, label: float) -> str:
        return self._names[int(label)] if self._names else str(int(label))


def plan(recipe: CreateClassification, source: Databases, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe`` from ``source``; raises UnusableSource."""
    opened = find(source)
    checks = Checks(opened.names)
    splits = {name: _collect(database, checks, progress) for name, database in opened.databases.items()}
    what = "A DIGITS dataset" if opened.job else "Databases" if len(splits) > 1 else "A database"
    total = count_of(sum(map(len, splits.values())), "image")
    classes = count_of(len(opened.names or set(splits["train"].targets)), "class")
    progress.say(f"{what} with {total} in {classes}.")
    if opened.mean is not None:
        progress.say("The mean image is recomputed and compared with mean.binaryproto.")
    if opened.mean is not None and checks.shape is not None:
        check_mean(opened.mean, checks.shape)
    # Databases are read in order.
    made = plan_listings(splits, opened.names, recipe, SourceNotes(), is_shuffled=False)
    if set(made.splits) == set(splits):  # otherwise it belongs to different images
        made.known_mean = opened.mean
    return made


def check_mean(mean: NDArray[np.float32], shape: Shape) -> None:
    """Raise UnusableSource if the shape of a mean image differs from the records' ``shape``."""
    height, width, channels = mean.shape
    own = Shape(width, height, channels)
    if own != shape:
        raise UnusableSource(
            f"The mean image in mean.binaryproto has shape {own}, but the records have shape {shape}.",
            "Remove the file if it belongs to other images; the mean image is recomputed anyway.",
        )


def _collect(database: Database, checks: Checks, progress: Progress) -> SplitPlan:
    place = database.describe()
    split = SplitPlan(database, source=place)
    faults = Causes()
    for number, entry in enumerate(database.entries()):
        if not number % PROGRESS_RECORDS:
            progress.reading(f"Reading {place}: {number:,} of {count_of(database.count, 'record')}")
        fault = checks.fault(entry, place)
        if fault:
            faults.add(show(entry.name), fault)
            if faults.count == MAX_FAULTS:
                break
            continue
        split.files.append(entry.name)
        split.targets.append(intern(checks.class_name(entry.label)))
    if faults.count:
        at_least = "At least " if faults.count == MAX_FAULTS else ""
        raise UnusableSource(
            f"{at_least}{count_of(faults.count, 'record')} of {place} cannot be used: {faults.describe()}.",
            "Choose the labels file and the database of the same dataset, or recreate the database.",
        )
    return split
