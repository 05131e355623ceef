"""Read images and numbers from a CSV file."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.data.sources import (
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    check_shares,
    count_of,
    listed,
    path_below,
    show,
    shuffle,
    split_counts,
)
from digits.data.target import numbers
from digits.kinds.regression.recipe import CreateRegression

MAX_TABLE_BYTES = 512 * 1024 * 1024
MAX_HEADER_BYTES = 1024 * 1024
MAX_TARGETS = 100
MAX_GROUPS = 10
MAX_ERRORS_SHOWN = 5
LARGEST_NUMBER = 1e30  # the squares of errors must fit into float32
DELIMITERS = "\t;|,"
_SAMPLE_CHARACTERS = 64 * 1024


@dataclass
class Table:
    """The rows of a table: paths of images, and their numbers, float64 [rows, names]."""

    names: list[str]
    files: list[str]
    values: NDArray[np.float64]


def read(recipe: CreateRegression, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    check_shares(
        0 if recipe.val_table else recipe.pct_val,
        0 if recipe.test_table else recipe.pct_test,
    )
    root = Path(recipe.folder)
    tables = {"train": recipe.table, "val": recipe.val_table, "test": recipe.test_table}
    found: dict[str, Table] = {}
    for name, path in tables.items():
        if path:
            progress.reading(f"Reading {show(path)}")
            found[name] = read_table(Path(path), root, recipe.image_column, recipe.target_columns)
    parts = _divide(found, recipe)
    names = found["train"].names
    train = parts["train"].values
    mean, std = train.mean(axis=0), train.std(axis=0)
    edges, groups = bins(np.concatenate([part.values[:, 0] for part in parts.values()]))
    splits = {}
    for name, part in parts.items():
        split = SplitPlan(
            root, part.files, part.values.tolist(), np.digitize(part.values[:, 0], edges).tolist()
        )
        split.source = tables[name] or recipe.table
        shuffle(split, recipe.seed, name)
        splits[name] = split
    target = numbers(names, mean.tolist(), std.tolist())
    constant = [name for name, deviation in zip(names, std, strict=True) if not deviation]
    warnings = [f"All training images have the same value: {listed(constant)}."] if constant else []
    return Plan(target, splits, groups, warnings)


def read_table(
    path: Path, root: Path, image_column: str = "", target_columns: list[str] | None = None
) -> Table:
    """Read the CSV file ``path``, whose images are below ``root``.

    The delimiter and whether there is a header are detected. Raises UnusableSource that names the first
    faulty lines.
    """
    names, rows, _ = read_rows(path, root, image_column, target_columns or [], MAX_TABLE_BYTES)
    errors: list[str] = []
    files: list[str] = []
    numbers_of_rows: list[list[float]] = []
    for line, file, found in rows:
        if isinstance(found, str):
            errors.append(f"line {line}: {found}")
        else:
            files.append(file)
            numbers_of_rows.append(found)
    if errors:
        more = f"; and {len(errors) - MAX_ERRORS_SHOWN:,} more" if len(errors) > MAX_ERRORS_SHOWN else ""
        raise UnusableSource(
            f"{count_of(len(errors), 'line')} of {show(path.name)} cannot be used: "
            f"{'; '.join(errors[:MAX_ERRORS_SHOWN])}{more}.",
            "Correct or remove them.",
        )
    if not files:
        raise UnusableSource(f"{show(path.name)} has no rows.")
    return Table(names, files, np.array(numbers_of_rows, np.float64))


def read_rows(
    path: Path, root: Path, image_column: str, target_columns: list[str], max_bytes: int
) -> tuple[list[str], Iterator[tuple[int, str, list[float] | str]], bool]:
    """Return the target names and rows in the first ``max_bytes`` of a table, and whether these are all rows.

    Each row is a tuple of line number, image path relative to ``root``, and either the target values or an error
    message. Raises UnusableSource, also during iteration.
    """
    text, is_whole = _text(path, max_bytes)
    header, rows = _split_header(_rows(path, text), path)
    image = _column(header, image_column, 0, path)
    targets = [_column(header, name, 0, path) for name in target_columns]
    targets = targets or [place for place in range(len(header)) if place != image]
    if not targets:
        raise _one_column(path)
    if len(targets) > MAX_TARGETS:
        raise UnusableSource(f"{len(targets)} numbers per image are too many.", f"Use at most {MAX_TARGETS}.")
    inside = os.path.realpath(root)

    def parsed() -> Iterator[tuple[int, str, list[float] | str]]:
        for line, cells in rows:
            try:
                file = path_below(inside, cells[image] if image < len(cells) else "")
                yield line, file, [_number(cells, place, header[place]) for place in targets]
            except ValueError as error:
                yield line, "", str(error)

    return [header[place] for place in targets], parsed(), is_whole


def check_header(path: str, image_column: str, target_columns: list[str]) -> None:
    """Raise UnusableSource if the table ``path`` has not the columns; reads the first row only."""
    text, _ = _text(Path(path), MAX_HEADER_BYTES)
    header, _ = _split_header(_rows(Path(path), text), Path(path))
    for name in (image_column, *target_columns):
        _column(header, name, 0, Path(path))
    if len(header) < 2:
        raise _one_column(Path(path))


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


def _divide(tables: dict[str, Table], recipe: CreateRegression) -> dict[str, Table]:
    """Take the shares of validation and test from the train table, where these have none of their own."""
    train = tables["train"]
    for name, table in tables.items():
        if table.names != train.names:
            raise UnusableSource(
                f"The {name} table has the columns {listed(table.names)}, the train table {listed(train.names)}.",
                "Use the same columns in all tables.",
            )
    order = np.random.default_rng(recipe.seed).permutation(len(train.files))
    shares = {"val": recipe.pct_val, "test": recipe.pct_test}
    counts = split_counts(len(order), *(0 if name in tables else share for name, share in shares.items()))
    parts, start = {}, 0
    for name, count in zip(("train", "val", "test"), counts, strict=True):
        if name in tables and name != "train":
            parts[name] = tables[name]
        elif count:
            chosen = order[start : start + count]
            parts[name] = Table(train.names, [train.files[place] for place in chosen], train.values[chosen])
        start += count
    return parts


def _text(path: Path, max_bytes: int) -> tuple[str, bool]:
    """Return the complete lines in the first ``max_bytes`` of a table, and whether these are all lines.

    Raises UnusableSource.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    is_whole = len(data) <= max_bytes
    if not is_whole and max_bytes == MAX_TABLE_BYTES:
        raise UnusableSource(f"{show(path.name)} is larger than {MAX_TABLE_BYTES >> 20} MiB.", "Divide it.")
    if not is_whole:
        data = data[: data.rfind(b"\n") + 1]
    try:
        return data.decode("utf-8-sig"), is_whole
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UnusableSource(
            f"{show(path.name)}, line {line}, is not UTF-8 text.", "Save it as UTF-8."
        ) from error


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table that are not blank, with their line numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text[:_SAMPLE_CHARACTERS]))
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise UnusableSource(f"{show(path.name)}, line {reader.line_num}: {error}.") from error


