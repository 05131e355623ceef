"""Images with a target image each, such as a mask, in a table: paths, or images in Parquet files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from digits.data.records.features import TARGET_IMAGE_NAMES, best_image, best_named
from digits.data.sources.plan import ImageFolder, ImageSource, Progress, UnusableSource, listed, show, shuffle
from digits.data.sources.target_images import TargetImageSplit
from digits.data.tables.contents import refuse_run_lengths
from digits.data.tables.tables import Cells, SourceNotes, TableFile, has_no_image, is_image, open_tables
from digits.kinds.sources.records import NO_TARGET, divide_records
from digits.kinds.sources.tables import SplitTable, TableRows, report_each, tables_at, take_declared
from digits.kinds.sources.target_image_recipe import CreateWithTargetImages, TargetImageTable

_DETECTION_ROWS = 20


@dataclass(frozen=True)
class TargetImageRows(TableRows[str]):
    """The ``rows`` of a table with the name of the target of each image.

    ``image_source`` and ``target_images`` are the sources of the names. Images are their own targets if the columns of
    both are the same.
    """

    image_source: ImageSource
    target_images: ImageSource


def open_target_images(recipe: CreateWithTargetImages, table: SplitTable, max_bytes: int) -> TargetImageRows:
    """Open the first ``max_bytes`` of each file of a table; raises UnusableSource, also during iteration."""
    assert recipe.table is not None
    opened = open_tables(table.paths, has_no_image, max_bytes, recipe.table.dialect, table.root)
    image, target = _find_columns(opened, recipe, recipe.table)
    if not os.path.isdir(recipe.table.table):
        places = (place for place in range(len(opened.columns)) if place not in (image, target))
        opened.declare_splits(opened.survey(places))
    folder, stored = ImageFolder(Path(os.path.realpath(table.folder))), opened.images_in(target)

    def parse(cells: Cells) -> str:
        if target >= len(cells):
            raise ValueError("the path of the image is missing")
        return cells[target]

    return TargetImageRows(
        opened,
        image,
        [target],
        opened.parse(table.folder, image, parse, [] if stored else [target]),
        opened.images_in(image) or folder,
        replace(stored) if stored else folder,
        contents="an image each" if target == image else f"an image and a {recipe.target_word} each",
        role=recipe.target_word,
    )


def _find_columns(
    table: TableFile, recipe: CreateWithTargetImages, source: TargetImageTable
) -> tuple[int, int]:
    """Return the places of the columns of images and of targets, the same one for images that are their own targets."""
    rows = table.first_rows(_DETECTION_ROWS)
    names = [
        name
        for index, name in enumerate(table.columns)
        if index in table.images or any(is_image(cells[index]) for cells in rows if index < len(cells))
    ]
    images = [name for name in names if name != source.target_column]
    image = source.image_column or best_image(images)
    others = [name for name in names if name != image]
    target = source.target_column or best_named(others, TARGET_IMAGE_NAMES)
    if source.target_column == NO_TARGET and not recipe.needs_targets:
        target = image
    required = target or ("" if recipe.needs_targets else image)
    for name, what in ((image, "images"), (required, f"{recipe.target_word}s")):
        if not name:
            refuse_run_lengths(table)
            raise UnusableSource(
                f"{show(table.path.name)} has no column of {what}.",
                f"Its columns are {listed(table.columns)}.",
            )
    return table.place(image), table.place(target or image)


def plan_table(
    recipe: CreateWithTargetImages, progress: Progress, notes: SourceNotes
) -> dict[str, TargetImageSplit]:
    """Return the splits of ``recipe.table``, with the names of the target images as targets; raises UnusableSource.

    Skipped rows are added to ``notes``.
    """
    assert recipe.table is not None
    tables = tables_at(recipe.table.table, recipe.table.folder)
    recipe.shares(tables)
    splits: dict[str, TargetImageSplit] = {}
    is_stored: dict[str, bool] = {}
    declared: list[str] = []
    for name, table in report_each(tables, progress):
        opened = open_target_images(recipe, table, progress.max_bytes)
        rows, targets = table.usable_rows(opened, recipe, name, progress, notes)
        splits[name] = TargetImageSplit(
            opened.image_source,
            [row.file for row in rows],
            targets,
            source=table.name,
            target_images=opened.target_images,
        )
        is_stored[name] = bool(opened.table.images)
        declared = [row.split for row in rows]
    splits = divide_records(take_declared(splits, declared), recipe)
    for name, split in splits.items():
        if not is_stored.get(name, is_stored["train"]):
            shuffle(split, recipe.seed, name)
    return splits
