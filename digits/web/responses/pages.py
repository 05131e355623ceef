"""Render pages that take many milliseconds without blocking other requests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flask import stream_template

from digits.runtime.offload import in_turns

# Between two checks of the time. A check takes about as long as one of the thousands of pieces of a page.
PIECES_PER_CHECK = 32
# Sending a block takes as long as computing dozens of rows.
BLOCK_CHARACTERS = 32_000


def render_in_turns(template: str, **context: Any) -> str:
    """Render ``template`` like ``render_template``, yielding to other greenlets every few milliseconds."""
    pieces = stream_template(template, **context)
    batches = iter(lambda: list(itertools.islice(pieces, PIECES_PER_CHECK)), [])
    return "".join(itertools.chain.from_iterable(in_turns(batches)))


def json_with_list(body: Mapping[str, Any], name: str, items: Iterable[Any]) -> Iterator[str]:
    """Yield the JSON of ``body`` with a long list of ``items`` under ``name``, piece by piece.

    They replace the value of ``body`` with this name, so that no key is repeated.
    """
    others = {key: value for key, value in body.items() if key != name}
    yield f"{json.dumps(others)[:-1]}{', ' if others else ''}{json.dumps(name)}: ["
    for number, item in enumerate(items):
        yield f"{', ' if number else ''}{json.dumps(item)}"
    yield "]}"


def stream(pieces: Iterable[str]) -> Iterator[str]:
    """Join ``pieces`` to blocks of `BLOCK_CHARACTERS`, in turns. The first one is computed at once, with its errors."""
    blocks = in_turns(_blocks(pieces))
    return itertools.chain([next(blocks)], blocks)


def _blocks(pieces: Iterable[str]) -> Iterator[str]:
    block: list[str] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= BLOCK_CHARACTERS:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)
