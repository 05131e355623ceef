"""Read images and labels from a table, or from TFRecord files.

A table has one of two layouts: a column that lists the labels of an image, or a column of zeros and
ones for each label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from digits.data.loose_json import InvalidJson, load
from digits.data.sources.plan import (
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    count_of,
    first_lines,
    listed,
    show,
)
from digits.data.sources.shares import NO_LABEL, group_flags
from digits.data.tables.columns import FLAGS, Column, is_list, list_items
from digits.data.tables.contents import refuse_contents
from digits.data.tables.parquet import ParquetImages
from digits.data.tables.tables import Cells, Row, SourceNotes, TableFile, is_image, open_tables
from digits.data.targets.label_set import LabelSet
from digits.kinds.multilabel import records
from digits.kinds.multilabel.recipe import MAX_LABELS, CreateMultilabel, Separator
from digits.kinds.sources.tables import (
    SplitTable,
    TableRows,
    are_items_spaced,
    declare_splits,
    divide_rows,
    find_columns,
    find_tables,
    need_no_fractions,
    report_each,
)

# In the order of detection: a comma or a space may be part of a label.
SEPARATORS: dict[Separator, str] = {"bar": "|", "semicolon": ";", "comma": ",", "space": " "}
SEPARATOR_NAMES: dict[Separator, str] = {
    "space": "spaces",
    "comma": "commas",
    "semicolon": "semicolons",
    "bar": "vertical bars",
}
TABLE_HINT = ", and check the label column and separator"

Labels = tuple[str, ...]


class _Choices(msgspec.Struct):
    choices: list[str]


@dataclass(frozen=True)
class LabelRows(TableRows[Labels]):
    """The ``rows`` of a table with the labels of each image.

    In the ``recipe``, the layout and, for lists, the separator are those of the table instead of ``auto``.
    """

    recipe: CreateMultilabel


@dataclass(frozen=True)
class LabeledImages:
    """The labels of each image of a table, the first line that names it, and the ``repeated`` lines in words.

    ``splits`` are those that the rows of the images declare.
    """

    labels_of: dict[str, set[str]]
    lines: dict[str, str]
    repeated: list[str]
    images: ParquetImages | None = None
    splits: list[str] = field(default_factory=list)

    @classmethod
    def combine(cls, rows: Iterable[Row[Labels]], stored: ParquetImages | None = None) -> LabeledImages:
        """Combine the labels of usable rows that name the same image; the images may be ``stored`` in the table.

        Raises UnusableSource if rows declare several splits for an image.
        """
        images = cls({}, {}, [], stored)
        split_of: dict[str, str] = {}
        for row in rows:
            if row.file in images.labels_of:
                images.repeated.append(f"{row.place}: {show(row.file)}")
                if row.split != split_of[row.file]:
                    raise UnusableSource(
                        f"{row.place}: {show(row.file)} is in the splits {split_of[row.file]} and {row.split}.",
                        "Write one split for each image.",
                    )
            else:
                split_of[row.file] = row.split
                images.labels_of[row.file] = set()
                images.splits.append(row.split)
                images.lines[row.file] = row.place
            images.labels_of[row.file].update(row.value or ())
        return images

    @property
    def unlabeled(self) -> list[str]:
        """The lines of images without labels."""
        return [f"{self.lines[file]}: {show(file)}" for file, labels in self.labels_of.items() if not labels]

    def remarks(self) -> list[str]:
        """Return sentences about repeated images and those without labels."""
        remarks = []
        if self.repeated:
            what = "1 line repeats" if len(self.repeated) == 1 else f"{len(self.repeated):,} lines repeat"
            remarks.append(f"{what} an image; its labels are combined: {first_lines(self.repeated)}.")
        if unlabeled := self.unlabeled:
            remarks.append(records.no_labels("image", unlabeled))
        return remarks

    def targets(self, labels: list[str]) -> list[NDArray[np.float32]]:
        """Return zeros and ones for ``labels``, float32 [labels], for each image."""
        return records.encode(labels, list(self.labels_of.values()))


def read(recipe: CreateMultilabel, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    notes = SourceNotes()
    read_source = records.read if recipe.records else _read_tables
    splits, labels = read_source(recipe, progress, notes)
    values = {name: np.array(split.targets, np.float32) for name, split in splits.items()}
    train = values["train"]
    each = float(train.sum()) / max(1, len(train))
    progress.say(f"{count_of(len(labels), 'label')}, on average {each:.2g} per image.")
    notes.warnings += _label_remarks(labels, train)
    groups, places = group_records(labels, values)
    for name, split in splits.items():
        split.groups = places[name]
    target = LabelSet.of(labels).with_statistics(train)
    return Plan(target, splits, groups, notes.warnings, notes.unusable)


def _read_tables(
    recipe: CreateMultilabel, progress: Progress, notes: SourceNotes
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the splits with zeros and ones for the labels as targets, and the labels.

    Skipped rows are added to ``notes``.
    """
    tables = find_tables(recipe)
    images: dict[str, LabeledImages] = {}
    for name, table in report_each(tables, progress):
        images[name], recipe = read_table(recipe, table, name, progress, notes)
        file = show(table.paths[0].name)
        notes.warnings += [f"{file}: {remark}" for remark in images[name].remarks()]
    labels = _all_labels(recipe, images.values())
    splits = {
        name: tables[name].plan(labeled.images, list(labeled.labels_of), labeled.targets(labels))
        for name, labeled in images.items()
    }
    return divide_rows(recipe, splits, images["train"].splits), labels


