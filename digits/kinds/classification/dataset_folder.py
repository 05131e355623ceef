"""Read the labels of the images in folders that the Hugging Face library ``datasets`` loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from digits.data.images.lists import need_an_image
from digits.data.sources.dataset_folder import Contents
from digits.data.sources.plan import Progress, SplitPlan, UnusableSource, listed
from digits.data.tables import parquet
from digits.data.tables.tables import MAX_HEADER_BYTES, Faults, Row, SourceNotes, has_no_image, open_table
from digits.kinds.classification.listing import by_split, collect, json_rows, open_labels, say_rows
from digits.kinds.classification.recipe import DatasetFolder, ListedSplit, Tables


def read(
    contents: Contents,
    source: DatasetFolder,
    max_unusable_percent: float,
    progress: Progress,
    notes: SourceNotes,
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the images of each split of the tables with their labels, and the class names if they are known.

    Raises UnusableSource.
    """
    if contents.is_parquet:
        return _read_parquet(contents, source, max_unusable_percent, progress, notes)
    splits: dict[str, SplitPlan] = {}
    known: set[str] | None = None
    for name, (path, *_) in contents.tables.items():
        split = ListedSplit(file=str(path), folder=str(path.parent))
        remarks: list[str] = []
        rows = metadata_rows(path, source, remarks)
        for part, own in (by_split(rows, name) if len(contents.tables) == 1 else {name: rows}).items():
            faults = Faults(path, max_unusable_percent, part)
            faults.notes, remarks = remarks, []
            splits[part] = collect(own, split, faults, progress, notes, known)
            if part == "train":
                say_rows(splits[part], faults, "a label each", progress)
        known = known or set(splits["train"].targets)
    return splits, []


def need_images(contents: Contents, source: DatasetFolder) -> None:
    """Raise UnusableSource if there are no training images, without examining all files."""
    paths = contents.tables.get("train", [])
    if contents.is_parquet:
        is_empty = not any(map(parquet.count_rows, paths))
    elif paths:
        is_empty = not open_table(paths[0], has_no_image, MAX_HEADER_BYTES).first_rows(1)
    else:
        need_an_image(contents.folders["train"])
        return
    if is_empty:
        raise UnusableSource(f"{listed(path.name for path in paths)} has no rows.")


def metadata_rows(path: Path, source: DatasetFolder, remarks: list[str]) -> Iterator[Row[str]]:
    """Yield the images and labels of a metadata file, and add to its ``remarks``; raises UnusableSource."""
    if path.suffix == ".jsonl":
        return json_rows(path, path.parent, source.label_column, remarks)
    settings = Tables(
        train=ListedSplit(file=str(path), folder=str(path.parent)),
        image_column=source.image_column or "file_name",
        label_column=source.label_column,
        header="yes",
    )
    opened = open_labels(path, settings, path.parent)
    remarks += opened.table.remarks
    opened.table.remarks = remarks
    return opened.rows


def _read_parquet(
    contents: Contents,
    source: DatasetFolder,
    max_unusable_percent: float,
    progress: Progress,
    notes: SourceNotes,
) -> tuple[dict[str, SplitPlan], list[str]]:
    first = contents.tables["train"][0]
    columns = parquet.find_columns(first, source.image_column, source.label_column)
    progress.say(f"Images: “{columns.image}”. Labels: “{columns.label}”.")
    splits: dict[str, SplitPlan] = {}
    for name, paths in contents.tables.items():
        images = parquet.ParquetImages(contents.root, columns.image)
        files = ", ".join(path.name for path in paths[:3])
        splits[name] = split = SplitPlan(images, source=f"{contents.root} ({files})")
        for path in paths:
            below = path.relative_to(contents.root)
            own = parquet.find_columns(path, columns.image, columns.label)
            faults = Faults(path, max_unusable_percent, name, "row")
            before = len(split)
            for row, (label, fault) in enumerate(progress.take(parquet.labels(path, own))):
                if label is None:
                    faults.add(row + 1, fault)
                    continue
                split.files.append(f"{below}:{row}")
                split.targets.append(label)
            if faults.count or len(split) > before:  # a shard can be empty
                faults.check(len(split) - before)
                notes.add(faults)
        if not split.files:
            raise UnusableSource(f"The Parquet files for {name} have no rows.")
    return splits, list(columns.classes)
