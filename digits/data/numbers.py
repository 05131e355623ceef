"""Numbers in files, cells and requests of users."""

from __future__ import annotations

import math
from typing import Any

from digits.data.sources.plan import show


def is_float(text: str) -> bool:
    """Return whether ``float`` accepts ``text``, which includes NaN and infinity."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_number(value: Any) -> float:
    """Return the finite number that ``value`` is or that its text denotes.

    Raises ValueError with a message for anything else: texts of other things, underscores between digits, NaN,
    infinity, flags, and numbers beyond the range of a float.
    """
    try:
        is_other = isinstance(value, bool | bytes) or (isinstance(value, str) and "_" in value)
        number = math.nan if is_other else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        # An integer cannot be written in decimals if it has thousands of digits.
        text = hex(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
        raise ValueError(f"“{show(text[:40])}” is not a number")
    return number
