"""Summarize a CSV file of texts for the form: rows, classes, lengths, and invalid lines."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.sources import UnusableSource, count_of
from digits.data.tables import Dialect, first_lines
from digits.kinds.source_summary import Pace, SourceSummary, Suggestion
from digits.kinds.table_summary import MAX_BYTES, PREVIEW_ROWS, Preview
from digits.kinds.text.lines import find_delimiter, read_rows
from digits.kinds.text.reader import Classes, is_header, parse_row, read_labels, usable_rows


@dataclass
class _Found:
    """The rows read so far."""

    counts: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    characters: int = 0
    longer: int = 0
    complete: bool = False


def summarize(
    table: Path, dialect: Dialect, labels_file: Path | None, length: int, suggestion: Suggestion | None
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the texts in ``table``; the last one is finished.

    Texts of more than ``length`` characters are counted.
    """
    pace, found = Pace(), _Found()
    try:
        dialect.check()
        delimiter = dialect.delimiter or find_delimiter(table)
        preview = _preview(table, delimiter, dialect)
        labels = read_labels(labels_file) if labels_file else None
        classes = Classes(labels)
        is_whole = table.stat().st_size <= MAX_BYTES
        for row in usable_rows(read_rows(table, delimiter, MAX_BYTES), dialect):
            try:
                found.counts[parse_row(row, classes)] += 1
            except ValueError as error:
                found.faults.append(f"line {row.line}: {error}")
            found.characters += len(row.text)
            found.longer += len(row.text) > length
            if pace.is_over(found.counts.total()):
                break
            if pace.is_due():
                summary = _describe(found, classes, labels, length, suggestion, finished=False)
                preview.add_to(summary)
                yield summary
        else:
            found.complete = is_whole
    except (UnusableSource, OSError) as error:
        reason = error if isinstance(error, UnusableSource) else UnusableSource(f"{error.strerror}.")
        yield SourceSummary.unusable(reason)
        return
    summary = _describe(found, classes, labels, length, suggestion, finished=True)
    preview.add_to(summary)
    yield summary


def _preview(table: Path, delimiter: str, dialect: Dialect) -> Preview:
    """Return the first rows, with the columns of the class and of the text."""
    rows = list(itertools.islice(read_rows(table, delimiter, MAX_BYTES), PREVIEW_ROWS + 1))
    has_header = bool(rows) and is_header(rows[0], dialect)
    cells = [row.cells for row in rows]
    names = (
        cells.pop(0)
        if has_header
        else [f"column {place}" for place in range(1, max(map(len, cells), default=0) + 1)]
    )
    cells = cells[:PREVIEW_ROWS]
    return Preview.of_rows(names, cells, {place: "text" if place else "class" for place in range(len(names))})


def _describe(
    found: _Found,
    classes: Classes,
    labels: list[str] | None,
    length: int,
    suggestion: Suggestion | None,
    *,
    finished: bool,
) -> SourceSummary:
    summary = SourceSummary(suggestion=suggestion, finished=finished)
    total = found.counts.total()
    at_least = "" if found.complete else "At least "
    summary.facts.append(f"{at_least}{count_of(total, 'text')} in {len(found.counts):,} classes.")
    if total:
        summary.facts.append(f"{found.characters / total:,.0f} characters on average.")
    if found.longer:
        summary.facts.append(
            f"{count_of(found.longer, 'text')} of more than {length:,} characters: truncated."
        )
    if found.faults:
        summary.problems.append(
            f"{count_of(len(found.faults), 'line')} cannot be used: {first_lines(found.faults)}."
        )
    if not total:
        summary.problems.append("The file has no texts.")
    elif len(found.counts) < 2 and found.complete:
        summary.problems.append("At least two classes are needed.")
    names, moved = (labels, range(len(labels))) if labels else classes.sorted_names()
    counts = {int(moved[place]): count for place, count in found.counts.items()}
    summary.set_bars("Texts per class", [(name, counts.get(place, 0)) for place, name in enumerate(names)])
    return summary
