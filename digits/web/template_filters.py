"""Filters of the templates: sizes, durations and times in words, and names in running text.

``static/js/format.js`` formats sizes, durations and times in the same way.
"""

from __future__ import annotations

import functools
import re
import time
from datetime import UTC, datetime

import humanize
from flask import Flask
from markupsafe import Markup

_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
# Less than this is not worth counting.
JUST_NOW_SECONDS = 10


def add_filters(app: Flask) -> None:
    """Add the filters to the templates of ``app``."""
    app.add_template_filter(duration, "seconds")
    app.add_template_filter(_time_element, "ago")
    app.add_template_filter(humanize.naturalsize, "bytes")
    app.add_template_filter(humanize.intcomma, "count")
    app.add_template_filter(isolate, "isolate")
    app.add_template_filter(isolate_quoted, "isolate_quoted")


def duration(seconds: float | None) -> str:
    """Return ``seconds`` in its two largest units, such as ``1 minute and 35 seconds``."""
    if seconds is None:
        return "?"
    if seconds < 0.5:
        return "less than a second"
    # Round to the second unit here: the library would show 1 hour and 60 minutes.
    largest = next((place for place, (_, length) in enumerate(_UNITS) if seconds >= length), -1)
    unit, length = _UNITS[largest:][:2][-1]
    return _in_words(int(seconds / length + 0.5) * length, unit)


@functools.lru_cache(maxsize=4096)
def _in_words(whole: int, unit: str) -> str:
    return humanize.precisedelta(whole, minimum_unit=unit, suppress=["months", "years"], format="%d")


def ago(at: float, now: float | None = None) -> str:
    """Return how long ago a Unix time was, in its largest unit."""
    seconds = (time.time() if now is None else now) - at
    if seconds < JUST_NOW_SECONDS:
        return "just now"
    return f"{duration(seconds).partition(' and ')[0]} ago"


def isolate(name: str) -> str:
    """Isolate the text direction of ``name`` where ``bdi`` is not possible: in options and titles."""
    return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}"


def isolate_quoted(message: str) -> Markup:
    """Isolate the text direction of the “quoted” names in a message from the rest of it."""
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if position % 2 else part
        for position, part in enumerate(re.split("(?<=“)([^”]*)(?=”)", message))
    )


def _time_element(at: float) -> Markup:
    """Return a ``time`` element: in words, with date and time on hovering."""
    exact = datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    iso = datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, exact, ago(at))
