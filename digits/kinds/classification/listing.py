"""Images with labels that files list: text files with class indexes, CSV files, and JSON lines."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.sources.class_names import read_names, sort_labels
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    listed,
    show,
    shuffle,
)
from digits.data.sources.shares import CreateWithShares
from digits.data.tables.columns import FLAGS, Column, list_items
from digits.data.tables.contents import has_run_lengths, refuse_contents
from digits.data.tables.pixel_tables import PixelImages, find_pixels
from digits.data.tables.tables import (
    MAX_TABLE_BYTES,
    Cells,
    Faults,
    Row,
    SourceNotes,
    TableFile,
    find_images,
    has_no_image,
    is_number,
    missing_images,
    one_line,
    open_lines,
    open_tables,
    usable_rows,
)
from digits.data.targets.class_index import ClassIndex
from digits.kinds.classification.recipe import DatasetFolder, ListedSplit, Tables, TextFiles
from digits.kinds.sources.tables import SplitTable, TableRows, are_items_spaced, need_no_fractions

LABEL_COLUMNS = tuple(
    "label labels class category target choice class_name label_name category_name fine_label".split()
)
SEVERAL_LABELS = "For images with several labels, create a dataset for multi-label classification."
_LINE = re.compile(r"(?P<path>.*\S)\s+(?P<index>[+-]?[0-9]{1,18})")


def text_rows(
    path: Path, root: Path, names: Sequence[str], remarks: list[str], max_bytes: int = MAX_TABLE_BYTES
) -> Iterator[Row[str]]:
    """Yield the images and class names of the lines of a text file, and add to its ``remarks``.

    Raises UnusableSource.
    """
    return find_images(_text_rows(path, names, max_bytes), path, root, remarks)


def _text_rows(path: Path, names: Sequence[str], max_bytes: int) -> Iterator[Row[str]]:
    lines, _ = open_lines(path, max_bytes)
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        try:
            match = _LINE.fullmatch(text)
            if match is None:
                raise ValueError("not a path followed by the index of a class")
            index = int(match["index"])
            if not 0 <= index < len(names):
                raise ValueError(
                    f"the class {index} is not between 0 and {len(names) - 1}, the lines of the labels file"
                )
            written = match["path"]
            if len(written) > 1 and written[0] == written[-1] == '"':
                written = written[1:-1]
            yield Row(number, written, names[index])
        except ValueError as error:
            yield Row(number, "", None, str(error))


@dataclass(frozen=True)
class LabelRows(TableRows[str]):
    """The ``rows`` of a CSV file with the label of each image; its columns may contain the ``pixels``.

    ``hint`` is the advice for rows that cannot be used, by default that for their cause.
    """

    pixels: PixelImages | None = None
    hint: str = ""

    @property
    def classes(self) -> list[str]:
        """The names of all classes, if they are known."""
        return [*self.table.classes.get(self.targets[0], ())] if len(self.targets) == 1 else []


def open_labels(
    source: SplitTable,
    settings: Tables | DatasetFolder,
    max_bytes: int = MAX_TABLE_BYTES,
    *,
    declares_splits: bool = True,
) -> LabelRows:
    """Open a table of images and labels, detecting what ``settings`` leave open.

    If it ``declares_splits``, a column can be the splits of the rows. Raises UnusableSource, also during iteration.
    """
    table = open_tables(source.paths, _is_header, max_bytes, settings.dialect, source.root)
    path = source.paths[0]
    if len(table.columns) < 2:
        raise UnusableSource(
            f"{show(path.name)} has only one column.", "Each line needs an image and a label."
        )
    has_paths = (
        settings.image_column
        or table.images
        or any(has_run_lengths(table, place) for place in range(len(table.columns)))
    )
    # Otherwise, run lengths look like pixels.
    pixels = None if has_paths else find_pixels(table)
    image = pixels.places[0] if pixels else table.place(settings.image_column)
    chosen = [table.place(settings.label_column)] if settings.label_column else []
    unused = {*(pixels.places if pixels else [image]), *table.images}
    columns = table.survey(place for place in range(len(table.columns)) if place not in unused)
    if declares_splits:
        table.declare_splits({place: column for place, column in columns.items() if place not in chosen})
    others = [place for place in table.places([], image) if place not in unused]
    if not (chosen or others):
        raise UnusableSource(
            f"{show(path.name)} has no column of labels.", "Each line needs an image and a label."
        )
    labels = chosen or _label_columns(table, others, columns)
    if image in labels:
        raise UnusableSource(
            f"The column “{show(table.columns[image])}” cannot contain both the images and the labels."
        )
    refuse_contents(table, labels)
    parse, hint = _parser(table, labels, columns)
    rows = table.parse_stored(pixels.name, parse) if pixels else table.parse(source.folder, image, parse)
    return LabelRows(table, image, labels, rows, pixels, hint, contents="a label each", role="label")


def _label_columns(table: TableFile, places: list[int], columns: Mapping[int, Column]) -> list[int]:
    """Return the column of labels, or those that contain 1 for the class of the image and 0 for the others.

    Raises UnusableSource if columns contain probabilities.
    """
    usual = [place for place in places if table.columns[place].lower() in LABEL_COLUMNS]
    if found := [place for place in places if place in table.classes] or usual:
        return found[:1]
    places = [place for place in places if not (table.is_index(place) or columns[place].is_blank)] or places
    flags = [place for place in places if columns[place].are_flags]
    if len(flags) > 1 and (flags == places or _are_exclusive(table, flags)):
        table.remarks.append(f"The classes are the columns with 1: {_names(table, flags)}.")
        return flags
    fractions = [place for place in places if columns[place].are_fractions]
    if fractions and fractions == places:
        need_no_fractions(table, fractions)
    if len(places) == 1 and fractions and not flags:
        name = show(table.columns[places[0]])
        raise UnusableSource(
            f"The column “{name}” of {show(table.path.name)} contains numbers between 0 and 1.",
            "Write classes into it, or create a dataset for regression.",
        )
    label, *_ = [place for place in places if not columns[place].are_numbers] or places
    if others := [place for place in places if place != label]:
        name = show(table.columns[label])
        table.remarks.append(f"The labels are those in “{name}”; not used: {_names(table, others)}.")
    return [label]


def _are_exclusive(table: TableFile, places: list[int]) -> bool:
    """Return whether exactly one of the columns is true in each row."""
    return all(
        sum(FLAGS.get(cells[place].lower(), False) for place in places if place < len(cells)) == 1
        for cells in table.all_rows()
    )


def _names(table: TableFile, places: Iterable[int]) -> str:
    return listed(table.columns[place] for place in places)


def _parser(
    table: TableFile, places: list[int], columns: Mapping[int, Column]
) -> tuple[Callable[[Cells], str], str]:
    """Return the function that reads the label of a row, and the advice about rows that it refuses."""
    if len(places) > 1:
        names = [_class_name(table.columns[place]) for place in places]
        return lambda cells: _only(_flagged(cells, places, names)), SEVERAL_LABELS
    (place,) = places
    if known := table.classes.get(place):
        return lambda cells: _known(_class_name(_cell(cells, place)), known), ""
    if columns[place].are_lists:
        spaced = are_items_spaced(table, place)
        return lambda cells: _class_name(_only_item(_cell(cells, place), spaced)), SEVERAL_LABELS
    return lambda cells: _class_name(one_line(_cell(cells, place))), ""


def _known(label: str, names: Sequence[str]) -> str:
    if label not in names:
        raise ValueError(f"the label {label} is not between 0 and {len(names) - 1}")
    return label


def _cell(cells: Cells, place: int) -> str:
    return cells[place] if place < len(cells) else ""


def _flagged(cells: Cells, places: list[int], names: list[str]) -> list[str]:
    """Return the ``names`` of the columns that are true."""
    found = []
    for place, name in zip(places, names, strict=True):
        text = _cell(cells, place)
        if text.lower() not in FLAGS:
            raise ValueError(f"“{show(text)}” is not 0 or 1 ({name})")
        if FLAGS[text.lower()]:
            found.append(name)
    return found


def _only_item(cell: str, spaced: bool) -> str:
    return _only(list_items(cell, spaced)) if cell else ""


def _only(labels: list[str]) -> str:
    if len(labels) != 1:
        raise ValueError(f"several labels: “{listed(labels)}”" if labels else "no label")
    return labels[0]


def _is_header(cells: list[str]) -> bool:
    return has_no_image(cells) and not all(map(is_number, cells))


def read_text_files(
    source: TextFiles, max_unusable_percent: float, progress: Progress, notes: SourceNotes
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the images of each split with their labels, and the names of the classes; raises UnusableSource."""
    names = read_names(Path(source.labels))
    splits = {}
    for name, split in splits_of(source).items():
        faults = Faults(Path(split.file), max_unusable_percent, name)
        path = Path(split.file)
        rows = text_rows(path, Path(split.folder), names, faults.notes, progress.max_bytes)
        progress.is_partial |= path.stat().st_size > progress.max_bytes
        plan = SplitPlan(ImageFolder(Path(os.path.realpath(split.folder))), source=split.file)
        splits[name] = collect(rows, plan, faults, progress, notes)
        if name == "train":
            say_rows(splits[name], faults, "the index of a class each", progress)
    return splits, names


