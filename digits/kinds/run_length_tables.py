"""Tables with the run lengths (RLE) of masks, as competitions publish them. They are recognized, but not read.

They do not say whether they count the pixels of an image by columns or by rows, which both exist.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from digits.data.sources import UnusableSource, show
from digits.data.tables import TableFile, has_no_image, open_table

_NAMES = re.compile(
    r"encoded_?pixels|rles?|(mask_?|encoded_?)rles?|rle_?(mask|encoded|encoding)s?|run_?lengths?"
)
# At least two runs: the first pixel and the length of each.
_RUNS = re.compile(r"\d+ \d+( \d+ \d+)+")
_MAX_BYTES = 1 << 18
_ROWS = 50
_MAX_FILES = 10


def refuse_run_lengths(table: TableFile) -> None:
    """Raise UnusableSource if a column of ``table`` contains run lengths."""
    rows = table.first_rows(_ROWS)
    for place, name in enumerate(table.columns):
        cells = [row[place].strip() for row in rows if place < len(row) and row[place].strip()]
        are_runs = bool(cells) and sum(map(bool, map(_RUNS.fullmatch, cells))) > len(cells) / 2
        if are_runs or _NAMES.fullmatch(name.strip().lower()):
            raise UnusableSource(
                f"The column “{show(name)}” of {show(table.path.name)} contains masks as run lengths (RLE), which are "
                "not read from tables.",
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
