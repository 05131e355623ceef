"""Datasets whose source is a CSV file that lists images: the recipe, and the plan of the splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent
from digits.data.sources import ImageFolder, Progress, SplitPlan, check_shares, show, shuffle
from digits.data.tables import Table


class CreateFromTable(CreateDataset, kw_only=True):
    """Read a table of images from the CSV file ``table``.

    The paths in the column ``image_column``, by default the first, are relative to ``folder``. Columns of a table
    without a header are called ``column 1``, ``column 2`` and so on. ``val_table`` and ``test_table`` are separate
    tables with the same columns; without them ``pct_val`` and ``pct_test`` percent of the rows of ``table`` are taken.
    """

    table: str
    folder: str
    image_column: str = ""
    val_table: str | None = None
    test_table: str | None = None
    pct_val: Percent = 25.0
    pct_test: Percent = 0.0


def table_paths(recipe: CreateFromTable, progress: Progress) -> Iterator[tuple[str, Path]]:
    """Yield the split and the path of each table of ``recipe``, train first, and report that it is read.

    Raises UnusableSource if the shares leave nothing to train on.
    """
    check_shares(
        0 if recipe.val_table else recipe.pct_val,
        0 if recipe.test_table else recipe.pct_test,
    )
    for name, path in _tables(recipe).items():
        if path:
            progress.reading(f"Reading {show(path)}")
            yield name, Path(path)


def plan_splits(
    recipe: CreateFromTable,
    parts: dict[str, Table],
    targets: Callable[[Table], list[Any]],
    groups: Callable[[Table], list[int]],
) -> dict[str, SplitPlan]:
    """Plan the splits from their ``parts`` of the tables, with the ``targets`` and ``groups`` of a part."""
    splits = {}
    for name, part in parts.items():
        split = SplitPlan(ImageFolder(Path(recipe.folder)), part.files, targets(part), groups(part))
        split.source = _tables(recipe)[name] or recipe.table
        shuffle(split, recipe.seed, name)
        splits[name] = split
    return splits


def _tables(recipe: CreateFromTable) -> dict[str, str | None]:
    return {"train": recipe.table, "val": recipe.val_table, "test": recipe.test_table}
