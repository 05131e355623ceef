"""Recognize columns whose cells are neither labels nor boxes, and say how to convert them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from digits.data.sources import UnusableSource, show
from digits.data.tables import TableFile

_SAMPLE_ROWS = 200
_RUNS = re.compile(r"\d+ +\d+(?: +\d+ +\d+)*")
_RUN_NAME = re.compile(r"rle|encoded[-_ ]?pixels|run[-_ ]?lengths?", re.IGNORECASE)
_NUMBERS = re.compile(r"[\[(]?[-+.\deE]+(?:[,;\s]+[-+.\deE]+){15,}[\])]?")
_SENTENCE = re.compile(
    r"\w+ .*\b(?:a|an|the|of|on|in|is|are|with|and|at|to)\b.* \w+.?|(?:\S+ ){3,}\S+[.!?]", re.IGNORECASE
)
_MAX_CHARACTERS = 300


def refuse_contents(table: TableFile, places: Sequence[int]) -> None:
    """Raise UnusableSource if one of the columns ``places`` contains run lengths, long lists, or sentences."""
    rows = table.first_rows(_SAMPLE_ROWS)
    for place in places:
        cells = [row[place] for row in rows if place < len(row) and row[place]]
        if found := _contents(table.columns[place], cells):
            what, remedy = found
            raise UnusableSource(
                f"The column “{show(table.columns[place])}” of {show(table.path.name)} contains {what}, such as "
                f"“{show(cells[0][:60])}”.",
                remedy,
            )


def has_runs(table: TableFile) -> bool:
    """Return whether a column contains run lengths, which look like pixels."""
    rows = table.first_rows(_SAMPLE_ROWS)
    return any(
        _RUN_NAME.search(name) and any(place < len(row) and _RUNS.fullmatch(row[place]) for row in rows)
        for place, name in enumerate(table.columns)
    )


def _contents(name: str, cells: Sequence[str]) -> tuple[str, str] | None:
    """Return what cells contain and what to do instead; None if they can be labels."""
    if not cells:
        return None
    if all(map(_RUNS.fullmatch, cells)) and (_RUN_NAME.search(name) or all(map(_are_runs, cells))):
        return "run lengths of masks", (
            "Draw them as mask images, or save them as a COCO file with run lengths, and create a dataset for semantic "
            "segmentation."
        )
    if all(map(_NUMBERS.fullmatch, cells)):
        return "lists of numbers", (
            "If they are pixels, save the images as files. If they are features, train on the images themselves."
        )
    if len(set(cells)) > 1 and 2 * sum(
        bool(_SENTENCE.fullmatch(cell[:_MAX_CHARACTERS])) for cell in cells
    ) > len(cells):
        return "sentences", "Choose a column of labels, or write one with a few words that images share."
    return None


def _are_runs(cell: str) -> bool:
    """Return whether numbers are pairs of a start and a length that follow each other."""
    numbers = list(map(int, cell.split()))
    starts, lengths = numbers[::2], numbers[1::2]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    return len(numbers) > 2 and all(end <= start for end, start in zip(ends, starts[1:], strict=False))
