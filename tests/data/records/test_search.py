"""Queries of records, and their URLs."""

from __future__ import annotations

from typing import Any

import pytest

from digits.data.records.search import RecordQuery


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({}, {}),
        ({"predicted": 3}, {"predicted": "3"}),
        ({"predicted": 0, "label": 0}, {"predicted": "0", "label": "0"}),
        ({"text": "left", "wrong": "1"}, {"q": "left", "wrong": "1"}),
        ({"compared": "b", "outcome": "fixed"}, {"compare": "b", "outcome": "fixed"}),
    ],
)
def test_a_query_has_arguments_of_a_url(given: dict[str, Any], arguments: dict[str, str]) -> None:
    assert RecordQuery(split="val", **given).arguments() == {"db": "val", **arguments}