def read_table(
    recipe: CreateMultilabel, table: SplitTable, split: str, progress: Progress, notes: SourceNotes
) -> tuple[LabeledImages, CreateMultilabel]:
    """Read the table of ``split``, and return the recipe with the layout that was detected.

    Rows that cannot be used are added to ``notes``. Raises UnusableSource that names the first faulty lines.
    """
    opened = open_labels(recipe, table, progress.max_bytes)
    rows, _ = table.usable_rows(opened, recipe, split, progress, notes)
    return LabeledImages.combine(rows, opened.images), opened.recipe


def open_labels(recipe: CreateMultilabel, table: SplitTable, max_bytes: int) -> LabelRows:
    """Open the first ``max_bytes`` of each file of a table, and detect its layout.

    Raises UnusableSource, also during iteration.
    """
    opened = open_tables(table.paths, _is_header, max_bytes, recipe.dialect, table.root)
    columns = declare_splits(recipe, opened, recipe.label_columns)
    image, places = find_columns(opened, recipe.image_column, recipe.label_columns, "labels")
    if not recipe.label_columns:
        places = [place for place in places if not opened.is_index(place)] or places
    recipe, places = _detect(opened, recipe, places, columns)
    refuse_contents(opened, places)
    names = [opened.columns[place] for place in places]
    recipe = structs.replace(recipe, label_columns=names)
    have_brackets = recipe.layout == "list" and columns[places[0]].are_lists
    if recipe.layout == "columns":
        if len(places) > MAX_LABELS:
            raise records.too_many(len(places), TABLE_HINT)
        parse = _flag_parser(opened.columns, places)
    elif have_brackets:
        parse = _brackets_parser(
            len(opened.columns), places[0], are_items_spaced(opened, places[0], recipe.separator)
        )
    else:
        parse = _list_parser(len(opened.columns), places[0], SEPARATORS[recipe.separator])
    return LabelRows(
        opened,
        image,
        places,
        opened.parse(table.folder, image, parse),
        recipe,
        contents=_contents(recipe, have_brackets),
        role="label" if recipe.layout == "columns" else "labels",
    )


def _contents(recipe: CreateMultilabel, have_brackets: bool) -> str:
    if recipe.layout == "columns":
        return "a column of 0 and 1 for each label"
    is_list = have_brackets or recipe.separator == "auto"
    how = "as lists in brackets" if is_list else f"separated by {SEPARATOR_NAMES[recipe.separator]}"
    return f"labels in “{show(recipe.label_columns[0])}”, {how}"


def _is_header(cells: Cells) -> bool:
    """Return whether a first row contains names: neither paths of images, nor numbers as their names."""
    return not (any(map(is_image, cells)) or cells[0].isdecimal())


