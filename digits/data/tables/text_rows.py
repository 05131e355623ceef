"""CSV files of texts, read row by row with the positions of the rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from digits.core.files import UnreadableFile, open_plain
from digits.data.sources.plan import UnusableSource, naming_unreadable, show

MAX_LINE_BYTES = 1 << 20
# Blank lines take as long as others.
MAX_UPLOADED_LINES = 1_000_000
MAX_SAMPLE_BYTES = 1 << 16
DELIMITERS = ",;|"
_BOM = b"\xef\xbb\xbf"


class TextRow(NamedTuple):
    """A row: the number of its first line, its position in the file in bytes, and its cells, the first is the class."""

    line: int
    start: int
    stop: int
    cells: list[str]

    @property
    def label(self) -> str:
        return join_cells(self.cells[:1])

    @property
    def text(self) -> str:
        return join_cells(self.cells[1:])

    @property
    def has_text(self) -> bool:
        return any(cell and not cell.isspace() for cell in self.cells[1:])


def read_rows(path: Path, delimiter: str = "", max_bytes: int | None = None) -> Iterator[TextRow]:
    """Yield the rows of a CSV file that are not blank: the class in the first column, then the text.

    By default, the delimiter is detected. Reads ``max_bytes``, rounded up to a row, if given. Raises UnusableSource
    that names the line.
    """
    with naming_unreadable(path), open(path, "rb") as file:
        yield from parse_rows(file, path.name, delimiter, max_bytes)


def parse_rows(
    file: BinaryIO, name: str, delimiter: str = "", max_bytes: int | None = None, max_lines: int | None = None
) -> Iterator[TextRow]:
    """Yield the rows of the open ``file`` called ``name``, like `read_rows`, which has at most ``max_lines``."""
    delimiter = delimiter or _delimiter_in(file)
    return _parse(_Lines(name, file, max_lines), delimiter, max_bytes)


def open_upload(file: bytes | Path, name: str) -> BinaryIO:
    """Open the contents or the path of the file of a request called ``name``; raises UnusableSource."""
    if isinstance(file, bytes):
        return BytesIO(file)
    try:
        return open_plain(file)
    except UnreadableFile as error:
        raise UnusableSource(f"{name} cannot be read: {error}.") from error


def read_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of an upload called ``name`` that are not blank; raises UnusableSource."""
    return (line.strip() for line in _Lines(name, file, MAX_UPLOADED_LINES) if not line.isspace())


class _Lines:
    """The decoded lines of a file, the position and the number of lines read so far."""

    def __init__(self, name: str, file: BinaryIO, max_lines: int | None = None) -> None:
        self._name, self._file, self._max_lines = name, file, max_lines
        self.stop = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
        file.seek(self.stop)
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(MAX_LINE_BYTES + 1):
            self.number += 1
            if self._max_lines is not None and self.number > self._max_lines:
                raise self.error(
                    f"the file has more than {self._max_lines:,} lines", "Split it into several files."
                )
            if len(line) > MAX_LINE_BYTES:
                raise self.error(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise self.error("not UTF-8 text", "Save the file as UTF-8.") from None
            self.stop += len(line)
            yield text

    def error(self, reason: str, hint: str = "", line: int | None = None) -> UnusableSource:
        return UnusableSource(f"{show(self._name)}, line {line or self.number}: {reason}.", hint)


def find_delimiter(path: Path) -> str:
    """Return the delimiter of the cells of a CSV file; raises UnusableSource.

    It is a tab if the first line contains one, else that of `DELIMITERS` after the shortest first cell: the text may
    contain the others.
    """
    with naming_unreadable(path), open(path, "rb") as file:
        return _delimiter_in(file)


def _delimiter_in(file: BinaryIO) -> str:
    line = file.readline(MAX_SAMPLE_BYTES).decode("utf-8-sig", "replace")
    file.seek(0)
    if "\t" in line:
        return "\t"
    return min(DELIMITERS, key=lambda delimiter: len(_first_cell(line, delimiter)))


def _first_cell(line: str, delimiter: str) -> str:
    try:
        return next(iter(next(csv.reader([line], delimiter=delimiter), [])), line)
    except csv.Error:
        return line


def _parse(lines: _Lines, delimiter: str, max_bytes: int | None) -> Iterator[TextRow]:
    # Strict: otherwise, an unclosed quotation mark swallows the rest of the file.
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    while max_bytes is None or lines.stop < max_bytes:
        start, line = lines.stop, lines.number + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise lines.error(
                f"the row cannot be read ({error})", "Check that every quotation mark is closed.", line
            ) from error
        if any(cell and not cell.isspace() for cell in cells):
            yield TextRow(line, start, lines.stop, cells)


def join_cells(cells: Sequence[str]) -> str:
    """Join the text of several columns, such as a title and a body, on one line."""
    return " ".join(" ".join(cells).split())
