"""Summarize a table of images and numbers for the form: columns, and ranges of the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from digits.data.sources import listed, show
from digits.data.tables import Row
from digits.kinds.regression.reader import bins, read_rows
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_summary import MAX_BYTES, RowSource

MAX_RANGES = 8


class Overview:
    """The rows of a ``table`` of images below ``root``, and their description. Both are real paths."""

    def __init__(self, table: Path, root: Path, image_column: str, target_columns: list[str]) -> None:
        self._arguments = table, root, image_column, target_columns
        self._names: list[str] = []

    def open(self) -> RowSource[list[float]]:
        """Open the table; raises UnusableSource."""
        self._names, rows, is_whole = read_rows(*self._arguments, MAX_BYTES)
        what = "a number" if len(self._names) == 1 else f"{len(self._names)} numbers"
        return RowSource(f"{what} each: {listed(self._names)}", rows, is_whole)

    def describe(self, rows: list[Row[list[float]]], summary: SourceSummary) -> None:
        """Add the range of each number, and the distribution of the first one."""
        values = np.array([row.value for row in rows], np.float64)
        ranges = [
            f"{show(name)} {low:.6g} to {high:.6g}"
            for name, low, high in zip(self._names, values.min(axis=0), values.max(axis=0), strict=True)
        ]
        more = f" and {len(ranges) - MAX_RANGES} more" if len(ranges) > MAX_RANGES else ""
        summary.facts.append(f"Ranges: {', '.join(ranges[:MAX_RANGES])}{more}.")
        edges, groups = bins(values[:, 0])
        counts = np.bincount(np.digitize(values[:, 0], edges), minlength=len(groups))
        summary.set_bars(f"Images by {show(self._names[0])}", list(zip(groups, counts.tolist(), strict=True)))
