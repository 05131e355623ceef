"""Summarize a table that lists images for the form: rows, invalid lines, and missing images by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from digits.core.splits import SPLITS
from digits.data.records.shards import files_in, is_shard
from digits.data.sources.causes import CHECK_NAMES, Causes
from digits.data.sources.dataset_folder import describe_files
from digits.data.sources.declared_splits import affixed_splits, split_of
from digits.data.sources.plan import ImageSource, count_of, first_lines, show
from digits.data.tables.tables import Cells, Row, TableFile, Value
from digits.kinds.forms.summary import Overview, SourceSummary, Suggestion
from digits.kinds.sources.tables import SplitTable, TableRows

# Maximum size to read; larger tables are summarized from their beginning.
MAX_BYTES = 8 << 20
PREVIEW_ROWS = 5
MAX_COLUMNS = 20
MAX_CELL_CHARACTERS = 80


@dataclass
class RowSource(Generic[Value]):
    """The rows to summarize, and their contents in words, such as ``a number each``. ``is_whole``: no rows follow.

    ``images`` are those that the table contains, if any. ``preview`` shows its first rows.
    ``remarks`` are those of the table.
    """

    contents: str
    rows: Iterator[Row[Value]]
    is_whole: bool
    images: ImageSource | None = None
    preview: Preview | None = None
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, contents: str, opened: TableRows[Value], role: str) -> RowSource[Value]:
        """Return the rows of an ``opened`` table; ``role`` is that of the columns of targets."""
        table = opened.table
        preview = Preview.of(table, {opened.image: "image", **dict.fromkeys(opened.targets, role)})
        return cls(contents, opened.rows, table.is_whole, opened.images, preview, table.remarks)


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
            f"{show(name)} ({roles[index]})" if index in roles else show(name)
            for index, name in enumerate(names[:MAX_COLUMNS])
        ]
        return cls(head, [[_shorten(cell) for cell in cells[:MAX_COLUMNS]] for cells in rows])

    def add_to(self, summary: SourceSummary) -> None:
        """Show the rows in ``summary``."""
        summary.table_head, summary.table = self.head, self.rows


class _TableOverview(Overview, Generic[Value]):
    """The rows of a table of images below ``root``; see `summarize_table`."""

    def __init__(
        self,
        root: Path,
        open_rows: Callable[[], RowSource[Value]],
        describe: Callable[[list[Row[Value]], SourceSummary], None],
        suggestion: Suggestion | None,
    ) -> None:
        super().__init__(suggestion)
        self._root, self._open, self._describe = root, open_rows, describe
        self._source: RowSource[Value]
        self._usable: list[Row[Value]] = []
        self._faults = Causes()
        self._missing: list[str] = []

    def read(self) -> Iterator[int]:
        self._source = source = self._open()
        if source.preview:
            source.preview.add_to(self.start)
        for count, row in enumerate(source.rows, 1):
            if row.value is None:
                self._faults.add(row.place, row.fault)
            elif row.is_missing:
                self._missing.append(f"{row.place}: {show(row.file)}")
            else:
                self._usable.append(row)
            yield count
        self.is_complete = source.is_whole

    def conclude(self) -> tuple[str, list[str]]:
        return str(self._root), [] if self._source.images else [row.file for row in self._usable]

    def describe(self, summary: SourceSummary) -> None:
        count = len(self._usable) + self._faults.count + len(self._missing)
        summary.facts.append(f"{self.at_least}{count_of(count, 'row')} with {self._source.contents}.")
        summary.facts += self._source.remarks
        summary.list_faults("line", self._faults)
        if self._missing:
            summary.problems.append(
                f"{count_of(len(self._missing), 'image')} not found: {first_lines(self._missing)}. {CHECK_NAMES}"
            )
        if not count:
            summary.problems.append("The table has no rows.")
        if self._usable:
            self._describe(self._usable, summary)


def summarize_table(
    root: Path,
    open_rows: Callable[[], RowSource[Value]],
    describe: Callable[[list[Row[Value]], SourceSummary], None],
    suggestion: Suggestion | None = None,
    facts: Sequence[str] = (),
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a table of images below ``root``; the last one is finished.

    ``root`` is a real path. ``open_rows`` may raise UnusableSource. ``describe`` adds facts, problems and bars
    about the usable rows, of which there is at least one, to a summary. ``facts`` are the first ones of the summaries.
    """
    overview = _TableOverview(root, open_rows, describe, suggestion)
    overview.start.facts += facts
    return overview.summaries()


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
    facts = [] if is_single else [f"{describe_files(files)}."]
    return summarize_table(train.folder, lambda: open_rows(train), describe, suggestion, facts)


def suggest_tables(table: Path, filled: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the validation and test tables next to one named train.

    ``filled`` contains the table fields that are already filled in. ``is_allowed`` returns whether the server may
    read a path, which may be a link.
    """
    beside = [path for path in files_in(table.parent) if path.suffix == table.suffix and is_allowed(path)]
    splits = {path: split_of(path) for path in beside} if is_shard(table) else _splits_of_stems(beside, table)
    if splits.get(table) != "train":
        return None
    fields: dict[str, str | bool] = {}
    for split in SPLITS[1:]:
        path = next((path for path in beside if splits.get(path) == split), None)
        if path and f"table_{split}" not in filled:
            fields[f"table_{split}"] = str(path)
    if not fields:
        return None
    tables = [show(os.path.basename(str(path))) for path in fields.values()]
    return Suggestion.use_separately(tables, "table", fields)


def _splits_of_stems(paths: list[Path], table: Path) -> dict[Path, str]:
    """Return the splits of the ``paths`` whose names contain the same as that of ``table`` besides a split."""
    for group in affixed_splits(path.stem for path in paths).values():
        if any(table.stem in stems for stems in group.values()):
            return {path: split for path in paths for split, stems in group.items() if path.stem in stems}
    return {}


def _shorten(cell: str) -> str:
    text = show(cell)
    return f"{text[:MAX_CELL_CHARACTERS]}…" if len(text) > MAX_CELL_CHARACTERS else text
