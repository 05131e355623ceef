"""Flags, integers and choices in the fields of a request, with the same rules on every route.

A field that is missing or empty has its default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from digits.core.errors import BadRequest
from digits.data.numbers import parse_number

T = TypeVar("T")

# Neither a size, a position nor a number of records is larger.
LARGEST = 10**18 - 1

_LONGEST_FLOAT = 40  # characters

_FLAGS = {
    **dict.fromkeys(("1", "y", "yes", "true", "on"), True),
    **dict.fromkeys(("", "0", "n", "no", "false", "off"), False),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def parse_flag(text: str) -> bool:
    """Return whether ``text`` means yes, in any case; an empty text means no. Raises ValueError."""
    try:
        return _FLAGS[text.strip().lower()]
    except KeyError:
        raise ValueError("Must be 1 or 0, true or false, yes or no, y or n, on or off.") from None


def parse_integer(text: str) -> int | None:
    """Return the integer that ``text`` consists of; None for any other text."""
    return int(text) if _INTEGER.fullmatch(text) else None


def flag(fields: Mapping[str, str], name: str) -> bool:
    """Return whether the flag ``name`` is set, by default not. Raises BadRequest."""
    try:
        return parse_flag(fields.get(name, ""))
    except ValueError as error:
        raise BadRequest(f"“{name}”: {str(error)[0].lower()}{str(error)[1:]}") from None


def whole(
    fields: Mapping[str, str], name: str, default: T, low: int = -LARGEST, high: int = LARGEST
) -> int | T:
    """Return the integer in the field ``name``, from ``low`` to ``high``. Raises BadRequest."""
    text = fields.get(name, "").strip()
    if not text:
        return default
    number = parse_integer(text)
    if number is None or not low <= number <= high:
        limits = (
            f" from {low:,} to {high:,}"
            if high < LARGEST
            else f" of at least {low:,}"
            if low > -LARGEST
            else ""
        )
        raise BadRequest(f"“{name}” must be an integer{limits}.")
    return number


def positive(fields: Mapping[str, str], name: str) -> float:
    """Return the positive, finite number in the field ``name``. Raises BadRequest."""
    try:
        number = parse_number(fields[name][:_LONGEST_FLOAT])
    except ValueError:
        number = 0.0
    if number <= 0:
        raise BadRequest(f"“{name}” must be a positive number.")
    return number


def nearest(fields: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return the integer in the field ``name``, or the limit that it exceeds; ``default`` for any other text.

    For places in lists, where a page is better than an error.
    """
    number = parse_integer(fields.get(name, "").strip())
    return default if number is None else min(high, max(low, number))


def choice(fields: Mapping[str, str], name: str, default: str, options: Collection[str]) -> str:
    """Return the field ``name``, one of ``options``. Raises BadRequest."""
    text = fields.get(name, "").strip() or default
    if text not in options:
        raise BadRequest(f"There is no {name} “{text[:40]}”.", f"Use one of {', '.join(options)}.")
    return text
