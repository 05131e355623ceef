"""Render pages that take many milliseconds without blocking other requests."""

from __future__ import annotations

import itertools
from typing import Any

from flask import stream_template

from digits.web.offload import in_turns

# Between two checks of the time. A check takes about as long as one of the thousands of pieces of a page.
PIECES_PER_CHECK = 32


def render_in_turns(template: str, **context: Any) -> str:
    """Render ``template`` like ``render_template``, yielding to other greenlets every few milliseconds."""
    pieces = stream_template(template, **context)
    batches = iter(lambda: list(itertools.islice(pieces, PIECES_PER_CHECK)), [])
    return "".join(itertools.chain.from_iterable(in_turns(batches)))
