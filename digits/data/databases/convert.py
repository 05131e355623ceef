"""Convert databases of Caffe and DIGITS 4 to 6 to TFRecord files, which the readers of all kinds of datasets read.

The features of a record are `IMAGE`, an image file, and those of its labels: `LABEL`, one integer or some numbers;
`TARGET`, another image file; or `EDGES`, `CLASSES` and `IGNORED` of objects, with a value for each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.databases.hdf5 import HDF5_ENDINGS, Hdf5Database
from digits.data.databases.lmdb_file import DATA_FILE, LMDB_ENDINGS, LmdbDatabase
from digits.data.databases.stored import Stored
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.records.records import Features, serialize, write_frame
from digits.data.sources.plan import Progress, Unusable, UnusableSource, count_of, show

LABELS_FILE = "labels.txt"
FEATURES, LABELS = "features", "labels"
PROGRESS_RECORDS = 1000

IMAGE, LABEL, TARGET = "image", "label", "target"
EDGES = ("xmin", "ymin", "xmax", "ymax")
CLASSES, IGNORED = "class", "image/object/is_crowd"
DONT_CARE = "dontcare"
# The number of values in a row of DetectNet: x, y, width, height, alpha, class, and others.
COLUMNS = 16
_CLASS_COLUMN = 5
# HDF5 databases consist of files with this ending and a list of them.
_SEEN_NAMES = 10

# What the labels are: a class in the database of the images, or the records of another database. With "any image",
# images are their own targets if there is none.
Labels = Literal["class", "numbers", "image", "any image", "boxes"]


class Database(Protocol):
    """An LMDB or HDF5 database; ``format`` is the name of its format, and ``count`` the number of its records."""

    format: str
    path: Path
    count: int

    def records(self) -> Iterator[Stored]:
        """Yield the records in order; raises UnusableSource."""


def format_of(path: Path) -> str:
    """Return the format of the database ``path``, a folder or a file; empty if it is none. Raises OSError."""
    if (path / DATA_FILE).is_file() or path.suffix.lower() in LMDB_ENDINGS:
        return LmdbDatabase.format
    names = [path.name]
    if path.is_dir():
        with os.scandir(path) as entries:
            names = [entry.name for entry in islice(entries, _SEEN_NAMES)]
    return Hdf5Database.format if any(name.lower().endswith(HDF5_ENDINGS) for name in names) else ""


def is_job(folder: Path) -> bool:
    """Return whether ``folder`` is that of a dataset job of DIGITS 4 to 6."""
    return (folder / "train_db").is_dir()


def open_database(path: Path, below: Path | None = None) -> Database:
    """Open a database; raises UnusableSource. Links below the folder ``below`` are not followed."""
    try:
        found = format_of(path)
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    if not found:
        raise UnusableSource(
            f"{show(str(path))} is not a database.",
            f"Enter a folder that contains {DATA_FILE} (LMDB) or .h5 files (HDF5).",
        )
    return Hdf5Database(path, below) if found == Hdf5Database.format else LmdbDatabase(path, below)


class OldDataset(Struct, kw_only=True, frozen=True):
    """A dataset of DIGITS 4 to 6: the folder of its job ``train``, or LMDB or HDF5 databases.

    ``train``, ``val`` and ``test`` are databases of images, and ``targets`` and so on those of their labels; without
    the latter, each can be a folder that contains both as ``features`` and ``labels``. ``labels`` is a file with the
    names of the classes, by default that of the job.
    """

    train: str
    val: str = ""
    test: str = ""
    targets: str = ""
    val_targets: str = ""
    test_targets: str = ""
    labels: str = ""

    def databases(self, labels: Labels) -> dict[str, tuple[Database, Database | None]]:
        """Open the databases of the images and of their labels by split; raises UnusableSource."""
        root = Path(self.train)
        places = {"train": root, "val": Path(self.val), "test": Path(self.test)}
        paths: dict[str, tuple[Path, Path | None]] = {
            split: (path, None) for split, path in places.items() if getattr(self, split)
        }
        if is_job(root):
            folders = {split: root / f"{split}_db" for split in SPLITS}
            del paths["train"]
            paths = {split: (path, root) for split, path in folders.items() if path.is_dir()} | paths
        targets = {"train": self.targets, "val": self.val_targets, "test": self.test_targets}
        return {
            split: self._open(path, Path(targets[split]) if targets[split] else None, below, labels)
            for split, (path, below) in paths.items()
        }

    def _open(
        self, path: Path, targets: Path | None, below: Path | None, labels: Labels
    ) -> tuple[Database, Database | None]:
        place = show(str(path))
        if (path / FEATURES).is_dir():
            both = (path / LABELS).is_dir()
            path, targets = path / FEATURES, path / LABELS if both else targets
        if labels == "class" and targets:
            raise UnusableSource(
                f"{place} is a generic dataset: its labels are in another database.",
                "If the labels are numbers, create a regression dataset from it.",
            )
        if labels not in ("class", "any image") and not targets:
            raise UnusableSource(
                f"{place} has no database of labels.",
                "Enter it, or create a dataset for classification if the images have classes.",
            )
        images = open_database(path, below)
        if not images.count:
            raise UnusableSource(f"The database {show(str(path))} is empty.")
        return images, None if targets is None else open_database(targets, below)

    def class_names(self) -> str:
        """Return the path of the file with the names of the classes; empty if they are numbers.

        Raises UnusableSource if a job has none.
        """
        root = Path(self.train)
        if self.labels or not is_job(root):
            return self.labels
        if not (root / LABELS_FILE).is_file():
            raise UnusableSource(
                f"{show(self.train)} has no {LABELS_FILE}.",
                "Copy it from the job folder, or choose a file with the class names.",
            )
        return str(root / LABELS_FILE)


@dataclass
class ConvertedSplit:
    """The TFRecord file ``path`` of a split.

    The database at ``source`` has ``count`` records, of which ``read`` were read: images of some ``sizes`` (width,
    height) and ``encodings``.
    """

    path: Path
    source: Path
    format: str
    count: int
    read: int = 0
    sizes: list[tuple[int, int]] = field(default_factory=list)
    encodings: Counter[str] = field(default_factory=Counter)

    def row(self, split: str) -> list[str]:
        """Return a row of a table for the form: split, format, number of records, size and encoding of the images."""
        sizes = (
            [f"{width}×{height}" for width, height in (min(self.sizes), max(self.sizes))]
            if self.sizes
            else ["–"]
        )
        encodings = " and ".join(name for name, _ in self.encodings.most_common(3))
        return [
            SPLIT_TITLES[split],
            self.format,
            f"{self.count:,}",
            " to ".join(dict.fromkeys(sizes)),
            encodings,
        ]


HEAD = ["Database", "Format", "Records", "Image size", "Encoding"]


@dataclass
class Converted:
    """A converted dataset. ``unusable`` are the records that were skipped, and ``warnings`` are about the others."""

    splits: dict[str, ConvertedSplit] = field(default_factory=dict)
    unusable: list[Unusable] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def show(self, text: str) -> str:
        """Return ``text`` with the paths of the databases instead of those of the TFRecord files."""
        for split in self.splits.values():
            text = text.replace(str(split.path), str(split.source)).replace(
                split.path.name, split.source.name
            )
        return text


def convert(
    dataset: OldDataset,
    labels: Labels,
    folder: Path,
    progress: Progress,
    *,
    classes: Sequence[str] = (),
    limit: int | None = None,
) -> Converted:
    """Write the records of ``dataset`` to a TFRecord file for each split in ``folder``; raises UnusableSource.

    ``classes`` are the names of the classes of boxes by number. Of each database, at most ``limit`` records are read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    converted = Converted()
    for name, (database, targets) in dataset.databases(labels).items():
        place = show(str(database.path))
        split = ConvertedSplit(folder / f"{name}.tfrecord", database.path, database.format, database.count)
        converted.splits[name] = split
        with open(split.path, "wb") as file:
            for stored, target in _pairs(database, targets, converted, name):
                if split.read == limit:
                    break
                if not split.read % PROGRESS_RECORDS:
                    progress.reading(
                        f"Converting {place}: {split.read:,} of {count_of(split.count, 'record')}"
                    )
                split.read += 1
                try:
                    image = stored.image()
                    own = _features(stored if target is None else target, labels, classes)
                except ValueError as error:
                    converted.unusable.append(Unusable(f"{place}/{show(stored.name)}", str(error), name))
                    continue
                split.encodings[stored.encoding] += 1
                if limit is not None and (size := _size(image)):
                    split.sizes.append(size)
                write_frame(file, serialize({IMAGE: [image], **own}))
        progress.is_partial |= split.read < split.count and split.read == limit
        if not split.encodings and converted.unusable:
            first = converted.unusable[-1]
            raise UnusableSource(f"No record of {place} can be used: {first.reason} ({first.path}).")
    return converted


