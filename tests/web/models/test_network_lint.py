"""Linting networks of any length without running them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.web.models import network_lint
from tests.network_texts import INVALID, SHOWN_WHEN_RUN, VALID
from tests.site import Site


@pytest.mark.parametrize("name", VALID)
def test_a_network_is_accepted(name: str) -> None:
    assert network_lint.check(VALID[name]) == []


@pytest.mark.parametrize("name", [name for name in INVALID if name not in SHOWN_WHEN_RUN])
def test_an_error_is_shown_on_its_line(name: str) -> None:
    text, line = INVALID[name]
    fault, *_ = network_lint.check(text)
    assert fault["line"] == line
    assert fault["message"] and fault["hint"]


@pytest.mark.parametrize(("text", "column"), [(")\n", 0), ("x = 1 +\n", 7), ("if x:\n    y = )\n", 8)])
def test_a_syntax_error_has_a_column(text: str, column: int) -> None:
    assert [fault["column"] for fault in network_lint.check(text)] == [column]


def test_all_missing_properties_are_listed(site: Site) -> None:
    answer = site.post("/models/lint", custom_network="class UserModel(Tower): pass")
    messages = [fault["message"] for fault in answer.get_json()["diagnostics"]]
    assert messages == ["UserModel has no property inference.", "UserModel has no property loss."]


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\ufeff"])
def test_an_empty_editor_has_no_errors(text: str) -> None:
    assert network_lint.check(text) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [f"class UserModel(a{'.b' * 900}): pass", f"class UserModel(a{'.b' * 100_000}): pass", "(" * 100_000, "-" * 100_000,
     "\0" * 10, "\ud800" * 10, "\0" * 10_000, "\ud800" * 10_000, "[" * 150 + "]" * 150,
     '"""' + "\\" * 5000, '"' + '\\"' * 2900, "'''\"\"\"" * 900 + "\\", "x = 1 +\\\n" * 600, "`" * 5999,
     "".join(f"a{number + 1}=a{number}\n" for number in range(500)),
     "".join(f"class A{number + 1}(A{number}):0\n" for number in range(270)),
     "print 1;" * 740, "f(" + "x in y," * 800 + ")", "x=1\n" * 50_000, "print 1\n" * 10_000],
)  # fmt: skip
def test_code_that_exhausts_the_parser_causes_no_server_error(text: str) -> None:
    assert len(network_lint.check(text)) <= 1


@pytest.mark.slow
def test_code_that_takes_too_long_to_compile_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_lint, "CHECK_SECONDS", 1.0)
    nested = (f"{' ' * depth}try: pass\n{' ' * depth}finally:\n" for depth in range(19))
    assert network_lint.check("".join(nested) + f"{' ' * 19}pass\n") == []


PIECES = [
    *"abl019 \n\t\\\"'`#()[]{}:;,.=<>@é\0\x0c",
    "print ",
    "raise ",
    "except ",
    "class ",
    "exec ",
    " in ",
    ".value",
]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_has_a_result(text: str) -> None:
    """Each error refers to a line of the text."""
    for fault in network_lint.lint(text):
        assert 1 <= fault["line"] <= len(text.splitlines()) + 1
