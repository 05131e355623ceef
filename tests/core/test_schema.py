"""JSON becomes a dataclass, or an error that names the value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core import schema
from digits.core.schema import Between, Count, Malformed, Matching, Of, UnixTime


class Place(TypedDict):
    x: int
    y: NotRequired[float | None]


@dataclass
class Inner:
    size: Count = 0


@dataclass
class Outer:
    name: Annotated[str, Matching("[a-z]+")]
    places: list[Place] = field(default_factory=list)
    step: tuple[str, UnixTime] = ("I", 0.0)
    inner: Inner | None = None
    loose: Annotated[dict[str, Any], Of(Inner)] = field(default_factory=dict)
    many: Annotated[list[int], Between(1, 2)] = field(default_factory=lambda: [1])
    flag: bool = False


def test_json_becomes_a_dataclass() -> None:
    body = {
        "name": "abc",
        "places": [{"x": 1, "y": None, "unknown": 1}],
        "step": ["R", 5],
        "inner": {"size": 3},
        "loose": {"size": 1, "other": [1.5]},
        "unknown": {},
    }
    made = schema.build(Outer, body)
    assert made == Outer("abc", [{"x": 1, "y": None}], ("R", 5), Inner(3), {"size": 1, "other": [1.5]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "ABC"}, "name does not match"),
        ({"name": 3}, "name is not a text"),
        ({"places": [{"x": 1}, {}]}, r"places\[1\].x is missing"),
        ({"places": [{"x": True}]}, r"places\[0\].x is not an integer"),
        ({"places": {}}, "places is not a list"),
        ({"step": ["R"]}, "step is not a list of 2"),
        ({"step": ["R", 1e300]}, r"step\[1\] is not between"),
        ({"step": ["R", -1]}, r"step\[1\] is not between"),
        ({"inner": {"size": 10**400}}, "inner.size is not a number of at most 64 bits"),
        ({"inner": {"size": -1}}, "inner.size is not between"),
        ({"loose": {"size": "x"}}, "loose.size is not an integer"),
        ({"loose": {"other": float("inf")}}, "loose.other is not a finite number"),
        (
            {"loose": {"other": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}},
            "nested",
        ),
        ({"many": []}, "many has 0 entries"),
        ({"flag": 1}, "flag is not true or false"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        schema.build(Outer, {"name": "abc", **change})


def test_the_state_of_a_generator_is_no_number_that_is_too_large() -> None:
    state = {"random": {"state": 2**128 - 1, "cached": [0.5, None, True]}}
    assert schema.check(dict[str, Any], state) == state
    with pytest.raises(Malformed, match="512 bits"):
        schema.check(dict[str, Any], {"random": 10**400})


@pytest.mark.parametrize("body", [None, [], "x", 1, {}])
def test_what_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(Malformed):
        schema.build(Outer, body)


@given(st.floats() | st.integers() | st.sampled_from([10**400, -(2**63) - 1]))
def test_a_number_that_passes_can_be_computed_with(value: float) -> None:
    try:
        known = schema.check(float, value)
    except Malformed:
        return
    assert round(float(known)) == round(known)
