"""Images with a target image each, such as a mask, in a table: paths, or images in Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct

from digits.data.record_features import IMAGE_NAMES, TARGET_IMAGE_NAMES, best_named, is_target
from digits.data.shares import CreateWithShares
from digits.data.sources import (
    ImageFolder,
    ImageSource,
    Progress,
    Unusable,
    UnusableSource,
    listed,
    path_below,
    show,
    shuffle,
)
from digits.data.tables import (
    MAX_HEADER_BYTES,
    MAX_TABLE_BYTES,
    Cells,
    Dialect,
    Header,
    Row,
    TableFile,
    has_no_image,
    is_image,
    open_tables,
    usable_rows,
)
from digits.data.target_images import TargetImageSplit
from digits.kinds.record_source import NO_TARGET, divide_records
from digits.kinds.table_source import Delimiter, SplitTable, report_each, tables_at

_DETECTION_ROWS = 20


class TargetImageTable(Struct, kw_only=True, frozen=True):
    """A table of `digits.kinds.table_source.tables_at` with an image and a target image in each row.

    Both are paths below ``folder``, or images in Parquet files. Empty columns are detected; with `NO_TARGET`, images
    are their own targets.
    """

    table: str
    folder: str
    image_column: str = ""
    target_column: str = ""
    delimiter: Delimiter = ""
    header: Header = "auto"

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.header)

    def find(self) -> dict[str, SplitTable]:
        """Return the tables of all splits; raises UnusableSource."""
        return tables_at(self.table, self.folder)


@dataclass(frozen=True)
class TargetImageRows:
    """The ``rows`` of a table with the name of the target of each image, and the places of the columns of both.

    ``images`` and ``target_images`` are the sources of the names. Images are their own targets if both columns are
    the same.
    """

    table: TableFile
    image: int
    target: int
    images: ImageSource
    target_images: ImageSource
    rows: Iterator[Row[str]]


def open_target_images(
    table: SplitTable, source: TargetImageTable, max_bytes: int, *, word: str, is_required: bool
) -> TargetImageRows:
    """Open the first ``max_bytes`` of each file of a table; raises UnusableSource, also during iteration.

    ``word`` is the word for a target image, which is required if ``is_required``.
    """
    opened = open_tables(table.paths, has_no_image, max_bytes, source.dialect, table.root)
    image, target = _places(opened, source, word, is_required)
    folder, stored = ImageFolder(Path(os.path.realpath(table.folder))), opened.images_in(target)

    def parse(cells: Cells) -> str:
        cell = cells[target] if target < len(cells) else ""
        return cell if stored else path_below(str(folder.root), cell)

    return TargetImageRows(
        opened,
        image,
        target,
        opened.images_in(image) or folder,
        replace(stored) if stored else folder,
        opened.parse(table.folder, image, parse),
    )


def check_columns(source: TargetImageTable, *, word: str, is_required: bool) -> None:
    """Raise UnusableSource if the first training table does not have the columns, or if the only one has no rows."""
    train = source.find()["train"]
    first = replace(train, paths=train.paths[:1])
    opened = open_target_images(first, source, MAX_HEADER_BYTES, word=word, is_required=is_required)
    if len(train.paths) == 1:
        opened.table.need_rows()


def _places(table: TableFile, source: TargetImageTable, word: str, is_required: bool) -> tuple[int, int]:
    """Return the places of the columns of images and of targets, the same one for images that are their own targets."""
    rows = table.first_rows(_DETECTION_ROWS)
    names = [
        name
        for place, name in enumerate(table.columns)
        if place in table.images or any(is_image(cells[place]) for cells in rows if place < len(cells))
    ]
    images = [name for name in names if name != source.target_column]
    image = source.image_column or best_named(
        [name for name in images if not is_target(name)] or images, IMAGE_NAMES
    )
    others = [name for name in names if name != image]
    target = source.target_column or best_named(others, TARGET_IMAGE_NAMES)
    if source.target_column == NO_TARGET and not is_required:
        target = image
    for name, what in ((image, "images"), (target or ("" if is_required else image), f"{word}s")):
        if not name:
            raise UnusableSource(
                f"{show(table.path.name)} has no column of {what}.",
                f"Its columns are {listed(table.columns)}.",
            )
    return table.place(image), table.place(target or image)


def plan_table(
    recipe: CreateWithShares,
    source: TargetImageTable,
    progress: Progress,
    *,
    word: str,
    is_required: bool,
    unusable: list[Unusable],
) -> dict[str, TargetImageSplit]:
    """Return the splits of ``source``, with the names of the target images as targets; raises UnusableSource.

    Skipped rows are added to ``unusable``.
    """
    tables = source.find()
    recipe.shares(tables)
    splits: dict[str, TargetImageSplit] = {}
    is_stored: dict[str, bool] = {}
    for name, table in report_each(tables, progress):
        opened = open_target_images(table, source, MAX_TABLE_BYTES, word=word, is_required=is_required)
        faults = table.faults(recipe.max_unusable_percent, name)
        rows, targets = usable_rows(opened.rows, faults)
        unusable += faults.unusable
        splits[name] = TargetImageSplit(
            opened.images,
            [row.file for row in rows],
            targets,
            source=table.name,
            target_images=opened.target_images,
        )
        is_stored[name] = bool(opened.table.images)
    splits = divide_records(splits, recipe)
    for name, split in splits.items():
        if not is_stored.get(name, is_stored["train"]):
            shuffle(split, recipe.seed, name)
    return splits
