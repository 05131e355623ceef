"""Cells of CSV files that people open in spreadsheets."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

# A spreadsheet evaluates a text that starts with one of these, also after space.
_FORMULA_STARTS = frozenset("=+-@")
_SPACE = frozenset("\t\r\n")


def harmless(value: T) -> T | str:
    """Return ``value``, escaped if a spreadsheet would evaluate it as a formula."""
    if isinstance(value, str) and (value[:1] in _SPACE or value.lstrip()[:1] in _FORMULA_STARTS):
        return f"'{value}"
    return value
