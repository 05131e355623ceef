"""Filters of the templates: numbers, sizes, durations and times in words, and names in running text.

``static/js/format.js`` formats them in the same way; ``tests/static/words.json`` contains cases.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import humanize
from flask import Flask
from markupsafe import Markup

from digits.core.model_job import epoch_label
from digits.core.splits import SPLIT_TITLES
from digits.data.sources.plan import count_of
from digits.kinds.views import format_number

_UNITS = (("day", 86400, "d"), ("hour", 3600, "h"), ("minute", 60, "min"), ("second", 1, "s"))
# Less than this is not worth counting.
JUST_NOW_SECONDS = 10
MAX_TICKS = 5


def add_filters(app: Flask) -> None:
    """Add the filters to the templates of ``app``."""
    app.add_template_filter(duration, "seconds")
    app.add_template_filter(lambda at: _time_in_words(at, ago(at)), "ago")
    app.add_template_filter(lambda at: _time_in_words(at, ahead(at), Markup(" data-ahead")), "ahead")
    app.add_template_filter(humanize.naturalsize, "bytes")
    app.add_template_filter(humanize.intcomma, "count")
    app.add_template_filter(format_number, "number")
    app.add_template_filter(epoch_label, "epoch")
    app.add_template_filter(count_of, "count_of")
    app.add_template_filter(without_unit)
    app.add_template_filter(milliseconds, "milliseconds")
    app.add_template_filter(sparkline, "sparkline")
    app.add_template_filter(bins, "bins")
    app.add_template_filter(ticks, "ticks")
    app.add_template_filter(isolate, "isolate")
    app.add_template_filter(isolate_quoted, "isolate_quoted")
    app.jinja_env.globals["split_titles"] = SPLIT_TITLES


def duration(seconds: float | None) -> str:
    """Return ``seconds`` in its two largest units, such as ``1 min 35 s``."""
    if seconds is None:
        return "?"
    if seconds < 0.5:
        return "less than 1 s"
    largest = _largest_unit(seconds)
    last = min(largest + 1, len(_UNITS) - 1)
    # Round to the second unit, or it would show 1 h 60 min.
    left = int(seconds / _UNITS[last][1] + 0.5) * _UNITS[last][1]
    parts = []
    for _, length, symbol in _UNITS:
        count, left = divmod(left, length)
        parts += [f"{count} {symbol}"] if count else []
    return " ".join(parts)


def milliseconds(count: float) -> str:
    """Return a short time, such as ``4.2 ms``, ``69 ms`` or ``11.5 s``."""
    if count >= 1000:
        return f"{count / 1000:.1f} s"
    return f"{count:.0f} ms" if count >= 10 else f"{count:.1f} ms"


def ago(at: float, now: float | None = None) -> str:
    """Return how long ago a Unix time was, in its largest unit."""
    seconds = (time.time() if now is None else now) - at
    if seconds < JUST_NOW_SECONDS:
        return "just now"
    return f"{_in_largest_unit(seconds)} ago"


def ahead(at: float, now: float | None = None) -> str:
    """Return when a Unix time will be, in its largest unit; ``soon`` if it has passed."""
    seconds = at - (time.time() if now is None else now)
    return f"in {_in_largest_unit(seconds)}" if seconds > 0 else "soon"


def _in_largest_unit(seconds: float) -> str:
    name, length, _ = _UNITS[_largest_unit(seconds)]
    return count_of(int(seconds / length), name)


def _largest_unit(seconds: float) -> int:
    """Return the place of the largest unit of ``seconds`` in `_UNITS`."""
    return next((index for index, (_, length, _) in enumerate(_UNITS) if seconds >= length), len(_UNITS) - 1)


def sparkline(numbers: Sequence[float]) -> Markup:
    """Return a sparkline of the training loss as SVG, whose `line_of` live messages replace."""
    line, label = line_of(tuple(numbers))
    return Markup(
        '<svg class="sparkline" viewBox="0 0 100 28" preserveAspectRatio="none" role="img" aria-label="{}" '
        'data-sparkline><path class="area" d="{}"/><path d="{}"/></svg>'
    ).format(label, line and f"{line}L100 28L0 28Z", line)


@functools.lru_cache(maxsize=2048)
def line_of(numbers: tuple[float, ...]) -> tuple[str, str]:
    """Return the path of a line through ``numbers`` in a sparkline, empty if there are too few, and its label."""
    if len(numbers) < 2:
        return "", "Training loss so far: none"
    low, step = min(numbers), 100 / (len(numbers) - 1)
    scale = 24 / ((max(numbers) - low) or 1)
    points = (f"{index * step:.1f} {26 - (number - low) * scale:.1f}" for index, number in enumerate(numbers))
    first, last = format_number(numbers[0]), format_number(numbers[-1])
    return f"M{'L'.join(points)}", f"Training loss so far: from {first} to {last}"


def bins(counts: Sequence[int], edges: Sequence[float]) -> Iterator[tuple[str, str, int]]:
    """Yield the ends of each bin of a histogram in words, those for the filter of Explore, and its count.

    The first and the last bin also contain all that is beyond them.
    """
    for index, count in enumerate(counts):
        low, high = edges[index], edges[index + 1]
        limits = f"{low if index else ''}:{high if index < len(counts) - 1 else ''}"
        yield f"{format_number(low)}–{format_number(high)}", limits, count


def ticks(edges: Sequence[float]) -> list[tuple[float, str]]:
    """Return the places, in percent of the axis, and the texts of at most `MAX_TICKS` edges at equal distances."""
    last = len(edges) - 1
    step = math.ceil(last / (MAX_TICKS - 1))
    return [(100 * index / last, format_number(edges[index])) for index in range(0, last + 1, step)]


def without_unit(label: str) -> str:
    """Return the label of a field without the words in parentheses at its end, such as its unit."""
    return re.sub(r" \(.*\)$", "", label)


def isolate(name: str) -> str:
    """Isolate the text direction of ``name`` where ``bdi`` is not possible: in options and titles."""
    return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}"


def isolate_quoted(message: str) -> Markup:
    """Isolate the text direction of the “quoted” names in a message from the rest of it."""
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if position % 2 else part
        for position, part in enumerate(re.split("(?<=“)([^”]*)(?=”)", message))
    )


@functools.lru_cache(maxsize=4096)
def _time_in_words(at: float, words: str, mark: str = "") -> Markup:
    """Return a ``time`` element: in words, with date and time on hovering."""
    exact = datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    iso = datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(iso, exact, mark, words)
