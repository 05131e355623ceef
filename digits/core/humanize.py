"""Times and sizes in words."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
_SIZES = ("B", "kB", "MB", "GB", "TB")


def duration(seconds: float | None) -> str:
    """``95`` → ``1 minute, 35 seconds``: the two largest units. Less than half a second has none."""
    if seconds is None:
        return "?"
    left = max(0, round(seconds))
    words = []
    for name, length in _UNITS:
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {name}{'s' if count != 1 else ''}")
    return ", ".join(words[:2]) or "less than a second"


def ago(at: float, now: float | None = None) -> str:
    """How long ago a Unix time was, in its largest unit."""
    seconds = (time.time() if now is None else now) - at
    if seconds < 10:
        return "just now"
    return duration(seconds).split(",")[0] + " ago"


def exact(at: float) -> str:
    """A Unix time as local date and time."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str:
    """A Unix time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds")


def byte_size(count: float | None) -> str:
    """``1500`` → ``1.5 kB``; a kilobyte is 1000 bytes."""
    size = float(count or 0)
    for unit in _SIZES:
        if size < 1000 or unit == _SIZES[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
