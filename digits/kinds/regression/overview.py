"""Summarize a table of images for the form: rows, columns, ranges of numbers, and missing images by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from digits.data.sources import UnusableSource, count_of, listed, show
from digits.kinds.regression.reader import bins, read_rows
from digits.kinds.source_summary import SPLIT_NAMES, Pace, SourceSummary, Suggestion, with_sample

# Maximum size to read; larger tables are summarized from their beginning.
MAX_BYTES = 8 << 20
MAX_RANGES = 8
MAX_NAMED = 5


class _Contents:
    """The contents of the rows read so far."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.files: list[str] = []
        self.values: list[list[float]] = []
        self.faults: list[str] = []
        self.missing: list[str] = []
        self.rows = 0
        self.complete = False


def summarize_table(
    table: Path,
    root: Path,
    image_column: str,
    target_columns: list[str],
    separate: set[str],
    is_allowed: Callable[[Path], bool],
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a ``table`` of images below ``root``; the last one is finished.

    Both are real paths. ``separate`` contains the table fields that are already filled in. ``is_allowed`` returns
    whether the server may read a path, which may be a link.
    """
    suggestion = _suggest(table, separate, is_allowed)
    pace = Pace()
    try:
        names, rows, is_whole = read_rows(table, root, image_column, target_columns, MAX_BYTES)
        contents = _Contents(names)
        for line, file, values in rows:
            contents.rows += 1
            if isinstance(values, str):
                contents.faults.append(f"line {line}: {values}")
            elif not os.path.isfile(root / file):
                contents.missing.append(f"line {line}: {show(file)}")
            else:
                contents.files.append(file)
                contents.values.append(values)
            if pace.is_over(contents.rows):
                break
            if pace.is_due():
                summary = _summarize(contents, suggestion)
                summary.finished = False
                yield summary
        else:
            contents.complete = is_whole
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return
    yield from with_sample(str(root), contents.files, lambda: _summarize(contents, suggestion))


def _summarize(contents: _Contents, suggestion: Suggestion | None) -> SourceSummary:
    summary = SourceSummary(suggestion=suggestion)
    at_least = "" if contents.complete else "At least "
    numbers = _count_of_numbers(contents.names)
    summary.facts.append(f"{at_least}{count_of(contents.rows, 'row')} with {numbers}.")
    if contents.faults:
        summary.problems.append(
            f"{count_of(len(contents.faults), 'line')} cannot be used: {_named(contents.faults)}."
        )
    if contents.missing:
        summary.problems.append(
            f"{count_of(len(contents.missing), 'image')} not found: {_named(contents.missing)}."
        )
    if not contents.rows:
        summary.problems.append("The table has no rows.")
    if contents.values:
        values = np.array(contents.values, np.float64)
        ranges = [
            f"{show(name)} {low:.6g} to {high:.6g}"
            for name, low, high in zip(contents.names, values.min(axis=0), values.max(axis=0), strict=True)
        ]
        more = f" and {len(ranges) - MAX_RANGES} more" if len(ranges) > MAX_RANGES else ""
        summary.facts.append(f"Ranges: {', '.join(ranges[:MAX_RANGES])}{more}.")
        edges, groups = bins(values[:, 0])
        counts = np.bincount(np.digitize(values[:, 0], edges), minlength=len(groups))
        summary.set_bars(
            f"Images by {show(contents.names[0])}", list(zip(groups, counts.tolist(), strict=True))
        )
    return summary


def _count_of_numbers(names: list[str]) -> str:
    what = "a number" if len(names) == 1 else f"{len(names)} numbers"
    return f"{what} each: {listed(names)}"


def _named(items: list[str]) -> str:
    more = len(items) - MAX_NAMED
    return "; ".join(items[:MAX_NAMED]) + (f"; and {more:,} more" if more > 0 else "")


def _suggest(table: Path, separate: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the validation and test tables next to one named train."""
    if table.stem.lower() not in ("train", "training"):
        return None
    found: dict[str, str | bool] = {}
    for split in ("val", "test"):
        field = f"table_{split}"
        paths = [table.with_name(f"{name}{table.suffix}") for name in SPLIT_NAMES[split]]
        path = next((path for path in paths if path.is_file() and is_allowed(path)), None)
        if path and field not in separate:
            found[field] = str(path)
    if not found:
        return None
    tables = [show(os.path.basename(str(path))) for path in found.values()]
    return Suggestion.use_separately(tables, "table", found)
