"""Read images and numbers from a table, or from TFRecord files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.parquet import ParquetImages
from digits.data.sources import (
    Plan,
    Progress,
    SplitPlan,
    Unusable,
    UnusableSource,
    check_shares,
    listed,
    show,
)
from digits.data.tables import (
    MAX_HEADER_BYTES,
    MAX_TABLE_BYTES,
    Cells,
    Faults,
    Row,
    Table,
    TableFile,
    divide,
    open_table,
    usable_rows,
)
from digits.data.target import numbers
from digits.kinds.record_source import divide_records
from digits.kinds.regression import databases, records
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, CreateRegression
from digits.kinds.table_source import plan_splits, table_sources

MAX_GROUPS = 10


@dataclass(frozen=True)
class NumberRows:
    """The rows of a table with the numbers called ``names`` of each image; ``is_whole``: these are all rows.

    ``images`` are those that the file contains, if any.
    """

    names: list[str]
    rows: Iterator[Row[list[float]]]
    is_whole: bool
    images: ParquetImages | None


def read(recipe: CreateRegression, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    unusable: list[Unusable] = []
    if recipe.records:
        splits, names = _read_records(recipe, progress)
    else:
        splits, names = _read_tables(recipe, progress, unusable)
    values = {name: np.array(split.targets, np.float64) for name, split in splits.items()}
    mean, std = values["train"].mean(axis=0), values["train"].std(axis=0)
    groups, places = group_records(names, values)
    for name, split in splits.items():
        split.groups = places[name]
    constant = [name for name, deviation in zip(names, std, strict=True) if not deviation]
    warnings = [f"All training images have the same value: {listed(constant)}."] if constant else []
    return Plan(numbers(names, mean.tolist(), std.tolist()), splits, groups, warnings, unusable)


def _read_records(recipe: CreateRegression, progress: Progress) -> tuple[dict[str, SplitPlan], list[str]]:
    assert recipe.records is not None
    check_shares(0 if recipe.records.val else recipe.pct_val, 0 if recipe.records.test else recipe.pct_test)
    splits, names = records.read(recipe.records, progress)
    return divide_records(splits, recipe.pct_val, recipe.pct_test, recipe.seed), names


def _read_tables(
    recipe: CreateRegression, progress: Progress, unusable: list[Unusable]
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Read the splits and the names of the numbers; skipped rows are added to ``unusable``."""
    old: dict[str, databases.Split] = {}
    if databases.is_database(Path(recipe.table)):
        old = databases.read(recipe.sources(), progress)
        found = {name: split.table for name, split in old.items()}
    else:
        found = {}
        for name, path, folder in table_sources(recipe, progress):
            faults = Faults(path, recipe.max_unusable_percent, name)
            found[name] = read_table(path, folder, recipe.image_column, recipe.target_columns, faults)
            unusable += faults.unusable
    parts = divide(found, recipe.pct_val, recipe.pct_test, recipe.seed)
    splits = plan_splits(recipe, parts, lambda part: part.values.tolist())
    for name, split in splits.items():
        if old:
            split.images = old.get(name, old["train"]).images
            split.source = split.images.describe()
    return splits, parts["train"].names


def read_table(
    path: Path,
    root: Path,
    image_column: str = "",
    target_columns: list[str] | None = None,
    faults: Faults | None = None,
) -> Table:
    """Read the table ``path``, whose images are below ``root``.

    The delimiter and whether there is a header are detected. Rows that cannot be used are added to ``faults``; by
    default, there may be none. Raises UnusableSource that names the first faulty lines.
    """
    found = read_rows(path, root, image_column, target_columns or [], MAX_TABLE_BYTES)
    usable, values = usable_rows(found.rows, faults or Faults(path, 0))
    return Table(found.names, [row.file for row in usable], np.array(values, np.float64), found.images)


def read_rows(
    path: Path, root: Path, image_column: str, target_columns: list[str], max_bytes: int
) -> NumberRows:
    """Open the first ``max_bytes`` of a table; raises UnusableSource, also during iteration."""
    table = open_table(path, _is_header, max_bytes)
    names = table.columns
    image, targets = _columns(table, image_column, target_columns)
    if len(targets) > MAX_TARGETS:
        raise UnusableSource(f"{len(targets)} numbers per image are too many.", f"Use at most {MAX_TARGETS}.")

    def parse(cells: Cells) -> list[float]:
        return [_number(cells, place, names[place]) for place in targets]

    return NumberRows(
        [names[place] for place in targets],
        table.parse(root, image, parse),
        table.is_whole,
        table.images_in(image),
    )


def check_header(path: str, image_column: str, target_columns: list[str]) -> None:
    """Raise UnusableSource if the table ``path`` has not the columns; reads the first row only."""
    _columns(open_table(Path(path), _is_header, MAX_HEADER_BYTES), image_column, target_columns)


def _is_header(cells: Cells) -> bool:
    return not any(map(_is_number, cells))


def _columns(table: TableFile, image_column: str, target_columns: list[str]) -> tuple[int, list[int]]:
    """Return the places of the column of images, and of the columns of numbers."""
    image = table.place(image_column)
    targets = table.places(target_columns, image)
    if len(table.columns) < 2:
        raise UnusableSource(
            f"{show(table.path.name)} has only one column.",
            "Each line needs the path of an image and its numbers.",
        )
    return image, targets


def group_records(
    names: list[str], values: Mapping[str, NDArray[Any]]
) -> tuple[list[str], dict[str, list[int]]]:
    """Group records by ranges of their first number: the names of the ranges, and the place of each record's range.

    ``values`` are the numbers of the records of each split for ``names``, [records, names].
    """
    edges, groups = bins(np.concatenate([found[:, 0] for found in values.values()]).astype(np.float64))
    return groups, {split: np.digitize(found[:, 0], edges).tolist() for split, found in values.items()}


def bins(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[str]]:
    """Divide ``values`` into at most `MAX_GROUPS` ranges: the inner edges, and the names of the ranges."""
    distinct = np.unique(values)
    if len(distinct) <= MAX_GROUPS:
        return (distinct[1:] + distinct[:-1]) / 2, [f"{value:.6g}" for value in distinct]
    step = _round_step((distinct[-1] - distinct[0]) / MAX_GROUPS)
    first, last = math.floor(distinct[0] / step), math.ceil(distinct[-1] / step)
    edges = np.arange(first, last + 1) * step
    return edges[1:-1], [f"{low:.6g} to {high:.6g}" for low, high in itertools.pairwise(edges)]


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _number(cells: list[str], place: int, name: str) -> float:
    text = cells[place] if place < len(cells) else ""
    if not text:
        raise ValueError(f"no value for {name}")
    if not _is_number(text):
        raise ValueError(f"“{show(text)}” is not a number ({name})")
    value = float(text)
    if not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{show(text)} is out of range ({name})")
    return value


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text)) and "_" not in text
    except ValueError:
        return False