def _pairs(
    database: Database, targets: Database | None, converted: Converted, split: str
) -> Iterator[tuple[Stored, Stored | None]]:
    """Yield the records of a database, with those of the same names in ``targets`` if there are any.

    Both are sorted by name. Records that are in one of them only are added to ``converted``.
    """
    if targets is None:
        yield from ((stored, None) for stored in database.records())
        return
    place = show(str(database.path))
    others, without_image = targets.records(), 0
    target = next(others, None)
    for stored in database.records():
        while target is not None and os.fsencode(target.name) < os.fsencode(stored.name):
            without_image += 1
            target = next(others, None)
        if target is None or target.name != stored.name:
            reason = "it has no label with the same key"
            converted.unusable.append(Unusable(f"{place}/{show(stored.name)}", reason, split))
            continue
        yield stored, target
        target = next(others, None)
    without_image += sum(1 for _ in others) + (target is not None)
    if without_image:
        what = count_of(without_image, "label")
        converted.warnings.append(f"{what} in {show(str(targets.path))} belong to no image: not used.")


def _size(image: bytes) -> tuple[int, int] | None:
    try:
        return images.header(image)[1]
    except UnusableImage:
        return None


def _features(stored: Stored, labels: Labels, classes: Sequence[str]) -> Features:
    """Return the features of the labels in a record; raises ValueError with a message."""
    if labels == "class":
        if stored.label < 0:
            raise ValueError("it has no label, or a negative one")
        return {LABEL: [int(stored.label)]}
    if labels in ("image", "any image"):
        return {TARGET: [stored.image()]}
    numbers = stored.numbers()
    return {LABEL: numbers} if labels == "numbers" else _boxes(numbers, classes)


