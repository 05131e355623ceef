"""Summarize the source of pairs for the form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from digits.data.sources.plan import count_of
from digits.data.tables.tables import Row
from digits.kinds.forms.summary import Overview, SourceSummary
from digits.kinds.forms.table_summary import MAX_BYTES, RowSource, summarize_table
from digits.kinds.pairs.reader import NAMES, list_classes, read_rows

PairRow = Row[tuple[str, int]]


def summarize(source: Path, root: Path) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a CSV file of images below ``root``, or of a folder."""
    if source.is_dir():
        return _FolderOverview(source).summaries()

    def open_rows() -> RowSource[tuple[str, int]]:
        rows, table = read_rows(source, root, MAX_BYTES)
        return RowSource("two images and a label each", rows, table.is_whole, remarks=table.remarks)

    def describe(rows: list[PairRow], summary: SourceSummary) -> None:
        values = [row.value for row in rows if row.value]
        missing = sum(not os.path.isfile(root / other) for other, _ in values[:1000])
        if missing:
            summary.problems.append(f"{count_of(missing, 'second image')} not found.")
        counts = Counter(label for _, label in values)
        summary.set_bars("Pairs", [(name, counts[index]) for index, name in enumerate(NAMES)])

    return summarize_table(root, open_rows, describe)


class _FolderOverview(Overview):
    """The images of a ``folder`` of classes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._classes: dict[str, list[str]] = {}

    def read(self) -> Iterator[int]:
        self._classes = list_classes(self._folder, self.start.problems)
        yield sum(map(len, self._classes.values()))

    def conclude(self) -> tuple[str, list[str]]:
        return str(self._folder), [file for files in self._classes.values() for file in files]

    def describe(self, summary: SourceSummary) -> None:
        counts = [(name, len(files)) for name, files in self._classes.items()]
        images = count_of(sum(count for _, count in counts), "image")
        summary.facts.append(f"{images} in {len(counts):,} classes.")
        summary.set_bars("Images per class", counts)
