"""Plan the texts of CSV files and their classes."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from digits.core.splits import SPLITS
from digits.data.images.images import Geometry
from digits.data.records.records import Features
from digits.data.sources.plan import Plan, Progress, SplitPlan, UnusableSource, count_of, listed, show
from digits.data.tables.tables import Dialect, Faults, SourceNotes, open_lines
from digits.data.tables.text_rows import TextRow, find_delimiter, read_rows
from digits.data.targets.class_index import ClassIndex
from digits.kinds.sources.tables import SHOWN_ROWS
from digits.kinds.text.characters import Encoding, check_alphabet
from digits.kinds.text.lines import LineNames, Rows, TextFile
from digits.kinds.text.recipe import CreateText

MAX_CLASSES = 10_000
MAX_LABELS_BYTES = 1 << 20
TEXT_FEATURE = "text/snippet"
_HEADERS = {"class", "label", "category", "target"}
_PROGRESS_ROWS = 50_000


class TextPlan(Plan):
    """A plan whose records also contain the text, for pages."""

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        assert isinstance(split.images, TextFile)
        text = split.images.text(split.files[place])[: geometry.width]
        return {**super().features(split, place, geometry), TEXT_FEATURE: [text.encode()]}


class Classes:
    """The classes of a dataset: those of a list, or else those found in the train table.

    A class in a table is a name, or its number in the list, counted from 1.
    """

    def __init__(self, names: list[str] | None) -> None:
        self._is_listed = self._is_fixed = names is not None
        self._places = {name: index for index, name in enumerate(names or [])}

    def place(self, label: str) -> int:
        """Return the number of a class, counted from 0; raises ValueError, with a message, if it is unknown."""
        place = self._places.get(label)
        if place is not None:
            return place
        if not self._is_fixed:
            if len(self._places) >= MAX_CLASSES:
                raise ValueError(f"there are more than {MAX_CLASSES:,} classes")
            return self._places.setdefault(label, len(self._places))
        if (
            self._is_listed
            and label.isdecimal()
            and label.isascii()
            and 1 <= int(label[:9]) <= len(self._places)
        ):
            return int(label) - 1
        raise ValueError(f"unknown class “{show(label)}”")

    def fix(self) -> None:
        """Accept no further classes."""
        self._is_fixed = True

    def sorted_names(self) -> tuple[list[str], NDArray[np.int32]]:
        """Return the names, sorted as numbers if they are, and the new place of each old one."""
        names = list(self._places)
        is_number = all(name.isdecimal() and name.isascii() for name in names)
        order = sorted(
            range(len(names)), key=lambda place: (int(names[place]) if is_number else 0, names[place])
        )
        moved = np.empty(len(names), np.int32)
        moved[order] = np.arange(len(names))
        return [names[place] for place in order], moved


def read(recipe: CreateText, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource that names the first faulty lines."""
    paths = {"train": recipe.table, "val": recipe.val_table, "test": recipe.test_table}
    tables = {name: Path(path) for name, path in paths.items() if path}
    shares = recipe.shares(tables)
    try:
        check_alphabet(recipe.alphabet)
    except ValueError as error:
        raise UnusableSource(str(error)) from None
    labels = read_labels(Path(recipe.labels_file)) if recipe.labels_file else None
    classes = Classes(labels)
    rows_of: dict[str, Rows] = {}
    notes = SourceNotes()
    for name, path in tables.items():
        faults = Faults(path, recipe.max_unusable_percent, name)
        rows_of[name] = index_rows(path, recipe.dialect, classes, progress, faults)
        notes.add(faults)
        classes.fix()
    names, moved = (labels, np.arange(len(labels))) if labels else classes.sorted_names()
    if len(names) < 2:
        raise UnusableSource("All texts have the same class.", "At least two classes are needed.")
    encoding = Encoding(recipe.alphabet, recipe.width)
    chance = np.random.default_rng(recipe.seed)
    orders = {name: chance.permutation(len(rows)) for name, rows in rows_of.items()}
    parts = shares.slices(len(orders["train"]))
    splits: dict[str, SplitPlan] = {}
    for name in SPLITS:
        if name in rows_of or name in parts:
            origin = name if name in rows_of else "train"
            source = TextFile(tables[origin], rows_of[origin], encoding)
            splits[name] = _split(source, orders[origin][parts.get(name, slice(None))], moved)
    _show_rows(tables["train"], recipe.dialect, progress)
    notes.warnings += _unused(names, splits["train"])
    _say_texts(rows_of["train"], recipe.width, progress)
    return TextPlan(ClassIndex.of(names), splits, names, notes.warnings, notes.unusable, required_groups=2)


