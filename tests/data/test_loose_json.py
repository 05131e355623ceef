"""JSON of users is read in other encodings and with Python's and JavaScript's liberties; the rest has a reason."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.loose_json import InvalidJson, UnexpectedJson, load
from digits.data.numbers import parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('[NaN, -Infinity, "NaN", "a\\"NaN"]', [None, None, "NaN", 'a"NaN']),
        (r'["\ud83d", "\ud83d\ude00", "a\ude00b", "\\ud83d"]', ["�", "😀", "a�b", "\\ud83d"]),
        (r'["\uD83D\uD83D\uDE00"]', ["�😀"]),
        ("[1" + 400 * "0" + "]", [10**400]),
    ],
)
def test_liberties(text: str, value: Any) -> None:
    assert load(text) == value == load(text.encode("utf-16"))


@pytest.mark.parametrize(
    "text", ["", "[", '["a', '["\\', "[1,]", "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000, "['a']"]
)
def test_anything_else_has_a_reason(text: str) -> None:
    with pytest.raises(InvalidJson, match=r"."):
        load(text)


def test_bytes_that_are_not_text() -> None:
    with pytest.raises(InvalidJson):
        load(b'["\xed\xa0\x80"]')


@pytest.mark.parametrize("data", [b'["a"]', b"[1e400]", b"[1" + 5000 * b"0" + b"]"])
def test_values_of_another_type(data: bytes) -> None:
    with pytest.raises(UnexpectedJson):
        load(data, list[float])


def test_values_that_nobody_reads_may_be_anything_but_deep() -> None:
    class Item(msgspec.Struct):
        a: int

    assert load(b'{"a": 1, "b": [NaN, 1%s, "\\ud800"]}' % (400 * b"0"), Item).a == 1
    with pytest.raises(InvalidJson, match="nested too deeply"):
        load(b'{"a": 1, "b": ' + b"[" * 2000 + b"]" * 2000 + b"}", Item)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_what_python_writes_is_read(value: Any) -> None:
    assert load(json.dumps(value)) == value


@given(st.text(st.sampled_from('"\\ud8df0{}[],:1N'), max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        load(text)
    except InvalidJson:
        pass


@pytest.mark.parametrize(
    ("value", "number"),
    [("1.5", 1.5), (" 2 ", 2.0), ("1e3", 1000.0), (3, 3.0), (0.25, 0.25), (10**300, 1e300), ("-0", 0.0)],
)
def test_numbers(value: Any, number: float) -> None:
    assert parse_number(value) == number


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a",
        "nan",
        "inf",
        "-Infinity",
        "1e400",
        "1" + 400 * "0",
        "1_000",
        10**400,
        -(10**5000),
        math.nan,
        math.inf,
        True,
        None,
        [1],
        {},
        "1" * 5000,
        b"1",
        "\ud800",
    ],
    ids=lambda value: "",
)
def test_values_that_are_no_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        parse_number(value)