def tables_of(source: Tables) -> dict[str, SplitTable]:
    """Return the table of each split."""
    return {
        name: SplitTable([Path(split.file)], Path(split.folder), Path(split.file).parent)
        for name, split in splits_of(source).items()
    }


def read_tables(
    tables: Mapping[str, SplitTable],
    settings: Tables | DatasetFolder,
    max_unusable_percent: float,
    progress: Progress,
    notes: SourceNotes,
    names: list[str] | None = None,
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the images of each split with their labels, and the ``names`` of the classes if they are known.

    Raises UnusableSource.
    """
    splits: dict[str, SplitPlan] = {}
    names = names or []
    known = set(names) or None
    for name, table in tables.items():
        progress.reading(f"Reading {show(table.name)}")
        opened = open_labels(table, settings, progress.max_bytes, declares_splits=len(tables) == 1)
        progress.is_partial |= not opened.table.is_whole
        names = names or opened.classes
        if name == "train":
            opened.show(progress)
        parts = by_split(opened.rows, name) if opened.table.splits else {name: opened.rows}
        for part, rows in parts.items():
            faults = Faults(table.place, max_unusable_percent, part, hint=opened.hint)
            faults.notes = opened.table.remarks if part == name else []
            images = opened.pixels or opened.images or ImageFolder(Path(os.path.realpath(table.folder)))
            plan = SplitPlan(images, source=table.name)
            splits[part] = collect(rows, plan, faults, progress, notes, known)
            if part == "train":
                say_rows(splits[part], faults, opened.contents, progress)
            known = known or set(names or splits["train"].targets)
    return splits, names


def by_split(rows: Iterable[Row[str]], split: str) -> dict[str, Iterable[Row[str]]]:
    """Return the ``rows`` by the split that each declares; all are those of ``split`` if none is for training."""
    parts: dict[str, list[Row[str]]] = {}
    for row in rows:
        parts.setdefault(row.split or "train", []).append(row)
    if "train" not in parts:
        return {split: [row for part in parts.values() for row in part]}
    return {split: parts[split] for split in SPLITS if split in parts}


def splits_of(source: TextFiles | Tables) -> dict[str, ListedSplit]:
    """Return the files of ``source`` by split, train first."""
    splits = {"train": source.train, "val": source.val, "test": source.test}
    return {name: split for name, split in splits.items() if split is not None}


def collect(
    rows: Iterable[Row[str]],
    plan: SplitPlan,
    faults: Faults,
    progress: Progress,
    notes: SourceNotes,
    known: set[str] | None = None,
) -> SplitPlan:
    """Return ``plan`` with the images in ``rows``, and their labels as targets, which must be among ``known``.

    Rows that cannot be used are added to ``faults``, and with these to ``notes``; so are all rows of an image with
    several labels. Raises UnusableSource if there are too many.
    """
    usable, labels = usable_rows(_checked(progress.take(rows), known), faults, "label")
    plan.files, plan.targets = [row.file for row in usable], list(map(intern, labels))
    notes.add(faults)
    notes.warnings += filter(None, [missing_images(usable, os.path.basename(plan.source))])
    return plan


def _checked(rows: Iterable[Row[str]], known: set[str] | None) -> Iterator[Row[str]]:
    for row in rows:
        if row.value is not None and known is not None and row.value not in known:
            row = row._replace(value=None, fault=f"no training image has the label “{row.value}”")
        yield row


def say_rows(split: SplitPlan, faults: Faults, contents: str, progress: Progress) -> None:
    """Report the number of rows and their ``contents``."""
    progress.say(f"{progress.at_least}{count_of(len(split) + faults.count, 'row')} with {contents}.")


def plan_listings(
    splits: dict[str, SplitPlan],
    names: list[str] | None,
    recipe: CreateWithShares,
    notes: SourceNotes,
    *,
    is_shuffled: bool = True,
    noun: str = "image",
) -> Plan:
    """Plan the ``splits``, whose targets are labels, and divide the classes of train for val and test if missing.

    By default, the names of the classes are the labels of train, sorted. ``noun`` is the word for what has a label.
    Raises UnusableSource.
    """
    notes.warnings += _in_several(splits)
    shares = recipe.shares(splits)
    train = splits["train"]
    names = names or sort_labels(set(train.targets))
    numbers = {name: number for number, name in enumerate(names)}
    for name, split in splits.items():
        if unknown := sort_labels(set(split.targets) - numbers.keys()):
            raise UnusableSource(
                f"The {name} {noun}s have labels that no training {noun} has: {listed(unknown)}."
            )
    _need_two_classes(train, names)
    for split in splits.values():
        split.targets = [numbers[label] for label in split.targets]
        split.groups = list(split.targets)
    classes: list[list[int]] = [[] for _ in names]
    for index, number in enumerate(train.groups):
        classes[number].append(index)
    groups = [choose(own, recipe.seed, "train", str(number)) for number, own in enumerate(classes)]
    splits = shares.divide(splits, groups, keeps_order=True)
    if is_shuffled:
        for name, split in splits.items():
            shuffle(split, recipe.seed, name)
    for name, split in splits.items():
        present = set(split.groups)
        absent = [label for number, label in enumerate(names) if number not in present]
        if absent:
            notes.warnings.append(f"Classes without {SPLIT_TITLES[name].lower()} images: {listed(absent)}.")
    return Plan(ClassIndex.of(names), splits, names, notes.warnings, notes.unusable, required_groups=2)


def _in_several(splits: dict[str, SplitPlan]) -> list[str]:
    """Return remarks about images in several of the ``splits``, whose targets are labels."""
    labels: dict[str, str] = {}
    same, other = list[str](), list[str]()
    for split in splits.values() if len(splits) > 1 else ():
        for file, label in zip(split.files, split.targets, strict=True):
            path = split.path_of(file)
            if path in labels:
                (same if labels[path] == label else other).append(file)
            labels[path] = label
    found = ((same, ""), (other, " with different labels"))
    return [
        f"{count_of(len(files), 'image')} in several splits{how}: {listed(files)}."
        for files, how in found
        if files
    ]


def _need_two_classes(train: SplitPlan, names: list[str]) -> None:
    present = set(train.targets)
    if len(present) < 2:
        place = show(train.source)
        raise UnusableSource(
            f"All images in {place} have the label “{show(next(iter(present), names[0]))}”.",
            "Classification requires at least two classes.",
        )


@functools.lru_cache(maxsize=4096)
def _class_name(text: str) -> str:
    if not text.strip():
        raise ValueError("the label is missing")
    return show(text.strip())
