from __future__ import annotations

import pytest

from digits.core.csv_cells import harmless


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\r\n=1", " =1", "\rx"]
)
def test_formulas_are_escaped(text: str) -> None:
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize("value", ["", "a=1", "cat.png", "1-2", -1.5, None])
def test_other_values_are_unchanged(value: object) -> None:
    assert harmless(value) is value
