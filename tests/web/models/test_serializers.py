from __future__ import annotations

import pytest

from digits.core.events import InputPrepared
from digits.web.models import serializers


@pytest.mark.parametrize(
    ("how", "cache", "expected"),
    [
        ("resident", "", "Cached in memory (2.0 kB of 3.0 kB available)"),
        ("streamed", "", "Streamed from disk (2.0 kB exceeds the 3.0 kB of memory available)"),
        (
            "streamed",
            "/tmp/copies",
            "Streamed from disk (2.0 kB exceeds the 3.0 kB of memory available), through copies in /tmp/copies",
        ),
    ],
)
def test_the_page_says_how_records_are_loaded(how: str, cache: str, expected: str) -> None:
    prepared = InputPrepared("train", how, 5, 2000, 3000, 9000, cache=cache)
    assert serializers._data_loading(prepared) == expected
