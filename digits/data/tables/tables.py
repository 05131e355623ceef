"""Read tables that list images, and divide their rows into splits.

A table is a CSV file, a file of JSON lines (``.jsonl``), or a Parquet file, which can also contain the images. It can
consist of several files with the same columns.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, NamedTuple, TypeVar

from digits.data.images.endings import KNOWN_ENDINGS
from digits.data.loose_json import InvalidJson, load
from digits.data.numbers import parse_number
from digits.data.sources.causes import CHECK_NAMES, LIMIT_FIELD, Causes, advise_limit, enough_percent
from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import (
    Progress,
    Remark,
    SkippedParts,
    Unusable,
    UnusableSource,
    count_of,
    first_line_of,
    first_lines,
    listed,
    read_bounded,
    show,
)
from digits.data.tables import parquet
from digits.data.tables.columns import Column, survey
from digits.data.tables.split_columns import SplitColumns, find_split_columns

MAX_TABLE_BYTES = Progress.max_bytes
MAX_HEADER_BYTES = 1024 * 1024
# Tables with more unusable rows are refused: they probably have another format.
MAX_FAULTS = 100_000
IMAGE_COLUMNS = ("image", "file_name")
# Further names of columns of images, in lowercase, if no column contains names of image files.
_ID_COLUMNS = ("image", "image_id", "image_name", "filename", "file", "path", "img", "id_code", "id")
_INDEX_COLUMNS = ("id", "index", "idx", "unnamed: 0")
MAX_PARQUET_ROWS = 20_000
MAX_COLUMNS = 10_000
DELIMITERS = "\t;|,"
MAX_LINE_BYTES = 1024 * 1024
_SAMPLE_LINES = 20
_SAMPLE_ROWS = 200
MAX_PATH_CHARACTERS = 4096
_DELIMITERS = re.compile(r"[,;\t|]")
_QUOTED = re.compile(r'"([^"]*)"')
_JSON_LIST = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?")
# Words of other encodings than Windows-1252: several letters beyond ASCII in sequence, and control characters.
_OTHER_ENCODING = re.compile(
    rb"[\x80-\xff]{4}|(?<![A-Za-z\x80-\xff])[\x80-\xff]{2,3}(?![A-Za-z\x80-\xff])"
    rb"|[\x81-\x84\x86-\x89\x8b\x8d\x8f\x90\x98\x9b\x9d]"
)

Cells = list[str]
Header = Literal["auto", "yes", "no"]
Value = TypeVar("Value")


class Row(NamedTuple, Generic[Value]):
    """A line of a table: the image relative to the image folder, and its value; or the reason for its ``fault``.

    ``is_missing``: the image does not exist, or is not a file. ``table`` is the name of the file, if there are several.
    ``split`` is the split that a column declares.
    """

    line: int
    file: str
    value: Value | None
    fault: str = ""
    is_missing: bool = False
    table: str = ""
    split: str = ""

    @property
    def place(self) -> str:
        """The line, and the file if there are several, for messages."""
        return f"{self.table}, line {self.line}" if self.table else f"line {self.line}"


@dataclass(frozen=True)
class Dialect:
    """The delimiter of a CSV file, and whether its first row contains the column names.

    An empty delimiter and the header ``auto`` are detected.
    """

    delimiter: str = ""
    header: Header = "auto"

    def check(self) -> None:
        """Raise UnusableSource if the delimiter is not one character that can separate cells."""
        if len(self.delimiter) > 1 or self.delimiter in {'"', "\r", "\n", "\0"}:
            raise UnusableSource(f"“{show(self.delimiter)}” is not a delimiter.", "Use one character.")

    def is_header(self, cells: Cells, detect: Callable[[Cells], bool]) -> bool:
        """Return whether the first row ``cells`` is the header; by default, ``detect`` decides."""
        return detect(cells) if self.header == "auto" else self.header == "yes"


AUTOMATIC = Dialect()


@dataclass
class TableFile:
    """The beginning of a table: the names of its columns, and the line numbers and cells of its rows.

    ``is_whole``: these are all rows. If the file itself contains images, ``images`` maps the places of their
    columns to the images, whose names are in the cells. ``more`` are further files with the same columns. ``remarks``
    are sentences about how the file is read; they may grow during iteration, which raises UnusableSource.
    ``splits`` are the columns that declare the splits; see `declare_splits`. ``classes`` are the names of the classes
    in columns of class indexes. ``again`` opens the file once more.
    """

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, Cells]]
    is_whole: bool
    images: dict[int, parquet.ParquetImages] = field(default_factory=dict)
    more: list[TableFile] = field(default_factory=list)
    delimiter: str = ""
    remarks: list[str] = field(default_factory=list)
    splits: SplitColumns | None = None
    classes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    again: Callable[[], TableFile] = field(kw_only=True)

    def survey(self, places: Iterable[int]) -> dict[int, Column]:
        """Return what the cells of all rows have in common in the columns ``places``; see `all_rows`."""
        return survey(self.all_rows(), list(places))

    def all_rows(self) -> Iterator[Cells]:
        """Yield the cells of all rows without those that iteration yields; raises UnusableSource."""
        for table in (self, *self.more):
            for _, cells in table.again().rows:
                yield cells

    def declare_splits(self, columns: Mapping[int, Column]) -> None:
        """Take the splits of the rows from those of ``columns`` that declare them, if any; raises UnusableSource."""
        self.splits = find_split_columns(self.columns, columns)
        if self.splits:
            self.remarks.append(self.splits.remark)

    def has_decimal_commas(self, places: Iterable[int]) -> bool:
        """Return whether numbers in the columns ``places`` have commas, which do not separate cells."""
        if self.delimiter in ("", ","):
            return False
        rows = self.first_rows(_SAMPLE_ROWS)
        return any(
            _DECIMAL_COMMA.fullmatch(cells[place]) for place in places for cells in rows if place < len(cells)
        )

    def first_rows(self, count: int) -> list[Cells]:
        """Return the cells of the first ``count`` rows, which iteration also yields."""
        first = list(itertools.islice(self.rows, count))
        self.rows = itertools.chain(first, self.rows)
        return [cells for _, cells in first]

    def need_rows(self) -> None:
        """Raise UnusableSource if there is no row."""
        if not any(table.first_rows(1) for table in (self, *self.more)) and self.is_whole:
            raise UnusableSource(f"{show(self.path.name)} has no rows.")

    def place(self, name: str) -> int:
        """Return the place of the column ``name``; raises UnusableSource.

        The default is that of the images, or one called ``image`` or ``file_name``, or the first one with names of
        images, or one called like ``image_id``, or the first one.
        """
        if not name:
            usual = [self.columns.index(word) for word in IMAGE_COLUMNS if word in self.columns]
            stored = [place for place in usual if place in self.images] or list(self.images)
            return next(iter(stored or usual or self._columns_of_images() or self._columns_of_ids()), 0)
        if name not in self.columns:
            raise UnusableSource(
                f"{show(self.path.name)} has no column “{show(name)}”.",
                f"Its columns are {listed(self.columns)}.",
            )
        return self.columns.index(name)

    def _columns_of_images(self) -> list[int]:
        rows = self.first_rows(_SAMPLE_ROWS)
        columns = range(len(self.columns))
        return [
            place
            for place in columns
            if rows and all(place < len(cells) and is_image(cells[place]) for cells in rows)
        ]

    def _columns_of_ids(self) -> list[int]:
        names = [name.lower() for name in self.columns]
        return [names.index(name) for name in _ID_COLUMNS if name in names]

    def is_index(self, place: int) -> bool:
        """Return whether a column numbers the rows: by its name, or a first one without a name that counts."""
        if self.columns[place].lower() in _INDEX_COLUMNS:
            return True
        if place or self.columns[0] != "column 1" or self.columns[1:2] == ["column 2"]:
            return False
        cells = [row[0] for row in self.first_rows(_SAMPLE_ROWS) if row]
        return cells in ([str(n + start) for n in range(len(cells))] for start in (0, 1))

    def places(self, names: Iterable[str], image: int) -> list[int]:
        """Return the places of the columns ``names``, by default all but ``image``, other images and splits.

        Raises UnusableSource.
        """
        places = [self.place(name) for name in names]
        others = (place for place in range(len(self.columns)) if place not in self.images)
        splits = self.splits.places if self.splits else []
        return places or [place for place in others if place not in (image, *splits)]

    def images_in(self, image: int) -> parquet.ParquetImages | None:
        """Return the images of the column ``image``; None if it contains paths."""
        return self.images.get(image)

    def need_paths(self, image: int) -> None:
        """Raise UnusableSource if the column ``image`` does not contain paths."""
        if self.images_in(image):
            raise UnusableSource(
                f"The column “{show(self.columns[image])}” of {show(self.path.name)} contains images.",
                "Choose a column of paths.",
            )

    def parse_stored(
        self, name: Callable[[int], str], parse: Callable[[Cells], Value]
    ) -> Iterator[Row[Value]]:
        """Yield the rows that contain images themselves, with the ``name`` of the image in each line."""
        for line, cells in self.rows:
            try:
                yield Row(line, name(line), parse(cells), split=self._split_of(cells))
            except ValueError as error:
                yield Row(line, "", None, str(error))

    def _split_of(self, cells: Cells) -> str:
        return self.splits.split_of(cells) if self.splits else ""

    def parse(
        self, root: Path, image: int, parse: Callable[[Cells], Value], others: Sequence[int] = ()
    ) -> Iterator[Row[Value]]:
        """Yield the rows with images below ``root``; ``parse`` raises ValueError for invalid cells.

        Paths are matched with the images by one rule for each column, which is added to the remarks; see
        `digits.data.sources.path_rules`. ``others`` are further columns of paths, whose cells ``parse`` gets as images.
        """
        is_stored = self.images_in(image) is not None
        columns = [*([] if is_stored else [image]), *others]
        tree = ImageTree(root)
        for table in (self, *self.more):
            name = show(table.path.name) if self.more else ""
            rows = list(table.rows) if columns else table.rows
            matches = {}
            for column in columns:
                paths = (cells[column] for _, cells in rows if column < len(cells))
                matches[column] = tree.match(path for path in paths if _is_one_line(path))
                self.remarks += matches[column].remarks(table.path.name)
            for line, cells in rows:
                try:
                    if is_stored:
                        file, exists = cells[image], True
                    else:
                        file, exists = matches[image].resolve(
                            one_line(cells[image]) if image < len(cells) else ""
                        )
                    for other in others:
                        if other < len(cells):
                            cells[other] = matches[other].locate(one_line(cells[other]))
                    split = self._split_of(cells)
                    yield Row(line, file, parse(cells), "", not exists, name, split)
                except ValueError as error:
                    yield Row(line, "", None, str(error), table=name)


def find_images(
    rows: Iterable[Row[Value]], path: Path, root: Path, remarks: list[str]
) -> Iterator[Row[Value]]:
    """Yield the ``rows`` of a list ``path``, which contain paths as written, with images below ``root``.

    See `digits.data.sources.path_rules`; the rule is added to the ``remarks``.
    """
    listed_rows = list(rows)
    matches = ImageTree(root).match(row.file for row in listed_rows if row.value is not None)
    remarks += matches.remarks(path.name)
    for row in listed_rows:
        if row.value is None:
            yield row
            continue
        try:
            file, exists = matches.resolve(row.file)
        except ValueError as error:
            yield Row(row.line, "", None, str(error))
        else:
            yield row._replace(file=file, is_missing=not exists)


def absolute_paths(head: bytes) -> Iterator[str]:
    """Yield what can be absolute paths in the first lines of a list of images, a CSV file, or JSON lines."""
    for line in head.decode("utf-8-sig", "ignore").splitlines()[:_SAMPLE_LINES]:
        # Followed by the index of a class, in a cell of a table, or in quotation marks.
        parts = (line, *line.rsplit(None, 1)[:1], *_DELIMITERS.split(line), *_QUOTED.findall(line))
        for part in dict.fromkeys(part.strip().strip('"') for part in parts):
            if part.startswith("/") and "\0" not in part and len(part) <= MAX_PATH_CHARACTERS:
                yield part


def one_line(cell: str) -> str:
    """Return ``cell``; raises ValueError if it has several lines, usually because of an unclosed quotation mark."""
    if not _is_one_line(cell):
        first = cell.splitlines()[0]
        raise ValueError(
            f"the cell “{show(first)}…” continues on the next line; check that every quotation mark is closed"
        )
    return cell


def _is_one_line(cell: str) -> bool:
    return "\n" not in cell and "\r" not in cell


def open_table(
    path: Path,
    is_header: Callable[[Cells], bool],
    max_bytes: int = MAX_TABLE_BYTES,
    dialect: Dialect = AUTOMATIC,
    root: Path | None = None,
) -> TableFile:
    """Open the first ``max_bytes`` of a table; raises UnusableSource. Of Parquet files, open 20,000 rows or all.

    ``is_header`` decides by the cells of the first row of a CSV file, unless the ``dialect`` does. Without a header,
    columns are called ``column 1``, ``column 2`` and so on. Images in Parquet files have names relative to ``root``, by
    default the folder of the file.
    """

    def again() -> TableFile:
        return open_table(path, is_header, max_bytes, dialect, root)

    match path.suffix.lower():
        case ".parquet":
            return _open_parquet(path, root or path.parent, max_bytes, again)
        case ".jsonl":
            return _open_json_lines(path, max_bytes)
    if path.suffix.lower() == ".json" or _starts_list(path):
        return _open_json(path)
    dialect.check()
    remarks: list[str] = []
    lines, is_whole = open_lines(path, max_bytes, remarks)
    start = list(itertools.islice(lines, _SAMPLE_LINES))
    declared = _SEPARATOR_LINE.fullmatch(start[0]) if start else None
    if declared:  # by Excel
        start[0] = "\n"
    delimiter = dialect.delimiter or (declared[1] if declared else _delimiter("".join(start)))
    rows = _without_blank_end(_rows(path, itertools.chain(start, lines), delimiter))
    columns, rows = _split_header(rows, path, lambda cells: dialect.is_header(cells, is_header))
    return TableFile(path, columns, rows, is_whole, delimiter=delimiter, remarks=remarks, again=again)


def open_tables(
    paths: Sequence[Path],
    is_header: Callable[[Cells], bool],
    max_bytes: int = MAX_TABLE_BYTES,
    dialect: Dialect = AUTOMATIC,
    root: Path | None = None,
) -> TableFile:
    """Open the files of a table like `open_table`; raises UnusableSource if their columns differ."""
    first, *more = [open_table(path, is_header, max_bytes, dialect, root) for path in paths]
    for table in more:
        if table.columns != first.columns or set(table.images) != set(first.images):
            raise UnusableSource(
                f"{show(table.path.name)} has the columns {listed(table.columns)}, {show(first.path.name)} "
                f"{listed(first.columns)}.",
                "All files of a table must have the same columns.",
            )
    first.more, first.is_whole = more, all(table.is_whole for table in (first, *more))
    return first


def _open_parquet(path: Path, root: Path, max_bytes: int, again: Callable[[], TableFile]) -> TableFile:
    max_rows = sys.maxsize if max_bytes == MAX_TABLE_BYTES else MAX_PARQUET_ROWS
    table = parquet.read_table(path, root, max_rows)
    images = {table.columns.index(name): parquet.ParquetImages(root, name) for name in table.images}
    classes = {table.columns.index(name): names for name, names in table.classes.items()}
    return TableFile(path, table.columns, table.rows, table.is_whole, images, classes=classes, again=again)


def _open_json_lines(path: Path, max_bytes: int) -> TableFile:
    is_whole = path.is_file() and path.stat().st_size <= max_bytes
    return _open_objects(path, lambda: _json_objects(path, open_lines(path, max_bytes)[0]), is_whole)


def _starts_list(path: Path) -> bool:
    """Return whether a file, such as an upload, begins like a list of JSON objects."""
    try:
        if not path.is_file():  # a pipe would block
            return False
        with open(path, "rb") as file:
            return _JSON_LIST.match(file.read(64)) is not None
    except OSError:
        return False


def _open_json(path: Path) -> TableFile:
    """Open a list of objects, such as the tasks of Label Studio."""
    name = show(path.name)
    try:
        items = load(read_bounded(path, MAX_TABLE_BYTES))
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UnusableSource(f"{name} is not valid JSON: {first_line_of(error)}.") from error
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UnusableSource(f"{name} is not a list of JSON objects.", "Export the annotations as CSV.")
    tasks = list(enumerate(map(_task, items), 1))
    return _open_objects(path, lambda: tasks, True)


def _task(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the data and the choices of a task of Label Studio as its items, or any other ``item``.

    A choice on which annotations disagree is missing.
    """
    data, annotations = item.get("data"), item.get("annotations")
    answers: dict[str, list[Any]] = {}
    if isinstance(data, dict) and isinstance(annotations, list):
        for annotation in annotations:
            if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
                continue
            for result in annotation.get("result") or []:
                if isinstance(result, dict) and result.get("type") == "choices":
                    answers.setdefault(str(result.get("from_name")), []).append(result.get("value"))
        item = {**data, **{name: _all_equal(values) for name, values in answers.items()}}
    return {name: _choices(value) for name, value in item.items()}