def _boxes(values: Sequence[float], classes: Sequence[str]) -> Features:
    """Return the objects in the array of DetectNet; raises ValueError.

    It is [objects + 1, `COLUMNS`]. The first row contains the number of objects and the number of columns, and further
    rows are empty. Boxes are in pixels.
    """
    count = int(values[0]) if len(values) >= COLUMNS and 0 <= values[0] < len(values) else -1
    is_complete = values[1:2] == [COLUMNS] and not len(values) % COLUMNS
    if not is_complete or count != values[0] or (count + 1) * COLUMNS > len(values):
        raise ValueError(f"not an array of objects with {COLUMNS} columns each")
    boxes: dict[str, list[Any]] = {name: [] for name in (*EDGES, CLASSES, IGNORED)}
    for start in range(COLUMNS, (count + 1) * COLUMNS, COLUMNS):
        left, top, width, height = values[start : start + 4]
        number = values[start + _CLASS_COLUMN]
        if number not in range(len(classes)):
            raise ValueError(
                f"object {start // COLUMNS}: the class {number:g} is not between 0 and {len(classes) - 1}"
            )
        name = classes[int(number)]
        is_ignored = name.lower() == DONT_CARE
        row = (
            left,
            top,
            left + width,
            top + height,
            (DONT_CARE if is_ignored else name).encode(),
            int(is_ignored),
        )
        for feature, value in zip(boxes, row, strict=True):
            boxes[feature].append(value)
    return cast(Features, boxes)
