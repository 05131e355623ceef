"""Find the columns of a table that declare the splits of its rows, by their values.

These are words such as ``train`` and ``validation``, truth values in a column such as ``is_valid``, and the numbers of
folds, of which the first is for validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.sources.declared_splits import affixed_splits, split_in, split_named
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables.columns import FLAGS, Column
from digits.data.tables.parquet import cell_text

# Columns with such names divide the rows, whatever their values are.
_DIVIDES = ("split", "splits", "subset", "usage", "partition", "phase", "set")
_NUMBERS = ("split", "splits", "subset", "partition")
_FOLDS = ("fold", "folds", "kfold", "cv")
_MAX_FOLDS = 20
# CelebA numbers its splits.
_NUMBERED = dict(zip("012", SPLITS, strict=True))
# Single letters can be labels elsewhere.
_FLAGS = FLAGS | {"t": True, "y": True, "f": False, "n": False}
_AROUND_FLAGS = re.compile(
    r"\A(?:is|in|for|use|used)(?=[-_. A-Z])|(?<=[-_. a-z])(?:flag|image|img)\Z", re.IGNORECASE
)


@dataclass(frozen=True)
class SplitColumns:
    """The splits that the columns ``places`` declare.

    ``splits`` are those of the values of each column, in lowercase; empty for values that say nothing. A row about
    which all columns say nothing belongs to the split ``rest``, if this is not empty. ``remark`` is a sentence.
    """

    names: list[str]
    places: list[int]
    splits: Sequence[Mapping[str, str]]
    remark: str
    rest: str = ""

    def split_of(self, cells: Sequence[str]) -> str:
        """Return the split of a row; raises ValueError."""
        found = []
        for name, place, splits in zip(self.names, self.places, self.splits, strict=True):
            text = cells[place] if place < len(cells) else ""
            if text.lower() not in splits:
                raise ValueError(f"“{show(text)}” is not a split ({show(name)})")
            found.append(splits[text.lower()])
        of_row = set(filter(None, found)) or {self.rest} - {""}
        if len(of_row) != 1:
            raise ValueError(f"{listed(self.names)} name {'several splits' if of_row else 'no split'}")
        return of_row.pop()


def find_split_columns(names: Sequence[str], columns: Mapping[int, Column]) -> SplitColumns | None:
    """Return the ``columns`` with the ``names`` that declare splits, None without one.

    Raises UnusableSource for a column that declares splits in an unknown way, or for several.
    """
    found = [
        of_column for place, column in columns.items() if (of_column := _words(names[place], place, column))
    ]
    flags = _flags(names, columns)
    found += [flags] if flags else []
    if not found:
        found = [folds for place, column in columns.items() if (folds := _folds(names[place], place, column))]
    if len(found) > 1:
        raise UnusableSource(
            f"Several columns declare splits: {listed(name for each in found for name in each.names)}.",
            "Keep one of them, with the values train, val and test.",
        )
    return found[0] if found else None


def find_split_keys(
    objects: Iterable[Mapping[str, Any]], skipped: Collection[str] = ()
) -> tuple[Callable[[Mapping[str, Any]], str], str]:
    """Return a function that returns the split of an object by its keys, empty if none declares it, and a remark.

    All keys but those ``skipped`` are like the columns of a table. The function raises ValueError, and this one
    UnusableSource.
    """
    columns: dict[str, Column] = {}
    for item in objects:
        for name in item.keys() - set(skipped):
            columns.setdefault(name, Column()).add(cell_text(item[name]))
    names = list(columns)
    found = find_split_columns(names, dict(enumerate(columns.values())))

    def split_of(item: Mapping[str, Any]) -> str:
        return found.split_of([cell_text(item.get(name)) for name in names]) if found else ""

    return split_of, found.remark if found else ""


def _words(name: str, place: int, column: Column) -> SplitColumns | None:
    if not column.values:
        return None
    words = set(re.split(r"[-_. ]+", name.lower()))
    divides = not words.isdisjoint(_DIVIDES) or split_in(name) is not None or {"train", "test"} <= words
    counts = not words.isdisjoint(_NUMBERS) or {"train", "test"} <= words
    if counts and column.values <= _NUMBERED.keys() and len(column.values) > 1:
        if column.values == _NUMBERED.keys():
            numbers = ", ".join(f"{number} is {split}" for number, split in _NUMBERED.items())
            remark = f"The column “{show(name)}” declares the splits: {numbers}."
            return SplitColumns([name], [place], [_NUMBERED], remark)
        raise UnusableSource(
            f"The column “{show(name)}” may declare splits, but its values are {listed(sorted(column.values))}.",
            "Write train, val and test into it, or remove it.",
        )
    declared = affixed_splits(column.values)
    splits = {value: split for value in column.values if (split := split_named(value))}
    splits |= {value: split for group in declared.values() for split, own in group.items() for value in own}
    # One other value, such as unassigned, is a fault of its rows.
    is_divided = (divides and splits) or (declared and len(splits) + 1 == len(column.values))
    if len(splits) < len(column.values) and not is_divided:
        return None
    if "train" not in splits.values() and len(set(splits.values())) > 1:
        raise UnusableSource(
            f"The column “{show(name)}” declares no split for training: {listed(sorted(column.values))}.",
            "Add the rows for training, with the value train.",
        )
    if not (declared or divides):
        return None  # A column that says the same of all rows divides nothing.
    return SplitColumns([name], [place], [splits], f"The column “{show(name)}” declares the splits.")


def _flags(names: Sequence[str], columns: Mapping[int, Column]) -> SplitColumns | None:
    flags = [place for place, column in columns.items() if column.values and column.values <= _FLAGS.keys()]
    split_of: dict[int, str] = {}
    for place in flags:
        bare = _AROUND_FLAGS.sub("", names[place]).strip("-_. ")
        if (found := split_in(bare)) and not found[1]:
            split_of[place] = found[0]
    # Labels can be called so, too: a train is a vehicle.
    is_clear = set(split_of.values()) != {"train"} or any(
        _AROUND_FLAGS.search(names[place]) for place in split_of
    )
    others = [place for place in flags if place not in split_of]
    if not split_of or (others and not is_clear):
        return None
    if len(set(split_of.values())) < len(split_of):
        raise UnusableSource(
            f"Several columns declare the same split: {listed(names[place] for place in split_of)}."
        )
    missing = [split for split in SPLITS if split not in split_of.values()]
    rest = missing[0] if missing else ""
    splits = [{text: split if flag else "" for text, flag in _FLAGS.items()} for split in split_of.values()]
    named = [names[place] for place in split_of]
    uses = [
        f"“{show(name)}” for {SPLIT_TITLES[split].lower()}"
        for name, split in zip(named, split_of.values(), strict=True)
    ]
    others_for = f", other rows for {SPLIT_TITLES[rest].lower()}" if rest else ""
    what = "column declares" if len(named) == 1 else "columns declare"
    return SplitColumns(
        named, list(split_of), splits, f"The {what} the splits: {', '.join(uses)}{others_for}.", rest
    )


def _folds(name: str, place: int, column: Column) -> SplitColumns | None:
    words = set(re.split(r"[-_. \d]+", name.lower()))
    if words.isdisjoint(_FOLDS) or not column.values or not 2 <= len(column.values) <= _MAX_FOLDS:
        return None
    numbers = {
        value: found
        for value in column.values
        if (found := re.fullmatch(r"(?:fold|cv)?[-_. ]?(\d+)(?:\.0)?", value))
    }
    if len(numbers) < len(column.values):
        raise UnusableSource(
            f"The column “{show(name)}” may declare folds, but its values are {listed(sorted(column.values))}.",
            "Write train, val and test into it, or remove it.",
        )
    first = min(numbers, key=lambda value: int(numbers[value][1]))
    splits = {value: "val" if value == first else "train" for value in column.values}
    return SplitColumns(
        [name],
        [place],
        [splits],
        f"The column “{show(name)}” declares {len(column.values)} folds: {first} is used for validation, the others "
        "for training.",
    )
