"""Datasets whose source is a table that lists images: the recipe, and the plan of the splits."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic

from msgspec import Meta, Struct

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data.sources.dataset_folder import Contents, describe_files, find
from digits.data.sources.plan import (
    ImageFolder,
    Progress,
    SplitPlan,
    UnusableSource,
    count_of,
    listed,
    show,
    shuffle,
)
from digits.data.sources.shares import AnyRecords, CreateWithShares, permute
from digits.data.tables.columns import Column, are_spaced
from digits.data.tables.parquet import ParquetImages, in_row_order
from digits.data.tables.tables import (
    MAX_HEADER_BYTES,
    Dialect,
    Faults,
    Header,
    Row,
    SourceNotes,
    TableFile,
    Value,
    missing_images,
    usable_rows,
)

SHOWN_ROWS = 5

Delimiter = Annotated[str, Meta(pattern=r"^[^\r\n\x00\x22]?\Z")]


class TableSettings(Struct, kw_only=True, frozen=True):
    """How tables are written: see `digits.data.tables.tables.Dialect` for ``delimiter`` and ``header``."""

    delimiter: Delimiter = ""
    header: Header = "auto"

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.header)


class CreateFromLines(CreateWithShares, kw_only=True):
    """Read tables; see `digits.data.tables.tables.Dialect` for ``delimiter`` and ``header``."""

    delimiter: Delimiter = ""
    header: Header = "auto"

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.header)


class CreateFromTable(CreateFromLines, kw_only=True):
    """Read a table of images: the file ``table``, or Parquet files or metadata of `digits.data.sources.dataset_folder`.

    The paths in the column ``image_column``, by default the first, are relative to ``folder``. Columns of a table
    without a header are called ``column 1``, ``column 2`` and so on. ``val_table`` and ``test_table`` are separate
    tables with the same columns, whose paths are relative to ``val_folder`` and ``test_folder``, by default ``folder``;
    the folder ``table`` can also contain such splits.
    """

    table: str
    folder: str
    image_column: str = ""
    val_table: str | None = None
    val_folder: str | None = None
    test_table: str | None = None
    test_folder: str | None = None

    def sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each split that has a table, train first, with its table and the folder of its images."""
        yield "train", self.table, self.folder
        for split, table, folder in (
            ("val", self.val_table, self.val_folder),
            ("test", self.test_table, self.test_folder),
        ):
            if table:
                yield split, table, folder or self.folder


