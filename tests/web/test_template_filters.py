"""Sizes, durations and times in words, the same on the server and in the browser (`tests/static/format.test.js`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import humanize
import pytest

from digits.data.sources.plan import count_of
from digits.kinds.views import format_number
from digits.web.template_filters import ago, ahead, duration, line_of, sparkline

CASES = json.loads((Path(__file__).parents[1] / "static" / "words.json").read_text())
FILTERS: dict[str, Callable[[Any], str]] = {
    "duration": duration,
    "ago": lambda seconds: ago(-seconds, now=0),
    "ahead": lambda seconds: ahead(seconds, now=0),
    "bytes": humanize.naturalsize,
    "number": format_number,
    "count": lambda count: count_of(count, "file"),
}


@pytest.mark.parametrize("name", CASES)
def test_words(name: str) -> None:
    assert [[value, FILTERS[name](value)] for value, _ in CASES[name]] == CASES[name]


def test_a_sparkline_fills_its_box() -> None:
    line, label = line_of((3.0, 1.0, 2.0))
    assert (line, label) == ("M0.0 2.0L50.0 26.0L100.0 14.0", "Training loss so far: from 3 to 2")
    assert f'd="{line}L100 28L0 28Z"' in sparkline([3.0, 1.0, 2.0])
    assert line_of((1.0, 1.0))[0] == "M0.0 26.0L100.0 26.0"


def test_a_sparkline_needs_two_numbers() -> None:
    assert line_of((1.0,)) == ("", "Training loss so far: none")
    assert sparkline([]).count('d=""') == 2
