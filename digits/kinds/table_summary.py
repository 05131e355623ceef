"""Summarize a table that lists images for the form: rows, invalid lines, and missing images by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from digits.data.parquet import ParquetImages
from digits.data.shards import SPLIT_NAMES
from digits.data.sources import UnusableSource, count_of, show
from digits.data.tables import Row, Value, first_lines
from digits.kinds.source_summary import Pace, SourceSummary, Suggestion, with_sample

# Maximum size to read; larger tables are summarized from their beginning.
MAX_BYTES = 8 << 20


@dataclass
class RowSource(Generic[Value]):
    """The rows to summarize, and their contents in words, such as ``a number each``. ``is_whole``: no rows follow.

    ``images`` are those that the table contains, if any.
    """

    contents: str
    rows: Iterator[Row[Value]]
    is_whole: bool
    images: ParquetImages | None = None


@dataclass
class _Found(Generic[Value]):
    """The rows read so far: the usable ones, and the lines of the others."""

    usable: list[Row[Value]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rows: int = 0
    complete: bool = False


def summarize_table(
    root: Path,
    open_rows: Callable[[], RowSource[Value]],
    describe: Callable[[list[Row[Value]], SourceSummary], None],
    suggestion: Suggestion | None,
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a table of images below ``root``; the last one is finished.

    ``root`` is a real path. ``open_rows`` may raise UnusableSource. ``describe`` adds facts, problems and bars
    about the usable rows, of which there is at least one, to a summary.
    """
    pace = Pace()
    found: _Found[Value] = _Found()

    def summarize() -> SourceSummary:
        summary = _summarize(found, source.contents, suggestion)
        if found.usable:
            describe(found.usable, summary)
        return summary

    try:
        source = open_rows()
        for row in source.rows:
            found.rows += 1
            if row.value is None:
                found.faults.append(f"line {row.line}: {row.fault}")
            elif row.is_missing:
                found.missing.append(f"line {row.line}: {show(row.file)}")
            else:
                found.usable.append(row)
            if pace.is_over(found.rows):
                break
            if pace.is_due():
                summary = summarize()
                summary.finished = False
                yield summary
        else:
            found.complete = source.is_whole
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return
    files = [] if source.images else [row.file for row in found.usable]
    yield from with_sample(str(root), files, summarize)


def suggest_tables(table: Path, filled: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the validation and test tables next to one named train.

    ``filled`` contains the table fields that are already filled in. ``is_allowed`` returns whether the server may
    read a path, which may be a link.
    """
    if table.stem.lower() not in ("train", "training"):
        return None
    found: dict[str, str | bool] = {}
    for split in ("val", "test"):
        name = f"table_{split}"
        paths = [table.with_name(f"{word}{table.suffix}") for word in SPLIT_NAMES[split]]
        path = next((path for path in paths if path.is_file() and is_allowed(path)), None)
        if path and name not in filled:
            found[name] = str(path)
    if not found:
        return None
    tables = [show(os.path.basename(str(path))) for path in found.values()]
    return Suggestion.use_separately(tables, "table", found)


def _summarize(found: _Found[Value], contents: str, suggestion: Suggestion | None) -> SourceSummary:
    summary = SourceSummary(suggestion=suggestion)
    at_least = "" if found.complete else "At least "
    summary.facts.append(f"{at_least}{count_of(found.rows, 'row')} with {contents}.")
    if found.faults:
        summary.problems.append(
            f"{count_of(len(found.faults), 'line')} cannot be used: {first_lines(found.faults)}."
        )
    if found.missing:
        summary.problems.append(
            f"{count_of(len(found.missing), 'image')} not found: {first_lines(found.missing)}."
        )
    if not found.rows:
        summary.problems.append("The table has no rows.")
    return summary