@dataclass(frozen=True)
class SplitTable:
    """The files of the table of a split, and the ``folder`` of its images; stored images are named below ``root``."""

    paths: list[Path]
    folder: Path
    root: Path

    def usable_rows(
        self,
        opened: TableRows[Value],
        recipe: CreateDataset,
        split: str,
        progress: Progress,
        notes: SourceNotes,
        noun: str = "",
    ) -> tuple[list[Row[Value]], list[Value]]:
        """Return the usable rows of ``split`` and their values; the others are added to ``notes``.

        See `digits.data.tables.tables.usable_rows` for ``noun``. Raises UnusableSource if there are too many others.
        """
        faults = Faults(self.place, recipe.max_unusable_percent, split)
        if split == "train":
            opened.show(progress)
        every = list(progress.take(opened.rows))
        rows, values = usable_rows(every, faults, noun)
        progress.is_partial |= not opened.table.is_whole
        if split == "train":
            progress.say(f"{progress.at_least}{count_of(len(every), 'row')} with {opened.contents}.")
        faults.notes = [*opened.table.remarks, *faults.notes]
        notes.add(faults)
        if missing := missing_images(rows, self.place.name):
            progress.say(missing, is_problem=True)
        return rows, values

    def plan(self, images: ParquetImages | None, files: list[str], targets: list[Any]) -> SplitPlan:
        """Return the plan of the rows: of ``images`` that the table contains, or of ``files`` in the folder."""
        return SplitPlan(images or ImageFolder(self.folder), files, targets, source=self.name)

    @property
    def place(self) -> Path:
        """The file, or the folder of several."""
        return self.paths[0] if len(self.paths) == 1 else self.paths[0].parent

    @property
    def name(self) -> str:
        """The path of the table, for messages and pages."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        return f"{self.paths[0].parent} ({listed(path.name for path in self.paths)})"


@dataclass(frozen=True)
class TableRows(Generic[Value]):
    """The ``rows`` of a ``table`` with the target of each image, and the places of the columns of both.

    ``contents`` are those of a row in words, such as ``a number each``, and ``role`` is that of the target columns.
    """

    table: TableFile
    image: int
    targets: list[int]
    rows: Iterator[Row[Value]]
    contents: str = field(kw_only=True)
    role: str = field(default="target", kw_only=True)

    @property
    def names(self) -> list[str]:
        """The names of the columns of targets."""
        return [self.table.columns[place] for place in self.targets]

    @property
    def images(self) -> ParquetImages | None:
        """The images that the table contains, if any."""
        return self.table.images_in(self.image)

    def show(self, progress: Progress) -> None:
        """Report the first rows."""
        roles = {self.image: "image", **dict.fromkeys(self.targets, self.role)}
        progress.show_rows(self.table.columns, self.table.first_rows(SHOWN_ROWS), roles)


def find_columns(table: TableFile, image: str, targets: Sequence[str], what: str) -> tuple[int, list[int]]:
    """Return the places of the column of images, and of the columns ``targets``, by default all others.

    ``what`` are the contents of the latter, in words. Raises UnusableSource.
    """
    place = table.place(image)
    places = table.places(targets, place)
    if len(table.columns) < 2:
        raise UnusableSource(
            f"{show(table.path.name)} has only one column.",
            f"Each line needs the path of an image and its {what}.",
        )
    return place, places


def declare_splits(
    recipe: CreateFromTable, table: TableFile, chosen: Collection[str] = ()
) -> dict[int, Column]:
    """Let columns of the only table declare the splits; return what all rows have in common in each column.

    Columns that are ``chosen`` for targets declare none. Raises UnusableSource.
    """
    columns = table.survey(range(len(table.columns)))
    if not (recipe.val_table or recipe.test_table or os.path.isdir(recipe.table)):
        own = {place: column for place, column in columns.items() if table.columns[place] not in chosen}
        table.declare_splits(own)
    return columns


def need_no_fractions(table: TableFile, places: Sequence[int]) -> None:
    """Raise UnusableSource if several columns contain numbers between 0 and 1, such as probabilities of classes."""
    if len(places) > 1:
        names = listed(table.columns[place] for place in places)
        raise UnusableSource(
            f"The columns {names} of {show(table.path.name)} contain numbers between 0 and 1, such as probabilities.",
            "Write 1 for the labels of the image and 0 for the others.",
        )


def are_items_spaced(table: TableFile, place: int, separator: str = "auto") -> bool:
    """Return whether spaces separate the items of the lists in a column; raises UnusableSource if that is not clear.

    The ``separator`` is a choice of the user.
    """
    spaced = are_spaced(cells[place] for cells in table.all_rows() if place < len(cells))
    if spaced is None and separator not in ("space", "comma"):
        example = next(
            cells[place] for cells in table.all_rows() if place < len(cells) and " " in cells[place]
        )
        raise UnusableSource(
            f"“{show(example[:80])}” ({show(table.columns[place])}) may be a list of one label or of several.",
            "Separate labels with commas, or choose the separator.",
        )
    return separator == "space" if spaced is None else spaced


def check_columns(table: SplitTable, open_rows: Callable[[SplitTable, int], TableRows[Any]]) -> None:
    """Raise UnusableSource if the first file of a table cannot be opened, or if the only one has no rows.

    ``open_rows`` opens a number of bytes of a table.
    """
    opened = open_rows(replace(table, paths=table.paths[:1]), MAX_HEADER_BYTES)
    if len(table.paths) == 1:
        opened.table.need_rows()


def find_tables(recipe: CreateFromTable) -> dict[str, SplitTable]:
    """Return the tables of the splits of ``recipe``; raises UnusableSource.

    Also raises it if the percentages leave no rows for training.
    """
    tables: dict[str, SplitTable] = {}
    for split, table, folder in recipe.sources():
        splits = tables_at(table, folder)
        tables |= splits if split == "train" else {split: splits["train"]}
    recipe.shares(tables)
    return tables


def tables_at(table: str, folder: str) -> dict[str, SplitTable]:
    """Return the tables of the splits at the path ``table``, with images in ``folder``; raises UnusableSource.

    The images of metadata files in a folder ``table`` are beside these files, if ``folder`` is the same folder.
    """
    contents = find(table)
    contents.need_tables()
    return tables_in(contents, Path(folder))


def tables_in(contents: Contents, folder: Path) -> dict[str, SplitTable]:
    """Return the tables of the splits in ``contents`` like `tables_at`; none if it has only images."""
    return {
        split: SplitTable(paths, _folder_of(contents, split, folder), contents.root)
        for split, paths in contents.tables.items()
    }


def _folder_of(contents: Contents, split: str, folder: Path) -> Path:
    is_beside = not contents.is_parquet and folder == contents.root
    return contents.tables[split][0].parent if is_beside else folder


def report_each(tables: dict[str, SplitTable], progress: Progress) -> Iterator[tuple[str, SplitTable]]:
    """Yield each split with its table, and report that the table is read."""
    for split, table in tables.items():
        progress.reading(f"Reading {show(table.name)}")
        yield split, table
    files = {split: table.paths for split, table in tables.items()}
    if sum(map(len, files.values())) > 1:
        progress.say(f"{describe_files(files)}.")


def need_same_columns(name: str, columns: list[str], train: list[str]) -> None:
    """Raise UnusableSource if the table of the split ``name`` has other ``columns`` than that for training."""
    if columns != train:
        raise UnusableSource(
            f"The {name} table has the columns {listed(columns)}, the train table {listed(train)}.",
            "Use the same columns in all tables.",
        )


def take_declared(splits: dict[str, AnyRecords], declared: Sequence[str]) -> dict[str, AnyRecords]:
    """Return the ``splits``, or if there is only one, those that its records have ``declared`` if one is training."""
    if len(splits) > 1 or "train" not in declared:
        return splits
    places = {split: [n for n, name in enumerate(declared) if name == split] for split in SPLITS}
    return {split: splits["train"].take(records) for split, records in places.items() if records}


def divide_rows(
    recipe: CreateWithShares, splits: dict[str, SplitPlan], declared: Sequence[str] = ()
) -> dict[str, SplitPlan]:
    """Divide the rows for training: into the splits ``declared`` for them if these are all, else by the shares.

    Rows that contain their images keep their order; others are shuffled.
    """
    splits = take_declared(splits, declared)
    order = permute(len(splits["train"]), recipe.seed)
    divided = recipe.shares(splits).divide(splits, [order])
    for name, split in divided.items():
        if isinstance(split.images, ParquetImages):
            split.reorder(in_row_order(split.files))
        else:
            shuffle(split, recipe.seed, name)
    return divided
