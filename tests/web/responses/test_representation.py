"""Long responses, which are sent in blocks while they are computed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from digits.web.responses.representation import BLOCK_CHARACTERS, json_with_list, stream


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_a_long_list_is_sent_as_json_in_blocks(count: int) -> None:
    rows = [{"image": f"“{number}”\n", "predictions": [number / 3, None]} for number in range(count)]
    blocks = list(stream(json_with_list({"name": 'a"b', "state": "done"}, "rows", iter(rows))))
    assert json.loads("".join(blocks)) == {"name": 'a"b', "state": "done", "rows": rows}
    assert all(len(block) < 2 * BLOCK_CHARACTERS for block in blocks)


def test_an_error_at_the_start_is_raised_before_the_response() -> None:
    def damaged() -> Iterator[str]:
        yield "x"
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        stream(damaged())