def _delimiter(text: str) -> str:
    """Return the delimiter that splits the first lines into the same number of cells, or into the most cells."""
    lines = text.splitlines()[:20]

    def score(delimiter: str) -> tuple[bool, int]:
        cells = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        return bool(cells) and min(cells) == max(cells) > 1, sum(cells)

    # Of several, not the comma: it may be that of decimals, or in texts.
    return max(DELIMITERS, key=score)


def _split_header(
    rows: Iterator[tuple[int, list[str]]], path: Path
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows without them. A first row that contains a number is no header."""
    first = next(rows, None)
    if first is None:
        raise UnusableSource(f"{show(path.name)} is empty.")
    line, cells = first
    if not any(_is_number(cell) for cell in cells):
        names = [name or f"column {place}" for place, name in enumerate(cells, 1)]
        if len(set(names)) < len(names):
            raise UnusableSource(f"{show(path.name)}, line {line}: two columns have the same name.")
        return names, rows

    def with_first() -> Iterator[tuple[int, list[str]]]:
        yield line, cells
        yield from rows

    return [f"column {place}" for place in range(1, len(cells) + 1)], with_first()


def _column(header: list[str], name: str, default: int, path: Path) -> int:
    if not name:
        return default
    if name not in header:
        raise UnusableSource(
            f"{show(path.name)} has no column “{name}”.", f"Its columns are {listed(header)}."
        )
    return header.index(name)


def _one_column(path: Path) -> UnusableSource:
    return UnusableSource(
        f"{show(path.name)} has only one column.", "Each line needs the path of an image and its numbers."
    )


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
