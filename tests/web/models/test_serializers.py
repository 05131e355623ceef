from __future__ import annotations

import pytest

from digits.core.events import InputPrepared
from digits.web.models import serializers


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("resident", "Cached in memory (2.0 kB of 3.0 kB available)"),
        ("streamed", "Streamed from disk (2.0 kB exceeds the 3.0 kB of memory available)"),
    ],
)
def test_the_page_says_how_records_are_loaded(how: str, expected: str) -> None:
    prepared = InputPrepared("train", how, 5, 2000, 3000, 9000)
    assert serializers._data_loading(prepared) == expected