def _detect(
    table: TableFile, recipe: CreateMultilabel, places: list[int], columns: Mapping[int, Column]
) -> tuple[CreateMultilabel, list[int]]:
    """Return ``recipe`` with the layout and the separator of all rows, and the columns of labels.

    Raises UnusableSource.
    """
    if recipe.layout == "columns":
        return recipe, places
    flags = [place for place in places if columns[place].are_flags]
    if recipe.layout == "auto" and (len(flags) > 1 or all(columns[place].are_only_flags for place in places)):
        if recipe.label_columns:
            return structs.replace(recipe, layout="columns"), places
        fractions = [place for place in places if place not in flags and columns[place].are_fractions]
        need_no_fractions(table, [*fractions, *flags] if fractions else [])
        if others := [table.columns[place] for place in places if place not in flags]:
            verb = "has" if len(others) == 1 else "have"
            table.remarks.append(f"{listed(others)} {verb} other values than 0 and 1: not used as labels.")
        return structs.replace(recipe, layout="columns"), flags
    if len(places) > 1:
        need_no_fractions(
            table, [place for place in places if columns[place].are_fractions and place not in flags]
        )
        names = listed(table.columns[place] for place in places)
        raise UnusableSource(
            f"{show(table.path.name)} has several columns that may list the labels: {names}.",
            "Enter the name of the label column, or use a column of 0 and 1 for each label.",
        )
    separator = recipe.separator
    if separator == "auto" and not columns[places[0]].are_lists:
        found = _separators(table, places[0])
        separator = next((name for name, text in SEPARATORS.items() if text in found), "space")
    return structs.replace(recipe, layout="list", separator=separator), places


def _separators(table: TableFile, place: int) -> set[str]:
    """Return the separators in the cells of a column."""
    found: set[str] = set()
    for cells in table.all_rows():
        if place < len(cells):
            found.update(text for text in SEPARATORS.values() if text in cells[place])
        if len(found) == len(SEPARATORS):
            break
    return found


def _flag_parser(names: list[str], places: list[int]) -> Callable[[Cells], Labels]:
    def parse(cells: Cells) -> Labels:
        return tuple(names[place] for place in places if _flag(cells, place, names[place]))

    return parse


def _flag(cells: Cells, place: int, name: str) -> bool:
    text = cells[place] if place < len(cells) else ""
    if not text:
        raise ValueError(f"no value for {show(name)}")
    try:
        return FLAGS[text.lower()]
    except KeyError:
        raise ValueError(f"“{show(text)}” is not 0 or 1 ({show(name)})") from None


def _list_parser(count: int, place: int, separator: str) -> Callable[[Cells], Labels]:
    def parse(cells: Cells) -> Labels:
        cell = _cell(cells, count, place)
        if choices := _choices(cell):
            return choices
        if is_list(cell):
            raise ValueError(f"“{show(cell[:80])}” is a list in brackets, unlike other cells")
        return tuple(filter(None, map(_without_quotes, cell.split(separator))))

    return parse


def _without_quotes(item: str) -> str:
    item = item.strip()
    is_quoted = len(item) > 1 and item[0] == item[-1] in {"'", '"'}
    return item[1:-1].strip() if is_quoted else item


def _brackets_parser(count: int, place: int, spaced: bool) -> Callable[[Cells], Labels]:
    def parse(cells: Cells) -> Labels:
        cell = _cell(cells, count, place)
        return _choices(cell) or tuple(list_items(cell, spaced) if cell else [])

    return parse


def _cell(cells: Cells, count: int, place: int) -> str:
    if len(cells) > count:
        raise ValueError(f"{len(cells)} cells in {count} columns")
    return cells[place] if place < len(cells) else ""


def _choices(cell: str) -> Labels:
    """Return the labels in a cell of Label Studio, such as ``{"choices": ["sea", "sky"]}``; none if it is another."""
    if not cell.startswith("{"):
        return ()
    try:
        return tuple(load(cell, _Choices).choices)
    except InvalidJson:
        return ()


def _all_labels(recipe: CreateMultilabel, images: Iterable[LabeledImages]) -> list[str]:
    """Return the labels of all tables, sorted; raises UnusableSource."""
    if recipe.layout == "columns":
        return sorted(recipe.label_columns)
    labels = {
        label for table in images for labels_of_image in table.labels_of.values() for label in labels_of_image
    }
    if not labels:
        raise UnusableSource(
            f"The column “{show(recipe.label_columns[0])}” has no labels.", "Choose another one."
        )
    if len(labels) > MAX_LABELS:
        raise records.too_many(len(labels), TABLE_HINT)
    return sorted(labels)


def _label_remarks(labels: list[str], train: NDArray[np.float32]) -> list[str]:
    """Return sentences about labels that cannot be learned."""
    counts = train.sum(axis=0)
    unused = [label for label, count in zip(labels, counts, strict=True) if not count]
    constant = [label for label, count in zip(labels, counts, strict=True) if count == len(train)]
    remarks = [f"No training image has the {_named(unused)}."] if unused else []
    return remarks + ([f"All training images have the {_named(constant)}."] if constant else [])


def _named(labels: list[str]) -> str:
    return f"label “{show(labels[0])}”" if len(labels) == 1 else f"labels {listed(labels)}"


# Versions group records with new labels.
group_records = partial(group_flags, none=NO_LABEL)
