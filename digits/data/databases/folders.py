"""Find and open databases of Caffe and DIGITS 4–6, and the folders of DIGITS dataset jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from digits.core.splits import SPLITS
from digits.data.databases.caffe import Entry
from digits.data.databases.hdf5_images import HDF5_ENDINGS, LIST_FILE, Hdf5Arrays, Hdf5Images, is_hdf5
from digits.data.databases.lmdb_images import DATA_FILE, LMDB_ENDINGS, LmdbImages, is_lmdb
from digits.data.sources.plan import ImageSource, UnusableSource, show

LABELS_FILE = "labels.txt"
MEAN_FILE = "mean.binaryproto"
FEATURES, LABELS = "features", "labels"


class Database(ImageSource, Protocol):
    """The images of a database, with a label each; ``format`` is the name of its file format."""

    format: str

    @property
    def count(self) -> int:
        """The number of records."""

    def entries(self) -> Iterator[Entry]:
        """Yield the records in order; raises UnusableSource."""

    def close(self) -> None:
        """Close the files."""


class ArrayDatabase(Database, Protocol):
    """A database of images or of numbers; the names are those of the same records in another one."""

    def names(self) -> list[str]:
        """Return the names of all records; raises UnusableSource."""

    def vectors(self) -> Iterator[tuple[str, list[float]]]:
        """Yield the name and the values of each record; raises UnusableSource."""


def open_database(path: Path, below: Path | None = None) -> Database:
    """Open an LMDB or HDF5 database of images with a class each, a folder or a file; raises UnusableSource.

    Links are not followed: below the folder ``below``, if it is given, which contains ``path``.
    """
    return Hdf5Images(path, below) if _format_of(path) == "HDF5" else LmdbImages(path, below)


def open_arrays(path: Path, below: Path | None = None) -> ArrayDatabase:
    """Open one of the two databases of a generic dataset, like `open_database`: that of the images, or of the labels.

    Labels are images or numbers. HDF5 files need no ``label``.
    """
    return Hdf5Arrays(path, below) if _format_of(path) == "HDF5" else LmdbImages(path, below)


def is_database(folder: Path) -> bool:
    """Return whether ``folder`` contains a database, rather than image files."""
    return is_lmdb(folder) or is_hdf5(folder)


def is_database_file(path: Path) -> bool:
    """Return whether the file ``path`` has the name of a database."""
    return path.suffix.lower() in (*LMDB_ENDINGS, *HDF5_ENDINGS)


def _format_of(path: Path) -> str:
    try:
        names = set(os.listdir(path)) if path.is_dir() else {path.name}
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    if DATA_FILE in names or (path.suffix.lower() in LMDB_ENDINGS and not path.is_dir()):
        return "LMDB"
    if (LIST_FILE in names and path.is_dir()) or any(name.lower().endswith(HDF5_ENDINGS) for name in names):
        return "HDF5"
    raise UnusableSource(
        f"{show(str(path))} is not a database.",
        f"Enter a folder that contains {DATA_FILE} (LMDB) or .h5 files (HDF5).",
    )


@dataclass
class JobFolder:
    """The folder of a dataset job of DIGITS 4 to 6.

    ``images`` are the databases of the splits. In a generic dataset, ``targets`` are those with the labels.
    """

    root: Path
    images: dict[str, Path] = field(default_factory=dict)
    targets: dict[str, Path] = field(default_factory=dict)
    labels: Path | None = None
    mean: Path | None = None


def find_job(root: Path) -> JobFolder | None:
    """Return the contents of a dataset job folder, or None if the folder is not a dataset job."""
    if not (root / "train_db").is_dir():
        return None
    job = JobFolder(root)
    for split in SPLITS:
        folder = root / f"{split}_db"
        if (folder / FEATURES).is_dir():
            job.images[split] = folder / FEATURES
            if (folder / LABELS).is_dir():
                job.targets[split] = folder / LABELS
        elif folder.is_dir():
            job.images[split] = folder
    means = (root / MEAN_FILE, root / "train_db" / MEAN_FILE)
    job.mean = next((path for path in means if path.is_file()), None)
    job.labels = root / LABELS_FILE if (root / LABELS_FILE).is_file() else None
    return job
