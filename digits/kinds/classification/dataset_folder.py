"""Recognize the folders that the Hugging Face library ``datasets`` loads, and list their images.

See https://huggingface.co/docs/datasets/image_dataset. A folder contains Parquet files, or images with a file
``metadata.csv`` or ``metadata.jsonl``, or a folder of images per class: directly, or in folders named after
the splits. The split of a Parquet file is the first word of its name, such as ``train-00000-of-00002.parquet``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.data import parquet
from digits.data.manifest import SPLITS
from digits.data.sources import UnusableSource, listed, show
from digits.data.tables import Faults, Row
from digits.kinds.classification.listing import Listing, OpenTable, collect, json_rows, sort_labels
from digits.kinds.classification.recipe import DatasetFolder, ListedSplit, Tables
from digits.kinds.source_summary import SPLIT_NAMES

METADATA = ("metadata.csv", "metadata.jsonl")
_SPLITS = {name: split for split, names in SPLIT_NAMES.items() for name in names}


@dataclass
class Contents:
    """The folders of the splits, and their metadata or Parquet files."""

    root: Path
    folders: dict[str, Path] = field(default_factory=dict)
    metadata: dict[str, Path] = field(default_factory=dict)
    parquet: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def has_class_folders(self) -> bool:
        return not self.parquet and not self.metadata

    def describe(self) -> str:
        """Return a description of the layout."""
        if self.parquet:
            return "Parquet files"
        return (
            f"Images with {next(iter(self.metadata.values())).name}"
            if self.metadata
            else "A folder per class"
        )


def find(root: Path) -> Contents:
    """Return the contents of the folder ``root``; raises UnusableSource if there are no training images."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        named = {_SPLITS[path.name.lower()]: path for path in folders if path.name.lower() in _SPLITS}
        found = Contents(root, named if "train" in named else {"train": root})
        places = [root, root / "data", *(path for path in folders if path.name != "data")]
        for path in (path for place in places for path in sorted(place.glob("*.parquet")) if path.is_file()):
            found.parquet.setdefault(_split_of(path), []).append(path)
        for split, folder in found.folders.items():
            for name in METADATA:
                if (folder / name).is_file():
                    found.metadata.setdefault(split, folder / name)
    except OSError as error:
        raise UnusableSource(f"The folder {show(str(root))} cannot be read: {error.strerror}.") from error
    if found.parquet and "train" not in found.parquet:
        names = listed(path.name for paths in found.parquet.values() for path in paths)
        raise UnusableSource(f"None of the Parquet files is for training: {names}.")
    if found.metadata:
        without = [name for name in found.folders if name not in found.metadata]
        if without:
            raise UnusableSource(
                f"{show(str(found.folders[without[0]]))} has no {METADATA[0]} or {METADATA[1]}, unlike other splits."
            )
    return found


def read(
    contents: Contents, source: DatasetFolder, max_unusable_percent: float
) -> tuple[dict[str, Listing], list[str] | None]:
    """Return the images of each split of Parquet or metadata files, and the class names if they are known.

    Raises UnusableSource.
    """
    if contents.parquet:
        return _read_parquet(contents, source, max_unusable_percent)
    found: dict[str, Listing] = {}
    known: set[str] | None = None
    for name in sorted(contents.folders, key=SPLITS.index):  # train first
        path = contents.metadata[name]
        split = ListedSplit(file=str(path), folder=str(path.parent))
        faults = Faults(path, max_unusable_percent, name)
        found[name] = collect(metadata_rows(path, source), split, faults, known)
        known = known or set(found["train"].labels)
    return found, None


def metadata_rows(path: Path, source: DatasetFolder) -> Iterator[Row[str]]:
    """Yield the images and labels of a metadata file; raises UnusableSource."""
    if path.suffix == ".jsonl":
        return json_rows(path, path.parent, source.label_column)
    settings = Tables(
        train=ListedSplit(file=str(path), folder=str(path.parent)),
        image_column=source.image_column or "file_name",
        label_column=source.label_column,
        header="yes",
    )
    return OpenTable.open(path, settings).rows(path.parent)


def _read_parquet(
    contents: Contents, source: DatasetFolder, max_unusable_percent: float
) -> tuple[dict[str, Listing], list[str] | None]:
    first = contents.parquet["train"][0]
    columns = parquet.find_columns(first, source.image_column, source.label_column)
    found: dict[str, Listing] = {}
    for name, paths in contents.parquet.items():
        images = parquet.ParquetImages(contents.root, columns.image)
        split = Listing(images, f"{contents.root} ({', '.join(path.name for path in paths[:3])})")
        for path in paths:
            below = path.relative_to(contents.root)
            own = parquet.find_columns(path, columns.image, columns.label)
            faults = Faults(path, max_unusable_percent, name, "row")
            before = len(split.files)
            for row, (label, fault) in enumerate(parquet.labels(path, own)):
                if label is None:
                    faults.add(row + 1, fault)
                    continue
                split.files.append(f"{below}:{row}")
                split.labels.append(label)
            if faults.count or len(split.files) > before:  # a shard can be empty
                faults.check(len(split.files) - before)
                split.unusable += faults.unusable
        if not split.files:
            raise UnusableSource(f"The Parquet files for {name} have no rows.")
        found[name] = split
    names = list(columns.classes) or sort_labels(set(found["train"].labels))
    for name, split in found.items():
        unknown = set(split.labels) - set(names)
        if unknown:
            raise UnusableSource(
                f"The {name} images have labels that no training image has: {listed(sorted(unknown))}."
            )
    return found, names


def _split_of(path: Path) -> str:
    word = re.split(r"[-_.]", path.name.lower())[0]
    folder = path.parent.name.lower()
    return _SPLITS.get(word) or _SPLITS.get(folder, "train")