def _say_texts(rows: Rows, length: int, progress: Progress) -> None:
    """Report the number of texts and their lengths; those of more than ``length`` characters are truncated."""
    texts, classes = count_of(len(rows), "text"), count_of(len(set(rows.labels)), "class")
    progress.say(f"{progress.at_least}{texts} in {classes}.")
    lengths = np.frombuffer(rows.lengths, np.int32)
    progress.say(f"{lengths.mean():,.0f} characters on average.")
    if longer := int((lengths > length).sum()):
        progress.say(f"{count_of(longer, 'text')} of more than {length:,} characters: truncated.")


def _show_rows(table: Path, dialect: Dialect, progress: Progress) -> None:
    """Report the first rows, with the columns of the class and of the text."""
    delimiter = dialect.delimiter or find_delimiter(table)
    rows = list(itertools.islice(read_rows(table, delimiter), SHOWN_ROWS + 1))
    cells = [row.cells for row in rows]
    names = [f"column {index}" for index in range(1, max(map(len, cells)) + 1)]
    if is_header(rows[0], dialect):
        names = cells.pop(0)
    progress.show_rows(
        names, cells[:SHOWN_ROWS], {index: "text" if index else "class" for index in range(len(names))}
    )


def index_rows(
    path: Path, dialect: Dialect, classes: Classes, progress: Progress, faults: Faults | None = None
) -> Rows:
    """Read the lines, positions and classes of the rows in ``path``; raises UnusableSource.

    Rows that cannot be used are added to ``faults``; by default, there may be none.
    """
    dialect.check()
    faults = faults or Faults(path, 0)
    rows = Rows(dialect.delimiter or find_delimiter(path))
    texts = usable_rows(read_rows(path, rows.delimiter), dialect)
    for number, row in enumerate(progress.take(texts)):
        if not number % _PROGRESS_ROWS:
            progress.reading(f"Reading {show(path.name)}: {len(rows):,} texts")
        try:
            rows.add(row, parse_row(row, classes))
        except ValueError as error:
            faults.add(row.line, str(error))
    faults.check(len(rows))
    return rows


def usable_rows(rows: Iterable[TextRow], dialect: Dialect) -> Iterable[TextRow]:
    """Yield ``rows`` without the header: by default a first row with a name such as ``class`` in its first column."""
    for number, row in enumerate(rows):
        if number or not is_header(row, dialect):
            yield row


def is_header(row: TextRow, dialect: Dialect) -> bool:
    """Return whether a first row contains the names of the columns."""
    return dialect.is_header(row.cells, lambda cells: row.label.lower() in _HEADERS)


def parse_row(row: TextRow, classes: Classes) -> int:
    """Return the number of the class of ``row``; raises ValueError, with a message, if the row cannot be used."""
    if not row.label:
        raise ValueError("the class is missing")
    if not row.has_text:
        raise ValueError("the text is missing")
    return classes.place(row.label)


def read_labels(path: Path) -> list[str]:
    """Read the names of the classes, one per line; raises UnusableSource."""
    lines, is_whole = open_lines(path, MAX_LABELS_BYTES)
    names = [line.strip() for line in lines if line.strip()]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if not is_whole or len(names) > MAX_CLASSES:
        raise UnusableSource(f"{show(path.name)} has more than {MAX_CLASSES:,} classes.")
    if repeated:
        raise UnusableSource(f"{show(path.name)} lists classes more than once: {listed(repeated)}.")
    if len(names) < 2:
        raise UnusableSource(f"{show(path.name)} lists fewer than two classes.", "Write one class per line.")
    return names


def _split(source: TextFile, places: NDArray[np.int64], moved: NDArray[np.integer]) -> SplitPlan:
    lines = np.frombuffer(source.rows.lines, np.int64)[places]
    labels = array("i", moved[np.frombuffer(source.rows.labels, np.int32)[places]].astype(np.int32).tobytes())
    # Sequences that behave like lists but are smaller: a list of a million names takes 60 MB.
    return SplitPlan(
        source, cast(list[str], LineNames(lines)), cast(list[int], labels), cast(list[int], labels)
    )


def _unused(names: list[str], train: SplitPlan) -> list[str]:
    counts = np.bincount(np.asarray(train.groups), minlength=len(names))
    unused = [name for name, count in zip(names, counts, strict=True) if not count]
    return [f"Classes without training texts: {listed(unused)}."] if unused else []
