"""Flags, integers and choices in the fields of a request."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from werkzeug.datastructures import MultiDict
from wtforms import Form

import digits.web
from digits.core.errors import BadRequest
from digits.kinds.forms.fields import FlagField
from digits.kinds.forms.request_fields import choice, flag, nearest, whole

WEB = Path(digits.web.__path__[0])


class Flags(Form):
    resize = FlagField("Resize")


@pytest.mark.parametrize(
    ("text", "value"),
    [(text, True) for text in ("1", "y", "yes", "true", "True", "ON", " 1 ")]
    + [(text, False) for text in ("", "0", "n", "no", "false", "False", "off", " ")],
)
def test_a_flag_means_the_same_in_requests_and_forms(text: str, value: bool) -> None:
    assert flag({"resize": text}, "resize") is value
    form = Flags(MultiDict({"resize": text}))
    assert form.validate() and form.resize.data is value


@pytest.mark.parametrize("text", ["2", "maybe", "tru e", "\0", "1" * 100])
def test_other_texts_are_no_flags(text: str) -> None:
    with pytest.raises(BadRequest, match="“resize”: must be 1 or 0, true or false"):
        flag({"resize": text}, "resize")
    form = Flags(MultiDict({"resize": text}))
    assert not form.validate() and "Must be 1 or 0" in form.errors["resize"][0]


def test_omitted_fields_have_their_defaults() -> None:
    assert not flag({}, "resize") and not Flags(MultiDict({"other": "1"})).resize.data
    assert whole({}, "rows", 5, 1, 50) == whole({"rows": " "}, "rows", 5, 1, 50) == 5
    assert whole({}, "rows", None) is None
    assert choice({}, "split", "val", ("train", "val")) == "val"


def test_integers_are_within_their_limits() -> None:
    assert [whole({"rows": text}, "rows", 5, -1, 50) for text in ("-1", "+7", " 50", "007")] == [-1, 7, 50, 7]


@pytest.mark.parametrize(
    "text", ["0", "2147483648", "1.5", "1e3", "1_0", "٣", "²", "x", "5" * 5000, "0" * 11 + "2147483648", "-"]
)
def test_other_integers_are_refused_with_the_limits_in_full(text: str) -> None:
    with pytest.raises(BadRequest, match="“rows” must be an integer from 1 to 2,147,483,647"):
        whole({"rows": text}, "rows", 5, 1, 2**31 - 1)


def test_a_missing_limit_is_not_named() -> None:
    with pytest.raises(BadRequest, match="“after” must be an integer of at least 0\\."):
        whole({"after": "-1"}, "after", None, 0)
    with pytest.raises(BadRequest, match="“label” must be an integer\\."):
        whole({"label": "x"}, "label", None)


def test_places_in_lists_are_the_nearest_ones() -> None:
    texts = ("-3", "2", "99", "x", "9" * 5000)
    assert [nearest({"page": text}, "page", 1, 1, 10) for text in texts] == [1, 2, 10, 1, 1]


def test_choices_list_the_alternatives() -> None:
    assert choice({"split": "train"}, "split", "val", ("train", "val")) == "train"
    with pytest.raises(BadRequest, match="There is no split “all”") as raised:
        choice({"split": "all"}, "split", "val", ("train", "val"))
    assert raised.value.hint == "Use one of train, val."


@pytest.mark.parametrize(
    "path", [path for path in WEB.rglob("*.py") if path.name != "gate.py"], ids=lambda p: p.stem
)
def test_no_view_parses_numbers_itself(path: Path) -> None:
    """`digits.kinds.forms.request_fields` does. The gate parses headers."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            assert call.func.attr not in ("isdecimal", "isdigit", "isnumeric"), f"line {call.lineno}"
            if call.func.attr in ("get", "getlist"):
                assert all(keyword.arg != "type" for keyword in call.keywords), f"line {call.lineno}"