def _all_equal(values: list[Any]) -> Any:
    """Return the first of ``values`` if they are equal, else None."""
    return values[0] if all(value == values[0] for value in values) else None


def _choices(value: Any) -> Any:
    """Return the choices in a value of Label Studio, or any other value as it is."""
    choices = value.get("choices") if isinstance(value, dict) else None
    return choices if isinstance(choices, list) else value


def _open_objects(
    path: Path, objects: Callable[[], Iterable[tuple[int, dict[str, Any]]]], is_whole: bool
) -> TableFile:
    """Open the table of ``objects``, which are read twice: only the last one may have a column, or a list in it.

    In a column with lists, another value is a list with one item.
    """
    columns: dict[str, None] = {}
    lists: set[str] = set()
    for line, item in objects():
        columns.update(dict.fromkeys(item))
        lists.update(name for name, value in item.items() if isinstance(value, list))
        if len(columns) > MAX_COLUMNS:
            raise UnusableSource(
                f"{show(path.name)}, line {line}: more than {MAX_COLUMNS:,} different names."
            )
    if not columns:
        raise UnusableSource(f"{show(path.name)} is empty.")
    names = list(columns)

    def text(item: dict[str, Any], name: str) -> str:
        value = item.get(name)
        is_single = name in lists and value is not None and not isinstance(value, list)
        return parquet.cell_text([value] if is_single else value)

    def rows() -> Iterator[tuple[int, Cells]]:
        for line, item in objects():
            yield line, [text(item, name) for name in names]

    def table() -> TableFile:
        return TableFile(path, names, rows(), is_whole, again=table)

    return table()


