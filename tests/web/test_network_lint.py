"""Linting networks of any length without running them."""

from __future__ import annotations

import pytest

from digits.web import network_lint

GOOD = "class UserModel(Tower):\n    def inference(self): pass\n    def loss(self): pass\n"
LONG = "x = 1\n" * 2000


@pytest.mark.parametrize("before", ["", LONG])
def test_short_and_long_texts_have_the_same_diagnostics(before: str) -> None:
    lines = before.count("\n")
    assert network_lint.check(before + GOOD) == []
    (fault,) = network_lint.check(before + GOOD + "class (")
    assert fault["line"] == lines + 4 and "Syntax error" in fault["message"]
    (fault,) = network_lint.check(before + GOOD.replace("loss", "lost"))
    assert fault["line"] == lines + 1 and "“loss”" in fault["message"]
    assert network_lint.check(before + GOOD.replace("Tower", "tools.Tower").replace("loss", "lost")) == []


@pytest.mark.parametrize(
    "text",
    [f"class UserModel(a{'.b' * 900}): pass", f"class UserModel(a{'.b' * 100_000}): pass", "(" * 100_000, "-" * 100_000,
     "\0" * 10, "\ud800" * 10, "\0" * 10_000, "\ud800" * 10_000, "[" * 150 + "]" * 150],
)  # fmt: skip
def test_texts_that_exhaust_the_parser_cause_no_server_error(text: str) -> None:
    assert len(network_lint.check(text)) <= 1
