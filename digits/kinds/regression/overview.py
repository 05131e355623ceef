"""Summarize a table of images and numbers for the form: columns, and ranges of the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from digits.data.records.features import ExampleFeatures
from digits.data.records.files import RecordFiles
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.data.tables.tables import Row
from digits.kinds.forms import summary as source_summary
from digits.kinds.forms.summary import SourceSummary
from digits.kinds.forms.table_summary import MAX_BYTES, RowSource
from digits.kinds.regression.databases import column_names, find, first_values, open_images
from digits.kinds.regression.reader import bins, open_numbers
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.regression.records import NumberMapping
from digits.kinds.sources.tables import SplitTable

MAX_RANGES = 8
MAX_DATABASE_ROWS = 20_000


class Overview:
    """The rows of a table of images, and their description."""

    def __init__(self, recipe: CreateRegression) -> None:
        self._recipe = recipe
        self._names: list[str] = []

    def open(self, table: SplitTable) -> RowSource[list[float]]:
        """Open a table, whose paths are real ones; raises UnusableSource."""
        rows = open_numbers(self._recipe, table, MAX_BYTES)
        self._names = rows.names
        what = "a number" if len(self._names) == 1 else f"{len(self._names)} numbers"
        return RowSource.of(f"{what} each: {listed(self._names)}", rows, "target")

    def describe(self, rows: list[Row[list[float]]], summary: SourceSummary) -> None:
        """Add the range of each number, and the distribution of the first one."""
        _describe(self._names, np.array([row.value for row in rows], np.float64), summary)


class RecordOverview(NumberMapping):
    """The numbers in TFRecord files, and their description."""

    def __init__(self, recipe: CreateRegression, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        self._values: list[list[float]] = []

    def check(self, features: ExampleFeatures) -> None:
        """Read the numbers of a record; raises ValueError with a message."""
        self._values.append(self.read(features))

    def describe(self, summary: SourceSummary) -> None:
        """Add the range of each number, and the distribution of the first one."""
        if self._values:
            _describe(self.names, np.array(self._values, np.float64), summary)


class DatabaseOverview(source_summary.Overview):
    """The databases in ``sources``; see `find`."""

    def __init__(self, sources: Iterable[tuple[str, str, str]]) -> None:
        super().__init__()
        self._sources = sources

    def read(self) -> Iterator[int]:
        paths = find(self._sources)
        splits = open_images(paths)
        try:
            values = np.array(list(first_values(paths["train"], MAX_DATABASE_ROWS)), np.float64)
        except ValueError:  # rows of different lengths
            raise UnusableSource("The labels have different shapes.") from None
        counts = [f"{name} {images.count:,}" for name, images in splits.items()]
        total = sum(images.count for images in splits.values())
        self.start.facts.append(
            f"A generic DIGITS dataset with {count_of(total, 'image')}: {', '.join(counts)}."
        )
        for images in splits.values():
            images.close()
        if not values.size:
            self.start.problems.append("There are no labels.")
        elif np.isfinite(values).all():
            _describe(column_names(values.shape[1]), values, self.start)
        else:
            self.start.problems.append("Some labels are NaN or infinite.")
        yield total


def _describe(names: list[str], values: NDArray[np.float64], summary: SourceSummary) -> None:
    ranges = [
        f"{show(name)} {low:.6g} to {high:.6g}"
        for name, low, high in zip(names, values.min(axis=0), values.max(axis=0), strict=True)
    ]
    more = f" and {len(ranges) - MAX_RANGES} more" if len(ranges) > MAX_RANGES else ""
    summary.facts.append(f"Ranges: {', '.join(ranges[:MAX_RANGES])}{more}.")
    edges, groups = bins(values[:, 0])
    counts = np.bincount(np.digitize(values[:, 0], edges), minlength=len(groups))
    summary.set_bars(f"Images by {show(names[0])}", list(zip(groups, counts.tolist(), strict=True)))
