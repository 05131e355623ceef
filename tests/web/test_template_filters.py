"""Sizes, durations and times in words, the same on the server and in the browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import humanize
import pytest

from digits.web.template_filters import ago, duration, sparkline
from tests.static.node import run_node


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "?"),
        (0, "less than 1 s"),
        (0.5, "1 s"),
        (61, "1 min 1 s"),
        (3599.6, "1 h"),
        (7199, "2 h"),
        (7260, "2 h 1 min"),
        (86_400 * 40 + 3600 * 5, "40 d 5 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "just now"), (9, "just now"), (10, "10 seconds ago"), (3700, "1 hour ago"), (1e6, "11 days ago")],
)
def test_times_ago_have_one_unit(seconds: float, words: str) -> None:
    assert ago(1e9, now=1e9 + seconds) == words


def test_the_browser_uses_the_same_words(root: Path, tmp_path: Path) -> None:
    sizes = [0, 1, 2, 999, 1000, 1234, 99_949, 123_456_789, 5 * 10**9, 7 * 10**13]
    lengths = [0, 0.4, 0.5, 1, 1.6, 59.4, 60, 95, 3599, 3600, 3605, 7199, 86_399, 86_400, 100_000, 1e7]
    program = tmp_path / "program.mjs"
    module = json.dumps((root / "static" / "js" / "format.js").as_uri())
    program.write_text(
        f"import {{ ago, bytes, duration }} from {module};\n"
        f"const [sizes, lengths] = {json.dumps([sizes, lengths])};\n"
        "console.log(JSON.stringify([sizes.map(bytes), lengths.map((x) => duration(x)), "
        "lengths.map((x) => ago(1000 - x, 1000))]));\n"
    )
    assert json.loads(run_node(program).stdout) == [
        [humanize.naturalsize(size) for size in sizes],
        [duration(length) for length in lengths],
        [ago(1000 - length, now=1000) for length in lengths],
    ]


@pytest.mark.parametrize("numbers", [[1, 1], [3.0, 2.0, 1.5], [0.7, -0.2, 12.5, 3.1, 0.0]])
def test_the_browser_draws_the_same_sparkline(numbers: list[float], root: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.mjs"
    module = json.dumps((root / "static" / "js" / "sparkline.js").as_uri())
    program.write_text(f"import {{ linePath }} from {module};\nconsole.log(linePath({numbers}));\n")
    *_, line = re.findall(r' d="([^"]+)"', sparkline(numbers))
    drawn, expected = (re.findall(r"-?[\d.]+", path) for path in (run_node(program).stdout, line))
    assert list(map(float, drawn)) == pytest.approx(list(map(float, expected)), abs=0.11)
