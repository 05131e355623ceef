"""Summarize a table that lists images for the form: rows, invalid lines, and missing images by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from digits.core.splits import SPLITS
from digits.data.dataset_folder import describe_files
from digits.data.parquet import ParquetImages
from digits.data.shards import SPLIT_NAMES, files_in, is_shard, split_of
from digits.data.sources import UnusableSource, count_of, show
from digits.data.tables import Cells, Row, TableFile, Value, first_lines
from digits.kinds.source_summary import Pace, SourceSummary, Suggestion, with_sample
from digits.kinds.table_source import SplitTable

# Maximum size to read; larger tables are summarized from their beginning.
MAX_BYTES = 8 << 20
PREVIEW_ROWS = 5
MAX_COLUMNS = 20
MAX_CELL_CHARACTERS = 80


@dataclass
class RowSource(Generic[Value]):
    """The rows to summarize, and their contents in words, such as ``a number each``. ``is_whole``: no rows follow.

    ``images`` are those that the table contains, if any. ``preview`` shows its first rows.
    """

    contents: str
    rows: Iterator[Row[Value]]
    is_whole: bool
    images: ParquetImages | None = None
    preview: Preview | None = None

    @classmethod
    def of(
        cls, contents: str, table: TableFile, rows: Iterator[Row[Value]], image: int, roles: dict[int, str]
    ) -> RowSource[Value]:
        """Return the ``rows`` of ``table`` with the column of images at ``image``; ``roles`` are those of others."""
        preview = Preview.of(table, {image: "image", **roles})
        return cls(contents, rows, table.is_whole, table.images_in(image), preview)


@dataclass(frozen=True)
class Preview:
    """The first rows of a table, under the names of its columns and their roles."""

    head: list[str]
    rows: list[Cells]

    @classmethod
    def of(cls, table: TableFile, roles: dict[int, str]) -> Preview:
        """Return the first rows of ``table``, with the roles of some of its columns by place."""
        return cls.of_rows(table.columns, table.first_rows(PREVIEW_ROWS), roles)

    @classmethod
    def of_rows(cls, names: list[str], rows: list[Cells], roles: dict[int, str]) -> Preview:
        """Return ``rows`` with columns called ``names``, and the roles of some of them by place."""
        head = [
            f"{show(name)} ({roles[place]})" if place in roles else show(name)
            for place, name in enumerate(names[:MAX_COLUMNS])
        ]
        return cls(head, [[_shorten(cell) for cell in cells[:MAX_COLUMNS]] for cells in rows])

    def add_to(self, summary: SourceSummary) -> None:
        """Show the rows in ``summary``."""
        summary.table_head, summary.table = self.head, self.rows


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
        if source.preview:
            source.preview.add_to(summary)
        if found.usable:
            describe(found.usable, summary)
        return summary

    try:
        source = open_rows()
        for row in source.rows:
            found.rows += 1
            if row.value is None:
                found.faults.append(f"{row.place}: {row.fault}")
            elif row.is_missing:
                found.missing.append(f"{row.place}: {show(row.file)}")
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


def summarize_tables(
    tables: dict[str, SplitTable],
    open_rows: Callable[[SplitTable], RowSource[Value]],
    describe: Callable[[list[Row[Value]], SourceSummary], None],
    suggestion: Suggestion | None,
) -> Iterator[SourceSummary]:
    """Yield summaries of the training table like `summarize_table`, with the number of files if there are several."""
    train = tables["train"]
    files = {split: table.paths for split, table in tables.items()}
    is_single = len(files) == len(train.paths) == 1
    for summary in summarize_table(train.folder, lambda: open_rows(train), describe, suggestion):
        if not is_single:
            summary.facts.insert(0, f"{describe_files(files)}.")
        yield summary


def suggest_tables(table: Path, filled: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the validation and test tables next to one named train.

    ``filled`` contains the table fields that are already filled in. ``is_allowed`` returns whether the server may
    read a path, which may be a link.
    """
    if split_of(table) != "train" or not (table.stem.lower() in SPLIT_NAMES["train"] or is_shard(table)):
        return None
    beside = [path for path in files_in(table.parent) if path.suffix == table.suffix and is_allowed(path)]
    found: dict[str, str | bool] = {}
    for split in SPLITS[1:]:
        words, name = SPLIT_NAMES[split], f"table_{split}"
        named = (
            path
            for path in beside
            if (split_of(path) == split if is_shard(table) else path.stem.lower() in words)
        )
        path = next(named, None)
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


def _shorten(cell: str) -> str:
    text = show(cell)
    return f"{text[:MAX_CELL_CHARACTERS]}…" if len(text) > MAX_CELL_CHARACTERS else text
