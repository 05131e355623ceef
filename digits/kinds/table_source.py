"""Datasets whose source is a table that lists images: the recipe, and the plan of the splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent
from digits.data.parquet import in_row_order
from digits.data.sources import ImageFolder, Progress, SplitPlan, check_shares, show, shuffle
from digits.data.tables import Table


class CreateFromTable(CreateDataset, kw_only=True):
    """Read a table of images from the file ``table``.

    The paths in the column ``image_column``, by default the first, are relative to ``folder``. Columns of a table
    without a header are called ``column 1``, ``column 2`` and so on. ``val_table`` and ``test_table`` are separate
    tables with the same columns, whose paths are relative to ``val_folder`` and ``test_folder``, by default ``folder``;
    without them ``pct_val`` and ``pct_test`` percent of the rows of ``table`` are taken.
    """

    table: str
    folder: str
    image_column: str = ""
    val_table: str | None = None
    val_folder: str | None = None
    test_table: str | None = None
    test_folder: str | None = None
    pct_val: Percent = 25.0
    pct_test: Percent = 0.0

    def sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each split that has a table, train first, with its table and the folder of its images."""
        yield "train", self.table, self.folder
        for split, table, folder in (
            ("val", self.val_table, self.val_folder),
            ("test", self.test_table, self.test_folder),
        ):
            if table:
                yield split, table, folder or self.folder


def table_sources(recipe: CreateFromTable, progress: Progress) -> Iterator[tuple[str, Path, Path]]:
    """Yield each split of ``recipe`` with its table and the folder of its images, and report that the table is read.

    Raises UnusableSource if the shares leave nothing to train on.
    """
    check_shares(
        0 if recipe.val_table else recipe.pct_val,
        0 if recipe.test_table else recipe.pct_test,
    )
    for split, table, folder in recipe.sources():
        progress.reading(f"Reading {show(table)}")
        yield split, Path(table), Path(folder)


def plan_splits(
    recipe: CreateFromTable,
    parts: dict[str, Table],
    targets: Callable[[Table], list[Any]],
) -> dict[str, SplitPlan]:
    """Plan the splits from their ``parts`` of the tables, with the ``targets`` of a part."""
    sources = {split: (table, folder) for split, table, folder in recipe.sources()}
    splits = {}
    for name, part in parts.items():
        table, folder = sources.get(name, sources["train"])
        images = part.images or ImageFolder(Path(folder))
        split = SplitPlan(images, part.files, targets(part), source=table)
        if part.images:
            split.reorder(in_row_order(split.files))
        else:
            shuffle(split, recipe.seed, name)
        splits[name] = split
    return splits
