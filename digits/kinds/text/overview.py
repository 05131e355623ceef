"""Summarize a CSV file of texts for the form: rows, classes, lengths, and invalid lines."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from digits.data.sources.causes import Causes
from digits.data.sources.plan import count_of
from digits.data.tables.tables import Dialect
from digits.data.tables.text_rows import find_delimiter, read_rows
from digits.kinds.forms.summary import Overview, SourceSummary, Suggestion
from digits.kinds.forms.table_summary import MAX_BYTES, PREVIEW_ROWS, Preview
from digits.kinds.text.reader import Classes, is_header, parse_row, read_labels, usable_rows


class TextOverview(Overview):
    """The texts in ``table``, of which those of more than ``length`` characters are counted."""

    def __init__(
        self,
        table: Path,
        dialect: Dialect,
        labels_file: Path | None,
        length: int,
        suggestion: Suggestion | None,
    ) -> None:
        super().__init__(suggestion)
        self._table, self._dialect, self._labels_file, self._length = table, dialect, labels_file, length
        self._labels: list[str] | None = None
        self._classes = Classes(None)
        self._counts: Counter[int] = Counter()
        self._faults = Causes()
        self._characters = self._longer = 0

    def read(self) -> Iterator[int]:
        self._dialect.check()
        delimiter = self._dialect.delimiter or find_delimiter(self._table)
        _preview(self._table, delimiter, self._dialect).add_to(self.start)
        if self._labels_file:
            self._labels = read_labels(self._labels_file)
            self._classes = Classes(self._labels)
        for row in usable_rows(read_rows(self._table, delimiter, MAX_BYTES), self._dialect):
            try:
                self._counts[parse_row(row, self._classes)] += 1
            except ValueError as error:
                self._faults.add(f"line {row.line}", str(error))
            self._characters += len(row.text)
            self._longer += len(row.text) > self._length
            yield self._counts.total()
        self.is_complete = self._table.stat().st_size <= MAX_BYTES

    def describe(self, summary: SourceSummary) -> None:
        total = self._counts.total()
        summary.facts.append(
            f"{self.at_least}{count_of(total, 'text')} in {count_of(len(self._counts), 'class')}."
        )
        if total:
            summary.facts.append(f"{self._characters / total:,.0f} characters on average.")
        if self._longer:
            summary.facts.append(
                f"{count_of(self._longer, 'text')} of more than {self._length:,} characters: truncated."
            )
        summary.list_faults("line", self._faults)
        if not total:
            summary.problems.append("The file has no texts.")
        elif len(self._counts) < 2 and self.is_complete:
            summary.problems.append("At least two classes are needed.")
        names, moved = (
            (self._labels, range(len(self._labels))) if self._labels else self._classes.sorted_names()
        )
        counts = {int(moved[place]): count for place, count in self._counts.items()}
        summary.set_bars(
            "Texts per class", [(name, counts.get(place, 0)) for place, name in enumerate(names)]
        )


def _preview(table: Path, delimiter: str, dialect: Dialect) -> Preview:
    """Return the first rows, with the columns of the class and of the text."""
    rows = list(itertools.islice(read_rows(table, delimiter, MAX_BYTES), PREVIEW_ROWS + 1))
    has_header = bool(rows) and is_header(rows[0], dialect)
    cells = [row.cells for row in rows]
    names = (
        cells.pop(0)
        if has_header
        else [f"column {index}" for index in range(1, max(map(len, cells), default=0) + 1)]
    )
    cells = cells[:PREVIEW_ROWS]
    return Preview.of_rows(names, cells, {index: "text" if index else "class" for index in range(len(names))})