def open_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the line numbers and objects of a file of JSON lines; raises UnusableSource, also on iteration."""
    lines, _ = open_lines(path)
    return _json_objects(path, lines)


def _json_objects(path: Path, lines: Generator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects in lines that are not blank, with their line numbers."""
    with contextlib.closing(lines):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                item = load(line, dict[str, Any])
            except InvalidJson as error:
                raise UnusableSource(
                    f"{show(path.name)}, line {number}, is not a JSON object: {error}."
                ) from error
            yield number, item


def open_lines(
    path: Path, max_bytes: int = MAX_TABLE_BYTES, remarks: list[str] | None = None
) -> tuple[Generator[str], bool]:
    """Return the lines in the first ``max_bytes`` of a text file, with their ends, and whether these are all lines.

    The text is UTF-8, or UTF-16 with a byte order mark. With ``remarks``, it may also be Windows-1252; a sentence is
    then added to them. Raises UnusableSource; so does the iteration.
    """
    try:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        size = path.stat().st_size
        file = open(path, "rb")  # noqa: SIM115 (closed by the iterator)
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    if size > max_bytes == MAX_TABLE_BYTES:
        file.close()
        raise UnusableSource(f"{show(path.name)} is larger than {MAX_TABLE_BYTES >> 20} MiB.", "Divide it.")
    return _lines(path, file, max_bytes, remarks), size <= max_bytes


