"""Group what cannot be used in a source by its cause, so that a message says each cause once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

MAX_EXAMPLES = 3
MAX_CAUSES_SHOWN = 5
# Further ones share one message, for sources in which every fault is worded differently.
MAX_CAUSES = 1000
MAX_VALUE_CHARACTERS = 60

LIMIT_FIELD = "max_unusable_percent"

# What differs between faults with the same cause: quoted values, names of files, and numbers.
_SPECIFIC = re.compile(r"“[^”]*”|[^\s“”:;,()]+\.[A-Za-z]\w{1,4}\b|[-+]?\d(?:[\d,.×]*\d)?")

CHECK_NAMES = "Check the names and the folder of the images."

# A place within a file, which other faults with the same cause do not share.
_PLACE = re.compile(r"((?:line|row|record|box|object|annotation) [\d,]+): (.+)", re.DOTALL)

# The first one whose pattern is found in the cause.
_REMEDIES = (
    ("outside the image folder", "Choose the folder that contains all images."),
    ("does not exist|no such file|not found", CHECK_NAMES),
    ("is empty|ends too early|truncated|damaged", "Copy these files again from where they came from."),
    ("TIFF file of .* bands?", "Export one band, or three as red, green and blue, with 8 or 16 bits each."),
    ("not an image", "Remove the files that are not images."),
    (r"limit of \S+ pixels", "Save smaller copies of these images."),
    ("not a number", "Write numbers like 1.5."),
    ("quotation mark", "Close every quotation mark."),
    ("several labels", "Keep one label for each image, or create a dataset for multi-label classification."),
    ("several values", "Keep one row for each image."),
)
_OTHER_REMEDY = "Correct or remove them."


@dataclass
class _Cause:
    """Faults with the same cause: the first reason, the parts in which others differ, and the first places."""

    reason: str
    values: list[str]
    count: int = 0
    differing: set[int] = field(default_factory=set)
    examples: list[tuple[str, list[str]]] = field(default_factory=list)

    def add(self, place: str, values: list[str]) -> None:
        self.count += 1
        pairs = zip(self.values, values, strict=False)
        self.differing |= {number for number, (own, other) in enumerate(pairs) if own != other}
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append((place, values))

    def title(self) -> str:
        """Return the reason without the values that differ."""
        numbers = iter(range(len(self.values)))

        def general(match: re.Match[str]) -> str:
            if next(numbers) not in self.differing:
                return match[0]
            return "“…”" if match[0].startswith("“") else "…"

        return _SPECIFIC.sub(general, self.reason)

    def describe(self, is_only: bool) -> str:
        places = [place for place, _ in self.examples]
        if self.count == 1:
            return ": ".join(filter(None, (places[0], self.reason)))
        title = self.title() if is_only else f"{self.title()} ({self.count:,} times)"
        more = self.count - len(self.examples)
        separator = "; " if any(", " in place for place in places) else ", "
        listed = separator.join(filter(None, map(self._example, self.examples)))
        if listed and more:
            listed += f" and {more:,} more"
        return f"{title}: {listed}" if listed else title

    def _example(self, example: tuple[str, list[str]]) -> str:
        place, values = example
        own = ", ".join(
            _clip(value)
            for number, value in enumerate(values)
            if number in self.differing and value not in place
        )
        return f"{place} ({own})" if own and place else place or own


class Causes:
    """The faults of a source by cause. ``count`` is their number."""

    def __init__(self) -> None:
        self._found: dict[str, _Cause] = {}
        self.count = 0

    def add(self, place: str, reason: str) -> None:
        """Add the fault at ``place``, such as ``line 7``."""
        self.count += 1
        if within := _PLACE.fullmatch(reason):
            place, reason = ", ".join(filter(None, (place, within[1]))), within[2]
        key = _SPECIFIC.sub("…", reason)
        if key not in self._found and len(self._found) >= MAX_CAUSES:
            key = reason = "other reasons"
        values = _SPECIFIC.findall(reason)
        self._found.setdefault(key, _Cause(reason, values)).add(place, values)

    def describe(self) -> str:
        """Return the causes, the most frequent one first, each with the first places."""
        ordered = self._ordered()
        texts = [cause.describe(len(ordered) == 1) for cause in ordered[:MAX_CAUSES_SHOWN]]
        more = sum(cause.count for cause in ordered[MAX_CAUSES_SHOWN:])
        return "; ".join([*texts, *([f"and {more:,} more for other reasons"] if more else [])])

    @property
    def remedy(self) -> str:
        """What to do about the most frequent cause, a sentence; empty without faults."""
        if not self.count:
            return ""
        reason = self._ordered()[0].reason
        return next((text for pattern, text in _REMEDIES if re.search(pattern, reason)), _OTHER_REMEDY)

    def _ordered(self) -> list[_Cause]:
        return sorted(self._found.values(), key=lambda cause: -cause.count)


def enough_percent(count: int, total: int) -> int:
    """Return the lowest limit, in whole percent, with which ``count`` of ``total`` images may be skipped."""
    return min(100, math.ceil(100 * count / total))


def advise_limit(percent: int, *, at_least: bool = False) -> str:
    """Return a sentence that says how to create the dataset without the images that cannot be used."""
    more = " or more" if at_least and percent < 100 else ""
    return f"Raise “Limit of unusable images” ({LIMIT_FIELD}) to {percent}{more} to create the dataset without them."


def _clip(value: str) -> str:
    if len(value) <= MAX_VALUE_CHARACTERS:
        return value
    return value[: MAX_VALUE_CHARACTERS - 1] + ("…”" if value.startswith("“") else "…")
