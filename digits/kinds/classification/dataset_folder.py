"""Read the labels of the images in folders that the Hugging Face library ``datasets`` loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from digits.data import parquet
from digits.data.class_names import sort_labels
from digits.data.dataset_folder import Contents
from digits.data.image_lists import need_an_image
from digits.data.sources import UnusableSource, listed
from digits.data.tables import Faults, Row
from digits.kinds.classification.listing import Listing, OpenTable, collect, json_rows
from digits.kinds.classification.recipe import DatasetFolder, ListedSplit, Tables


def read(
    contents: Contents, source: DatasetFolder, max_unusable_percent: float
) -> tuple[dict[str, Listing], list[str] | None]:
    """Return the images of each split of the tables, and the class names if they are known.

    Raises UnusableSource.
    """
    if contents.is_parquet:
        return _read_parquet(contents, source, max_unusable_percent)
    found: dict[str, Listing] = {}
    known: set[str] | None = None
    for name, (path, *_) in contents.tables.items():
        split = ListedSplit(file=str(path), folder=str(path.parent))
        faults = Faults(path, max_unusable_percent, name)
        found[name] = collect(metadata_rows(path, source), split, faults, known)
        known = known or set(found["train"].labels)
    return found, None


def need_images(contents: Contents, source: DatasetFolder) -> None:
    """Raise UnusableSource if there are no training images, without examining all files."""
    paths = contents.tables.get("train", [])
    if contents.is_parquet:
        is_empty = not any(map(parquet.count_rows, paths))
    elif paths:
        is_empty = next(metadata_rows(paths[0], source), None) is None
    else:
        need_an_image(contents.folders["train"])
        return
    if is_empty:
        raise UnusableSource(f"{listed(path.name for path in paths)} has no rows.")


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
    first = contents.tables["train"][0]
    columns = parquet.find_columns(first, source.image_column, source.label_column)
    found: dict[str, Listing] = {}
    for name, paths in contents.tables.items():
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
