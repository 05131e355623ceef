"""What the cells of each column of a table have in common: few different texts, numbers from 0 to 1, or lists."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from digits.data.numbers import is_float
from digits.data.sources.plan import show

# The texts of truth values, in lowercase. CelebA has -1 for false.
FLAGS = {
    **dict.fromkeys(("1", "1.0", "1,0", "true", "yes"), True),
    **dict.fromkeys(("0", "0.0", "0,0", "-1", "-1.0", "false", "no"), False),
}
# Columns with more different texts are neither flags nor splits.
MAX_VALUES = 100
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
# Python and NumPy write such words around lists, sets and texts.
_WRAPPED = re.compile(r"(?:np\.)?(?:array|list|set|frozenset|tuple)\((.*?)(?:,\s*dtype=[^)]*)?\)", re.DOTALL)
_WRAPPED_TEXT = re.compile(r"np\.str_\((\"[^\"]*\"|'[^']*')\)")
_QUOTED = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")
_BARE = re.compile(r"""[^\s,"'\[\](){}:][^,"\[\](){}:]*""")
_BARE_WORD = re.compile(r"""[^\s,"'\[\](){}:][^\s,"\[\](){}:]*""")
_MISSING = ("none", "null", "nan")


@dataclass
class Column:
    """The ``values`` of a column in lowercase, empty for one without any and None if there are too many.

    ``are_numbers``: they are numbers, as far as ``values`` are known; ``all_fractions``: numbers from 0 to 1;
    ``all_lists``: lists in brackets. Blank cells do not count.
    ``count`` is the number of the others, and ``flags`` that of truth values, as long as ``values`` are known.
    """

    values: set[str] | None = field(default_factory=set)
    all_fractions: bool = True
    all_lists: bool = True
    are_numbers: bool = True
    count: int = 0
    flags: int = 0

    def add(self, cell: str) -> bool:
        """Count a cell; return whether further ones can change anything."""
        if not cell:
            return True
        self.all_lists = self.all_lists and is_list(cell)
        self.all_fractions = self.all_fractions and _is_fraction(cell)
        if self.values is not None:
            self.are_numbers = self.are_numbers and is_float(cell)
            text = cell.lower()
            self.count += 1
            self.flags += text in FLAGS
            self.values.add(text)
            if len(self.values) > MAX_VALUES:
                self.values = None
        return self.values is not None or self.all_fractions or self.all_lists

    @property
    def are_lists(self) -> bool:
        """Whether all cells are lists, at least one."""
        return self.all_lists and self.count > 0

    @property
    def are_fractions(self) -> bool:
        """Whether all cells are numbers from 0 to 1, at least one."""
        return self.all_fractions and self.count > 0

    @property
    def are_flags(self) -> bool:
        """Whether at least half of the cells are truth values: others are faults."""
        return self.values is not None and 2 * self.flags >= self.count

    @property
    def are_only_flags(self) -> bool:
        """Whether all cells are truth values, at least one."""
        return bool(self.values) and self.flags == self.count

    @property
    def is_blank(self) -> bool:
        """Whether all cells are blank."""
        return self.values == set()


def survey(rows: Iterable[list[str]], places: Collection[int]) -> dict[int, Column]:
    """Return what the cells of all ``rows`` have in common, for the columns at ``places``."""
    columns = {place: Column() for place in places}
    pending = list(columns)
    for cells in rows:
        width = len(cells)
        done = {place for place in pending if place < width and not columns[place].add(cells[place])}
        if done:
            pending = [place for place in pending if place not in done]
    return columns


def is_list(cell: str) -> bool:
    """Return whether a cell looks like a list or a set in brackets, or an array of NumPy."""
    cell = _unwrapped(cell)
    is_tuple = cell.startswith("(") and any(quote in cell for quote in "\"'")
    return cell[:1] in "[{(" and cell[-1:] == _BRACKETS.get(cell[:1]) and (cell[0] != "(" or is_tuple)


def are_spaced(cells: Iterable[str]) -> bool | None:
    """Return whether spaces separate the items of lists, as in those of NumPy; None if that is not clear."""
    has_spaces = False
    for cell in cells:
        inner = _inner(cell)
        outside = _QUOTED.sub("", inner)
        if "," in outside:
            return False
        if len(_QUOTED.findall(inner)) > 1 or (outside.split()[1:] and all(map(is_float, outside.split()))):
            return True
        has_spaces = has_spaces or len(outside.split()) > 1
    return None if has_spaces else False


def list_items(cell: str, spaced: bool = False) -> list[str]:
    """Return the items of a list in brackets, which may be quoted; raises ValueError.

    Commas separate them, or spaces if they are ``spaced``.
    """
    if not is_list(cell):
        raise ValueError(f"“{show(cell[:80])}” is not a list in brackets, unlike other cells")
    items: list[str] = []
    text = _inner(cell).strip()
    place = 0
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        found = quoted or (_BARE_WORD if spaced else _BARE).match(text, place)
        if not found:
            raise _not_a_list(cell)
        item = _unquoted(found[0]) if quoted else found[0].strip()
        if not quoted and item.lower() in _MISSING:
            raise ValueError(f"“{show(item)}” is in a list")
        if item:
            items.append(item)
        rest = text[found.end() :].lstrip()
        place = len(text) - len(rest)
        if rest.startswith(","):
            place = len(text) - len(rest[1:].lstrip())
        elif rest and not spaced:
            raise _not_a_list(cell)
    return items


def _not_a_list(cell: str) -> ValueError:
    return ValueError(f"“{show(cell[:80])}” is not a list of texts")


def _unwrapped(cell: str) -> str:
    found = _WRAPPED.fullmatch(cell)
    return (found[1].strip() or "[]") if found else cell


def _inner(cell: str) -> str:
    return _WRAPPED_TEXT.sub(r"\1", _unwrapped(cell))[1:-1]


def _unquoted(text: str) -> str:
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return str(read(text)).encode("utf-8", "replace").decode().strip()
    return text[1:-1].strip()


def _is_fraction(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False
