"""What the cells of columns have in common, and lists in cells."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.tables.columns import are_spaced, list_items, survey

LISTS = [["a"], ["b c", "d"], []]


def items(cells: Sequence[str]) -> list[list[str]]:
    (column,) = survey([[cell] for cell in cells], [0]).values()
    assert column.are_lists
    return [list_items(cell, bool(are_spaced(cells))) for cell in cells]


@pytest.mark.parametrize(
    "cells",
    [
        [str(each) for each in LISTS],
        [json.dumps(each) for each in LISTS],
        [str(np.array(each)) for each in LISTS],
        [repr(np.array(each, object)) for each in LISTS],
        [str(set(each)) for each in LISTS[::2]] + ["{'b c', 'd'}"],
        ["{a}", '{"b c",d}', "{}"],
        ["[a]", "[b c, d]", "[]"],
        ["('a',)", "('b c', 'd')", "[]"],
        ["[np.str_('a')]", "[np.str_('b c'), np.str_('d')]", "[]"],
    ],
)
def test_lists_in_the_words_of_other_programs(cells: list[str]) -> None:
    assert sorted(map(str, items(cells))) == sorted(map(str, LISTS))


NAMES = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
    .map(str.strip)
    .filter(bool)
)


@given(st.lists(st.lists(NAMES, max_size=3), min_size=1, max_size=3), st.sampled_from([str, json.dumps]))
def test_any_texts_in_lists(lists: list[list[str]], write: type[str]) -> None:
    assert items([write(each) for each in lists]) == lists


@pytest.mark.parametrize(
    "cell", ["['a', ['b']]", '{"a": 1}', "['a', None]", "[nan]", "['a' 'b', 'c']", "['a", "a]"]
)
def test_other_cells_are_no_lists(cell: str) -> None:
    with pytest.raises(ValueError, match="list"):
        list_items(cell)


def test_one_label_with_a_space_may_be_two_labels() -> None:
    assert are_spaced(["[a]", "[b c]"]) is None
    assert are_spaced(["[a]", "[b c]", "[d, e]"]) is False
    assert are_spaced(["[1 2]", "[3]"]) is True


def test_columns_of_flags_fractions_and_lists() -> None:
    rows = [[str(number % 2), str(number / 300), "[]", str(number)] for number in range(300)]
    flags, fractions, lists, numbers = survey([*rows, ["", "0.5", "", ""]], range(4)).values()
    assert flags.are_only_flags and flags.are_flags and not fractions.are_flags
    assert fractions.are_fractions and not numbers.are_fractions
    assert lists.are_lists and not numbers.are_lists and numbers.are_numbers and numbers.values is None
    (late,) = survey([*[["1"]] * 300, ["x"]], [0]).values()
    assert late.are_flags and not late.are_only_flags


def test_halves_of_characters_are_replaced() -> None:
    (labels,) = items([r'["a\ud83d"]'])
    assert labels == ["a?"]
