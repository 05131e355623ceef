"""Recognize columns whose cells are neither labels nor boxes, and say how to convert them.

These are the run lengths (RLE) of masks, as competitions publish them, long lists of numbers, and sentences. Run
lengths are not read, because they do not say whether they count pixels by columns or by rows, which both exist.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from digits.data.sources.plan import UnusableSource, show
from digits.data.tables.tables import TableFile, has_no_image, open_table

_SAMPLE_ROWS = 200
_RUN_NAMES = re.compile(
    r"encoded_?pixels|rles?|(mask_?|encoded_?)rles?|rle_?(mask|encoded|encoding)s?|run_?lengths?"
)
_BOX_NAMES = re.compile(r"box|rect|coord|xy|ltrb|ltwh", re.IGNORECASE)
# At least two runs: the first pixel and the length of each.
_RUNS = re.compile(r"\d+ \d+( \d+ \d+)+")
_NUMBERS = re.compile(r"[\[(]?[-+.\deE]+(?:[,;\s]+[-+.\deE]+){15,}[\])]?")
_SENTENCE = re.compile(
    r"\w+ .*\b(?:a|an|the|of|on|in|is|are|with|and|at|to)\b.* \w+.?|(?:\S+ ){3,}\S+[.!?]", re.IGNORECASE
)
_MAX_CHARACTERS = 300
# Smaller numbers can be those of labels.
_LARGEST_LABEL = 1000
_MAX_BYTES = 1 << 18
_MAX_FILES = 10


def refuse_contents(table: TableFile, places: Sequence[int]) -> None:
    """Raise UnusableSource if one of the columns ``places`` contains run lengths, long lists, or sentences."""
    refuse_run_lengths(table, places, above=_LARGEST_LABEL)
    for place in places:
        cells = _cells(table, place)
        sentences = [cell for cell in cells if _SENTENCE.fullmatch(cell[:_MAX_CHARACTERS])]
        if cells and all(map(_NUMBERS.fullmatch, cells)):
            what = "lists of numbers"
            remedy = (
                "If they are pixels, save the images as files. If they are features, train on images instead."
            )
        elif len(set(sentences)) > 1 and 2 * len(sentences) > len(cells):
            what = "sentences"
            remedy = "Choose a column of labels, or write one with a few words that images share."
        else:
            continue
        name, example = show(table.columns[place]), show(cells[0][:60])
        raise UnusableSource(
            f"The column “{name}” of {show(table.path.name)} contains {what}, such as “{example}”.", remedy
        )


def refuse_run_lengths(table: TableFile, places: Sequence[int] | None = None, above: int = 0) -> None:
    """Raise UnusableSource if a column of ``table`` contains run lengths; only those at ``places`` if given.

    See `has_run_lengths` for ``above``.
    """
    for place in range(len(table.columns)) if places is None else places:
        if has_run_lengths(table, place, above):
            raise UnusableSource(
                f"The column “{show(table.columns[place])}” of {show(table.path.name)} contains masks as run lengths "
                "(RLE), which are not read from tables.",
                "Convert them to label images (PNG), or to a COCO file with run lengths (size and counts).",
            )


def refuse_run_lengths_in(folder: Path) -> None:
    """Raise UnusableSource if a table in ``folder`` contains run lengths."""
    files = itertools.islice(sorted(folder.glob("*.[cC][sS][vV]")), _MAX_FILES)
    for path in (path for path in files if path.is_file()):
        try:
            table = open_table(path, has_no_image, _MAX_BYTES)
        except UnusableSource:
            continue
        refuse_run_lengths(table)


def has_run_lengths(table: TableFile, place: int, above: int = 0) -> bool:
    """Return whether a column contains run lengths, by its name, or by cells with a number ``above`` this."""
    name = table.columns[place].strip().lower()
    cells = _cells(table, place)
    runs = [cell for cell in cells if _are_runs(cell)]
    is_above = any(max(map(int, cell.split())) > above for cell in runs)
    are_runs = is_above and 2 * len(runs) > len(cells) and not _BOX_NAMES.search(name)
    return are_runs or bool(_RUN_NAMES.fullmatch(name))


def _cells(table: TableFile, place: int) -> list[str]:
    """Return the first cells of a column that are not blank."""
    return [row[place] for row in table.first_rows(_SAMPLE_ROWS) if place < len(row) and row[place]]


def _are_runs(cell: str) -> bool:
    """Return whether a cell lists the starts and lengths of several runs that follow each other."""
    if not _RUNS.fullmatch(cell):
        return False
    numbers = list(map(int, cell.split()))
    ends = map(int.__add__, numbers[::2], numbers[1::2])
    return all(end <= start for end, start in zip(ends, numbers[2::2], strict=False))
