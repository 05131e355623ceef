"""Summarize the source of pairs for the form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from digits.data.sources import UnusableSource, count_of
from digits.data.tables import Row
from digits.kinds.pairs.reader import NAMES, list_classes, read_rows
from digits.kinds.source_summary import SourceSummary, with_sample
from digits.kinds.table_summary import MAX_BYTES, RowSource, summarize_table

PairRow = Row[tuple[str, int]]


def summarize(source: Path, root: Path) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a CSV file of images below ``root``, or of a folder."""
    if source.is_dir():
        return _summarize_folder(source)

    def open_rows() -> RowSource[tuple[str, int]]:
        rows, is_whole = read_rows(source, root, MAX_BYTES)
        return RowSource("two images and a label each", rows, is_whole)

    def describe(rows: list[PairRow], summary: SourceSummary) -> None:
        values = [row.value for row in rows if row.value]
        missing = sum(not os.path.isfile(root / other) for other, _ in values[:1000])
        if missing:
            summary.problems.append(f"{count_of(missing, 'second image')} not found.")
        counts = Counter(label for _, label in values)
        summary.set_bars("Pairs", [(name, counts[place]) for place, name in enumerate(NAMES)])

    return summarize_table(root, open_rows, describe, None)


def _summarize_folder(folder: Path) -> Iterator[SourceSummary]:
    warnings: list[str] = []
    try:
        classes = list_classes(folder, warnings)
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return

    def describe() -> SourceSummary:
        count = sum(map(len, classes.values()))
        facts = [f"{count_of(count, 'image')} in {len(classes):,} classes."]
        summary = SourceSummary(facts=facts, problems=warnings)
        summary.set_bars("Images per class", [(name, len(files)) for name, files in classes.items()])
        return summary

    yield from with_sample(str(folder), [file for files in classes.values() for file in files], describe)