class Faults:
    """The parts of the source ``path`` that cannot be used, such as lines of a table or files of annotations.

    ``path`` can be empty if all parts are added with their file. At most ``max_percent`` of all parts may be skipped;
    ``usable`` is the number of the others. ``row`` is the word for a part in messages, and ``hint`` the advice in the
    error if there are too many, by default that for the most frequent cause. Without ``are_images``, the parts are
    annotations, which do not count as unusable images.
    """

    def __init__(
        self,
        path: Path,
        max_percent: float = 0,
        split: str = "",
        row: str = "line",
        *,
        are_images: bool = True,
        hint: str = "",
    ) -> None:
        self._name, self._max_percent, self._split, self._row = show(path.name), max_percent, split, row
        self._are_images, self._hint = are_images, hint
        self._found: list[tuple[str, str]] = []
        self._causes = Causes()
        self.notes: list[str] = []
        self.usable = 0

    @property
    def count(self) -> int:
        """The number of parts added so far."""
        return self._causes.count

    @property
    def unusable(self) -> list[Unusable]:
        """The parts added so far."""
        return [
            Unusable(path, reason, self._split, is_image=self._are_images) for path, reason in self._found
        ]

    def add(self, line: int, reason: str, file: str = "") -> None:
        """Add a line; ``file`` is the name of its file, if the source consists of several."""
        self.add_place(f"{self._row} {line}", reason, file)

    def add_place(self, place: str, reason: str, file: str = "") -> None:
        """Add a part at ``place``, such as ``annotation 7``; without it, the whole ``file``, one of several."""
        self._causes.add(", ".join(filter(None, (file, place))), reason)
        if self.count <= MAX_FAULTS:
            self._found.append((", ".join(filter(None, (file or self._name, place))), reason))

    def remarks(self) -> list[str]:
        """Return the ``notes`` of the source, and a sentence about the parts added so far."""
        skipped = []
        if self.count:
            percent = enough_percent(self.count, self.usable + self.count)
            skipped = [SkippedParts.of(f"{self.describe()} {self.hint}".rstrip(), percent)]
        return [*map(Remark, self.notes), *skipped]

    @property
    def hint(self) -> str:
        """The advice about the parts added so far."""
        return self._hint or self._causes.remedy

    def describe(self) -> str:
        """Return a sentence that names the causes; empty if there are none."""
        if not self.count:
            return ""
        source = f" of {self._name}" if self._name else ""
        return f"{count_of(self.count, self._row)}{source} cannot be used: {self._causes.describe()}."

    def check(self, usable: int) -> None:
        """Raise UnusableSource if there are too many compared to the ``usable`` parts, or if no part is usable.

        The message names the causes.
        """
        self.usable = usable
        self._check_limit()
        if not usable:
            raise UnusableSource(f"{self._name} has no rows.")

    def collect(self, max_percent: float, split: str) -> list[Unusable]:
        """Return the parts, which are those of ``split``; raises UnusableSource if more than ``max_percent``."""
        self._max_percent, self._split = max_percent, split
        self._check_limit()
        return self.unusable

    def _check_limit(self) -> None:
        is_over = self.count * 100 > (self.usable + self.count) * self._max_percent
        if self.count and (is_over or not self.usable or self.count > MAX_FAULTS):
            hint, remedy = self.hint, {}
            if self.usable and self.count <= MAX_FAULTS:
                percent = enough_percent(self.count, self.usable + self.count)
                hint, remedy = f"{hint} {advise_limit(percent)}", {LIMIT_FIELD: str(percent)}
            raise UnusableSource(self.describe(), hint, remedy=remedy)


