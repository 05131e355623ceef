"""Decoding JSON into structs, with errors that name the invalid value."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from digits.core import schema
from digits.core.schema import Count, Fraction, JsonObject, Limits, Malformed, Positive, UnixTime


class Place(TypedDict):
    x: Count
    y: NotRequired[float | None]


class Inner(Struct):
    size: Count = 0


class Outer(Struct):
    name: Annotated[str, Meta(pattern=r"^[a-z]+\Z")]
    places: list[Place] = field(default_factory=list)
    step: tuple[str, UnixTime] = ("I", 0.0)
    inner: Inner | None = None
    loose: JsonObject = field(default_factory=dict)
    many: Annotated[list[int], Meta(min_length=1, max_length=2)] = field(default_factory=lambda: [1])
    flag: bool = False
    share: Fraction = 0.5
    most: Positive | None = None
    way: Literal["here", "there"] = "here"


def outer(**change: Any) -> Outer:
    return schema.decode(json.dumps({"name": "abc", **change}).encode(), Outer)


def test_json_is_decoded_into_a_struct() -> None:
    body = {
        "places": [{"x": 1, "y": None, "unknown": 1}],
        "step": ["R", 5],
        "inner": {"size": 3},
        "loose": {"size": 1, "other": [1.5]},
        "unknown": {},
    }
    made = outer(**body)
    assert made == Outer("abc", [{"x": 1, "y": None}], ("R", 5), Inner(3), {"size": 1, "other": [1.5]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "ABC"}, r"matching regex .* - at `\$.name`"),
        ({"name": "abc\n"}, r"matching regex .* - at `\$.name`"),
        ({"name": 3}, r"Expected `str`, got `int` - at `\$.name`"),
        ({"places": [{"x": 1}, {}]}, r"missing required field `x` - at `\$.places\[1\]`"),
        ({"places": [{"x": True}]}, r"Expected `int`, got `bool` - at `\$.places\[0\].x`"),
        ({"places": {}}, r"Expected `array`, got `object` - at `\$.places`"),
        ({"step": ["R"]}, r"of length 2.* - at `\$.step`"),
        ({"step": ["R", 1e300]}, r"<= 253370764799.0 - at `\$.step\[1\]`"),
        ({"step": ["R", -1]}, r">= 0.0 - at `\$.step\[1\]`"),
        ({"inner": {"size": 10**400}}, r"<= 9223372036854775807 - at `\$.inner.size`"),
        ({"inner": {"size": -1}}, r">= 0 - at `\$.inner.size`"),
        ({"loose": {"other": [1, {"a": 10**400}]}}, r"512 bits - at `\$.loose`"),
        ({"loose": {"other": json.loads("[" * 40 + "]" * 40)}}, r"Nested more than 32 deep - at `\$.loose`"),
        ({"loose": {"other": [[1, 2]] * 10_000}}, r"Contains more than 20,000 values - at `\$.loose`"),
        ({"loose": []}, r"Expected `object` - at `\$.loose`"),
        ({"many": []}, r"length >= 1 - at `\$.many`"),
        ({"flag": 1}, r"Expected `bool`, got `int` - at `\$.flag`"),
        ({"share": 1.01}, r"<= 1.0 - at `\$.share`"),
        ({"way": "elsewhere"}, r"'elsewhere' - at `\$.way`"),
    ],
)
def test_the_error_names_the_invalid_value(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        outer(**change)


def test_large_integers_of_networks_are_accepted() -> None:
    state = {"random": {"state": 2**128 - 1, "cached": [0.5, None, True]}}
    assert outer(loose=state).loose == state


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b"1", b"{}", b"", b"\xff", b"[" * 10**6])
def test_only_objects_are_accepted(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        schema.decode(body, Outer)


@given(st.floats() | st.integers() | st.sampled_from([10**400, 10**5000, -(2**63) - 1]))
def test_accepted_numbers_support_arithmetic(value: float) -> None:
    text = "1" + "0" * 5000 if value == 10**5000 else repr(value)
    try:
        known = schema.decode(text.encode(), float)
    except ValueError:
        return
    assert known == float(value)


def test_type_hints_set_the_limits() -> None:
    assert schema.limits(Outer, "share") == Limits(0.5, 0, 1)
    assert schema.limits(Outer, "most") == Limits(None, 1, schema.LARGEST_WHOLE)
    assert schema.limits(Outer, "way") == Limits("here", choices=("here", "there"))
    assert schema.limits(Outer, "flag") == Limits(False)
