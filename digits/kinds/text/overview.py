"""Summarize a CSV file of texts for the form: rows, classes, lengths, and invalid lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.sources import UnusableSource, count_of
from digits.data.tables import first_lines
from digits.kinds.source_summary import Pace, SourceSummary, Suggestion
from digits.kinds.table_summary import MAX_BYTES
from digits.kinds.text.lines import read_rows
from digits.kinds.text.reader import Classes, parse_row, read_labels, usable_rows


@dataclass
class _Found:
    """The rows read so far."""

    counts: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    characters: int = 0
    longer: int = 0
    complete: bool = False


def summarize(
    table: Path, labels_file: Path | None, length: int, suggestion: Suggestion | None
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the texts in ``table``; the last one is finished.

    Texts of more than ``length`` characters are counted.
    """
    pace, found = Pace(), _Found()
    try:
        labels = read_labels(labels_file) if labels_file else None
        classes = Classes(labels)
        is_whole = table.stat().st_size <= MAX_BYTES
        for row in usable_rows(read_rows(table, MAX_BYTES)):
            try:
                found.counts[parse_row(row, classes)] += 1
            except ValueError as error:
                found.faults.append(f"line {row.line}: {error}")
            found.characters += len(row.text)
            found.longer += len(row.text) > length
            if pace.is_over(found.counts.total()):
                break
            if pace.is_due():
                yield _describe(found, classes, labels, length, suggestion, finished=False)
        else:
            found.complete = is_whole
    except (UnusableSource, OSError) as error:
        reason = error if isinstance(error, UnusableSource) else UnusableSource(f"{error.strerror}.")
        yield SourceSummary.unusable(reason)
        return
    yield _describe(found, classes, labels, length, suggestion, finished=True)


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
