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
    listed,
    show,
    shuffle,
)
from digits.data.tables import (
    AUTOMATIC,
    MAX_HEADER_BYTES,
    MAX_TABLE_BYTES,
    Cells,
    Dialect,
    Faults,
    Row,
    Table,
    TableFile,
    open_table,
    open_tables,
    usable_rows,
)
from digits.data.targets.numbers import Numbers
from digits.kinds.record_source import divide_records
from digits.kinds.regression import databases, records
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, CreateRegression
from digits.kinds.table_source import SplitTable, divide_tables, find_tables, plan_splits, report_each

MAX_GROUPS = 10


@dataclass(frozen=True)
class Columns:
    """The names of the columns of images and of numbers, by default all others, and the dialect of CSV files."""

    image: str = ""
    targets: tuple[str, ...] = ()
    dialect: Dialect = AUTOMATIC

    @classmethod
    def of(cls, recipe: CreateRegression) -> Columns:
        return cls(recipe.image_column, tuple(recipe.target_columns), recipe.dialect)


@dataclass(frozen=True)
class NumberRows:
    """The ``rows`` of a ``table`` with the numbers of each image, by the places of their columns."""

    table: TableFile
    image: int
    targets: list[int]
    rows: Iterator[Row[list[float]]]

    @property
    def names(self) -> list[str]:
        """The names of the numbers."""
        return [self.table.columns[place] for place in self.targets]

    @property
    def images(self) -> ParquetImages | None:
        """The images that the table contains, if any."""
        return self.table.images_in(self.image)


def read(recipe: CreateRegression, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    unusable: list[Unusable] = []
    if recipe.records:
        splits, names = _read_records(recipe, progress, unusable)
    else:
        splits, names = _read_tables(recipe, progress, unusable)
    values = {name: np.array(split.targets, np.float64) for name, split in splits.items()}
    target = Numbers.of(names).with_statistics(values["train"])
    groups, places = group_records(names, values)
    for name, split in splits.items():
        split.groups = places[name]
    constant = [name for name, deviation in zip(names, target.std, strict=True) if not deviation]
    warnings = [f"All training images have the same value: {listed(constant)}."] if constant else []
    return Plan(target, splits, groups, warnings, unusable)


def _read_records(
    recipe: CreateRegression, progress: Progress, unusable: list[Unusable]
) -> tuple[dict[str, SplitPlan], list[str]]:
    assert recipe.records is not None
    splits, names = records.read(recipe.records, recipe.max_unusable_percent, progress, unusable)
    return divide_records(splits, recipe), names


def _read_tables(
    recipe: CreateRegression, progress: Progress, unusable: list[Unusable]
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Read the splits and the names of the numbers; skipped rows are added to ``unusable``."""
    if databases.is_database(Path(recipe.table)):
        return _read_databases(recipe, progress)
    tables = find_tables(recipe)
    found = {}
    for name, table in report_each(tables, progress):
        faults = table.faults(recipe.max_unusable_percent, name)
        found[name] = read_table(table, Columns.of(recipe), faults)
        unusable += faults.unusable
    parts = divide_tables(recipe, found)
    splits = plan_splits(recipe, tables, parts, lambda part: part.values.tolist())
    return splits, parts["train"].names


def _read_databases(recipe: CreateRegression, progress: Progress) -> tuple[dict[str, SplitPlan], list[str]]:
    found = databases.read(recipe.sources(), progress)
    parts = divide_tables(recipe, {name: split.table for name, split in found.items()})
    splits = {}
    for name, part in parts.items():
        images = found.get(name, found["train"]).images
        splits[name] = SplitPlan(images, part.files, part.values.tolist(), source=images.describe())
        shuffle(splits[name], recipe.seed, name)
    return splits, parts["train"].names


def read_table(table: SplitTable, columns: Columns, faults: Faults | None = None) -> Table:
    """Read a table.

    Rows that cannot be used are added to ``faults``; by default, there may be none. Raises UnusableSource that names
    the first faulty lines.
    """
    found = read_rows(table, columns, MAX_TABLE_BYTES)
    usable, values = usable_rows(found.rows, faults or table.faults(0))
    return Table(found.names, [row.file for row in usable], np.array(values, np.float64), found.images)


def read_rows(table: SplitTable, columns: Columns, max_bytes: int) -> NumberRows:
    """Open the first ``max_bytes`` of each file of a table; raises UnusableSource, also during iteration."""
    opened = open_tables(table.paths, _is_header, max_bytes, columns.dialect, table.root)
    names = opened.columns
    image, targets = _places(opened, columns)
    if len(targets) > MAX_TARGETS:
        raise UnusableSource(f"{len(targets)} numbers per image are too many.", f"Use at most {MAX_TARGETS}.")

    def parse(cells: Cells) -> list[float]:
        return [_number(cells, place, names[place]) for place in targets]

    return NumberRows(opened, image, targets, opened.parse(table.folder, image, parse))


def check_header(table: SplitTable, columns: Columns) -> None:
    """Raise UnusableSource if the first file of a table does not have the columns, or if the only one has no rows."""
    opened = open_table(table.paths[0], _is_header, MAX_HEADER_BYTES, columns.dialect)
    _places(opened, columns)
    if len(table.paths) == 1:
        opened.need_rows()


def _is_header(cells: Cells) -> bool:
    return not any(map(_is_number, cells))


def _places(table: TableFile, columns: Columns) -> tuple[int, list[int]]:
    """Return the places of the column of images, and of the columns of numbers."""
    image = table.place(columns.image)
    targets = table.places(columns.targets, image)
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