class Repeats:
    """The images that several rows name: with the same value they count once, with several they cannot be used.

    ``noun`` is the word for a value.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._places: dict[str, int] = {}
        self._first: list[tuple[int, str, Any]] = []
        self._same: list[str] = []
        self._other: dict[int, list[tuple[int, str, Any]]] = {}

    def is_repeated(self, image: str, value: Any, line: int, table: str = "") -> bool:
        """Return whether a row before named the ``image``; call this for all usable rows in their order."""
        place = self._places.setdefault(image, len(self._first))
        row = line, table, value
        if place == len(self._first):
            self._first.append(row)
            return False
        if value == self._first[place][2]:
            self._same.append(image)
        else:
            self._other.setdefault(place, []).append(row)
        return True

    def settle(self, faults: Faults) -> list[int]:
        """Return the places of the images with one value; add the others, and a remark, to ``faults``."""
        images = list(self._places) if self._other else []
        for place, others in self._other.items():
            rows = [self._first[place], *others]
            values = listed(f"{_shown(value)} in line {line}" for line, _, value in rows)
            faults.add_place(f"{show(images[place])} ({values})", f"several {self._noun}s", rows[0][1])
        if self._same:
            what = "1 line repeats" if len(self._same) == 1 else f"{len(self._same):,} lines repeat"
            faults.notes = [*faults.notes, f"{what} an image with its {self._noun}: {listed(self._same)}."]
        return [place for place in range(len(self._first)) if place not in self._other]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(f"{number:g}" for number in value)


@dataclass
class SourceNotes:
    """The ``warnings`` about a source, and its ``unusable`` parts, which are skipped."""

    warnings: list[str] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)

    def add(self, faults: Faults) -> None:
        """Add the parts of the source in ``faults``, and its remarks."""
        self.unusable += faults.unusable
        self.warnings += faults.remarks()


def usable_rows(
    rows: Iterable[Row[Value]], faults: Faults, noun: str = ""
) -> tuple[list[Row[Value]], list[Value]]:
    """Return the usable rows and their values; the others are added to ``faults``.

    With a ``noun`` for their values, rows of one image count once, or not if their values differ. Raises UnusableSource
    if too many rows cannot be used.
    """
    usable: list[Row[Value]] = []
    values: list[Value] = []
    repeats = Repeats(noun)
    for row in rows:
        if row.value is None:
            faults.add(row.line, row.fault, row.table)
            continue
        if noun and repeats.is_repeated(row.file, row.value, row.line, row.table):
            continue
        usable.append(row)
        values.append(row.value)
    if noun:
        places = repeats.settle(faults)
        usable, values = [usable[place] for place in places], [values[place] for place in places]
    faults.check(len(usable))
    return usable, values


def missing_images(rows: Iterable[Row[Any]], file: str) -> str:
    """Return a sentence about the ``rows`` of ``file`` whose images do not exist; empty if there are none."""
    missing = [f"{row.place}: {show(row.file)}" for row in rows if row.is_missing]
    if not missing:
        return ""
    return (
        f"{count_of(len(missing), 'image')} of {show(file)} not found: {first_lines(missing)}. {CHECK_NAMES}"
    )


def is_number(text: str) -> bool:
    """Return whether a cell is a number, with a decimal point or comma."""
    try:
        parse_number(text)
    except ValueError:
        return _DECIMAL_COMMA.fullmatch(text) is not None
    return True


def number_of(text: str, has_decimal_commas: bool) -> float:
    """Return the number in a cell; raises ValueError with a message.

    With ``has_decimal_commas``, points in other numbers could be those of thousands.
    """
    if not is_number(text) or (not has_decimal_commas and "," in text):
        raise ValueError(f"“{show(text)}” is not a number")
    if not has_decimal_commas:
        return parse_number(text)
    if "." in text and "," not in text:
        raise ValueError(f"“{show(text)}” has a point, while other numbers have a decimal comma")
    return parse_number(text.replace(".", "").replace(",", "."))


def has_no_image(cells: Cells) -> bool:
    """Return whether a first row contains names, because none of its cells looks like the path of an image."""
    return not any(map(is_image, cells))


def is_image(cell: str) -> bool:
    """Return whether a cell looks like the path of an image."""
    return cell.strip().lower().endswith(KNOWN_ENDINGS)


def _lines(path: Path, file: BinaryIO, max_bytes: int, remarks: list[str] | None) -> Generator[str]:
    def place(number: int) -> str:
        return f"{show(path.name)}, line {number},"

    taken = 0
    encoding, is_ascii = "utf-8", True
    with file:
        if is_image(path.name):
            raise UnusableSource(
                f"{show(path.name)} is an image, not a table.",
                "Enter a table that lists the images, or another source.",
            )
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            file.seek(0)
            yield from _utf16_lines(path, file, max_bytes)
            return
        file.seek(0)
        for number in itertools.count(1):
            data = file.readline(MAX_LINE_BYTES + 1)
            taken += len(data)
            if not data or taken > max_bytes:
                return
            if len(data) > MAX_LINE_BYTES:
                raise UnusableSource(f"{place(number)} is longer than {MAX_LINE_BYTES >> 20} MiB.")
            if b"\0" in data:
                raise UnusableSource(f"{place(number)} contains a null character.", "Save it as UTF-8 text.")
            if data.isascii():
                yield data.decode()
                continue
            try:
                line = data.decode("utf-8-sig" if number == 1 else encoding)
            except UnicodeDecodeError as error:
                is_windows = is_ascii and remarks is not None and not _OTHER_ENCODING.search(data)
                if remarks is None or not is_windows:
                    raise UnusableSource(
                        f"{place(number)} is not UTF-8 text.", "Save it as UTF-8."
                    ) from error
                encoding = "cp1252"
                line = data.decode(encoding)
                remarks.append(
                    f"{show(path.name)} is not UTF-8: read as Windows-1252, such as “{show(line.strip()[:80])}”."
                )
            else:
                if encoding == "cp1252" and _OTHER_ENCODING.search(data):
                    raise UnusableSource(f"{place(number)} is not UTF-8 text.", "Save it as UTF-8.")
            is_ascii = False
            yield line


def _utf16_lines(path: Path, file: BinaryIO, max_bytes: int) -> Generator[str]:
    taken = 0
    with io.TextIOWrapper(file, "utf-16", newline="") as text:
        for number in itertools.count(1):
            try:
                line = text.readline(MAX_LINE_BYTES + 1)
            except UnicodeError as error:
                raise UnusableSource(
                    f"{show(path.name)}, line {number}, is not UTF-16 text.", "Save it as UTF-8."
                ) from error
            taken += 2 * len(line)
            if not line or taken > max_bytes:
                return
            if len(line) > MAX_LINE_BYTES:
                raise UnusableSource(
                    f"{show(path.name)}, line {number}, is longer than {MAX_LINE_BYTES >> 20} MiB."
                )
            yield line


def _without_blank_end(rows: Iterator[tuple[int, Cells]]) -> Iterator[tuple[int, Cells]]:
    """Drop the last columns if they are blank in the first rows: spreadsheets add such columns."""
    start = list(itertools.islice(rows, _SAMPLE_LINES))
    end = width = len(start[0][1]) if start else 0
    while end > 2 and not any(any(cells[end - 1 :]) for _, cells in start):
        end -= 1
    if end == width:
        yield from start
        yield from rows
        return
    for line, cells in itertools.chain(start, rows):
        yield line, cells if any(cells[end:]) else cells[:end]


def _rows(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, Cells]]:
    """Yield the rows of a table that are not blank, with their line numbers."""
    # Strict: otherwise, an unclosed quotation mark swallows the rest of the file.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UnusableSource(
                f"{show(path.name)}, line {line}: the row cannot be read ({error}).",
                "Check that every quotation mark is closed.",
            ) from error
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            yield line, stripped


def _delimiter(text: str) -> str:
    """Return the delimiter that splits the first lines into the same number of cells, or into the most cells."""
    lines = text.splitlines()[:_SAMPLE_LINES]

    def score(delimiter: str) -> tuple[bool, int, int]:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a cell is too long
            return False, 0, 0
        cells = [len(row) for row in rows]
        is_even = bool(cells) and min(cells) == max(cells) > 1
        return is_even, sum(any(map(is_image, row)) for row in rows), sum(cells)

    # Of several, not the comma: it may be that of decimals, or in texts.
    return max(DELIMITERS, key=score)


def _split_header(
    rows: Iterator[tuple[int, Cells]], path: Path, is_header: Callable[[Cells], bool]
) -> tuple[list[str], Iterator[tuple[int, Cells]]]:
    """The names of the columns, and the rows without them."""
    first = next(rows, None)
    if first is None:
        raise UnusableSource(f"{show(path.name)} is empty.")
    line, cells = first
    if is_header(cells):
        names = [name or f"column {index}" for index, name in enumerate(cells, 1)]
        if len(set(names)) < len(names):
            raise UnusableSource(f"{show(path.name)}, line {line}: two columns have the same name.")
        return names, rows

    def with_first() -> Iterator[tuple[int, Cells]]:
        yield line, cells
        yield from rows

    return [f"column {index}" for index in range(1, len(cells) + 1)], with_first()
