"""Read images and numbers from a table, or from TFRecord files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.sources.plan import Plan, Progress, SplitPlan, UnusableSource, listed, show
from digits.data.tables.tables import Cells, SourceNotes, TableFile, is_number, number_of, open_tables
from digits.data.targets.numbers import Numbers
from digits.kinds.regression.recipe import LARGEST_NUMBER, MAX_TARGETS, CreateRegression
from digits.kinds.regression.records import NumberMapping
from digits.kinds.sources.records import divide_records, read_records
from digits.kinds.sources.tables import (
    SplitTable,
    TableRows,
    declare_splits,
    divide_rows,
    find_columns,
    find_tables,
    need_same_columns,
    report_each,
)

MAX_GROUPS = 10
MAX_RANGES = 8
_DETECTION_ROWS = 200


def read(recipe: CreateRegression, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    notes = SourceNotes()
    if recipe.records:
        mapping, splits = read_records(recipe, NumberMapping, progress, notes)
        splits, names = divide_records(splits, recipe), mapping.names
    else:
        splits, names = read_tables(recipe, progress, notes)
    values = {name: np.array(split.targets, np.float64) for name, split in splits.items()}
    target = Numbers.of(names).with_statistics(values["train"])
    progress.say(_ranges(names, values["train"]))
    groups, places = group_records(names, values)
    for name, split in splits.items():
        split.groups = places[name]
    constant = [name for name, deviation in zip(names, target.std, strict=True) if not deviation]
    if constant:
        notes.warnings.append(f"All training images have the same value: {listed(constant)}.")
    return Plan(target, splits, groups, notes.warnings, notes.unusable)


def read_tables(
    recipe: CreateRegression, progress: Progress, notes: SourceNotes
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the splits and the names of the numbers; skipped rows are added to ``notes``.

    Raises UnusableSource that names the first faulty lines.
    """
    splits: dict[str, SplitPlan] = {}
    names: list[str] = []
    declared: list[str] = []
    for split, table in report_each(find_tables(recipe), progress):
        opened = open_numbers(recipe, table, progress.max_bytes)
        rows, values = table.usable_rows(opened, recipe, split, progress, notes, "value")
        names = names or opened.names
        need_same_columns(split, opened.names, names)
        splits[split] = table.plan(opened.images, [row.file for row in rows], values)
        declared = [row.split for row in rows]
    return divide_rows(recipe, splits, declared), names


def open_numbers(recipe: CreateRegression, table: SplitTable, max_bytes: int) -> TableRows[list[float]]:
    """Open the first ``max_bytes`` of each file of a table; raises UnusableSource, also during iteration."""
    opened = open_tables(table.paths, _is_header, max_bytes, recipe.dialect, table.root)
    names = opened.columns
    declare_splits(recipe, opened, recipe.target_columns)
    image, targets = find_columns(opened, recipe.image_column, recipe.target_columns, "numbers")
    targets = _columns_of_numbers(opened, targets, are_chosen=bool(recipe.target_columns))
    if len(targets) > MAX_TARGETS:
        raise UnusableSource(f"{len(targets)} numbers per image are too many.", f"Use at most {MAX_TARGETS}.")

    has_commas = opened.has_decimal_commas(targets)
    if has_commas:
        opened.remarks.append("Commas in numbers are decimal commas.")

    def parse(cells: Cells) -> list[float]:
        return [_number(cells, place, names[place], has_commas) for place in targets]

    what = "a number" if len(targets) == 1 else f"{len(targets)} numbers"
    contents = f"{what} each: {listed(names[place] for place in targets)}"
    return TableRows(opened, image, targets, opened.parse(table.folder, image, parse), contents=contents)


def _columns_of_numbers(table: TableFile, places: list[int], are_chosen: bool) -> list[int]:
    """Return those of ``places`` with numbers that can be targets, and remark on the others.

    Chosen columns must have numbers. Raises UnusableSource.
    """
    rows = table.first_rows(_DETECTION_ROWS)
    cells = {place: [row[place] for row in rows if place < len(row) and row[place]] for place in places}
    texts = [place for place in places if cells[place] and not any(map(is_number, cells[place]))]
    if texts and (are_chosen or (texts == places and not any(map(_is_float, cells[texts[0]])))):
        raise UnusableSource(
            f"The column “{show(table.columns[texts[0]])}” of {show(table.path.name)} contains text, such as "
            f"“{show(cells[texts[0]][0][:80])}”.",
            "Choose columns of numbers."
            if are_chosen
            else "Write numbers like 1.5, or create a dataset of classes.",
        )
    numbers = [place for place in places if place not in texts]
    indexes = [place for place in numbers if table.is_index(place)]
    targets = [place for place in numbers if place not in indexes]
    if are_chosen or not targets:
        return numbers or places
    names = table.columns
    left_out = [
        f"{listed(names[place] for place in found)} {'is' if len(found) == 1 else 'are'} {what}"
        for found, what in ((texts, "text"), (indexes, "an index"))
        if found
    ]
    if left_out:
        verb = "is" if len(targets) == 1 else "are"
        table.remarks.append(
            f"{' and '.join(left_out)}; only {listed(names[place] for place in targets)} {verb} used."
        )
    return targets


def _is_float(text: str) -> bool:
    """Return whether ``text`` is a number, also one that is not finite."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ranges(names: list[str], values: NDArray[np.float64]) -> str:
    ranges = [
        f"{show(name)} {low:.6g} to {high:.6g}"
        for name, low, high in zip(names, values.min(axis=0), values.max(axis=0), strict=True)
    ]
    more = f" and {len(ranges) - MAX_RANGES} more" if len(ranges) > MAX_RANGES else ""
    return f"Ranges: {', '.join(ranges[:MAX_RANGES])}{more}."


def _is_header(cells: Cells) -> bool:
    return not any(map(is_number, cells))


def group_records(
    names: list[str], values: Mapping[str, NDArray[Any]]
) -> tuple[list[str], dict[str, list[int]]]:
    """Group records by ranges of their first number: the names of the ranges, and the place of each record's range.

    ``values`` are the numbers of the records of each split for ``names``, [records, names].
    """
    edges, groups = bins(np.concatenate([numbers[:, 0] for numbers in values.values()]).astype(np.float64))
    return groups, {split: np.digitize(numbers[:, 0], edges).tolist() for split, numbers in values.items()}


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


def _number(cells: list[str], place: int, name: str, has_decimal_commas: bool) -> float:
    text = cells[place] if place < len(cells) else ""
    if not text:
        raise ValueError(f"no value for {name}")
    try:
        value = number_of(text, has_decimal_commas)
    except ValueError as error:
        raise ValueError(f"{error} ({name})") from None
    if not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{show(text)} is out of range ({name})")
    return value
