"""The texts of a CSV file: only the positions of their rows are kept in memory."""

from __future__ import annotations

import csv
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Located
from digits.data.tables.text_rows import TextRow, join_cells
from digits.kinds.text.characters import Encoding

_LINE = "line "


@dataclass
class Rows:
    """The usable rows of a file: their lines, positions, classes and numbers of characters, and the delimiter of cells.

    Each takes 32 bytes.
    """

    delimiter: str = ","

    lines: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    stops: array[int] = field(default_factory=lambda: array("q"))
    labels: array[int] = field(default_factory=lambda: array("i"))
    lengths: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, row: TextRow, label: int) -> None:
        self.lines.append(row.line)
        self.starts.append(row.start)
        self.stops.append(row.stop)
        self.labels.append(label)
        self.lengths.append(len(row.text))


class LineNames(Sequence[str]):
    """The names of records: ``line 12``. Only the numbers are kept in memory."""

    def __init__(self, lines: NDArray[np.int64]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [f"{_LINE}{line}" for line in self._lines[place]]
        return f"{_LINE}{self._lines[place]}"


@dataclass(frozen=True)
class TextFile(Located):
    """An `ImageSource` of the ``rows`` of a CSV file, by the names of their lines."""

    root: Path
    rows: Rows
    encoding: Encoding

    def read(self, name: str) -> bytes:
        """Return the text in line ``name`` as a PNG file."""
        return images.encode(self.encoding.encode(self.text(name)), "png")

    def text(self, name: str) -> str:
        """Return the text in line ``name``; raises UnusableImage and OSError."""
        place = bisect_left(self.rows.lines, int(name.removeprefix(_LINE)))
        start, stop = self.rows.starts[place], self.rows.stops[place]
        with open(self.root, "rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        try:
            cells = next(csv.reader(_split(data.decode()), delimiter=self.rows.delimiter))
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise UnusableImage("the file changed while it was read") from error
        return join_cells(cells[1:])


def _split(text: str) -> Iterable[str]:
    # Like a file: str.splitlines would also split at other characters.
    return (f"{line}\n" for line in text.split("\n"))
