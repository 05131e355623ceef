"""Read and sort the names of classes."""

from __future__ import annotations

import re
from pathlib import Path

from digits.data.sources.plan import UnusableSource, show
from digits.data.tables.tables import open_lines

MAX_CLASSES = 100_000


def read_names(path: Path, most: int = MAX_CLASSES) -> list[str]:
    """Return the names of the classes, one per line of ``path``; raises UnusableSource that names a line.

    It also does if there are more than ``most``.
    """
    names: list[str] = []
    blank = 0
    lines, _ = open_lines(path)
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name:
            blank = blank or number
            continue
        if blank:
            raise UnusableSource(
                f"{show(path.name)}, line {blank}, is empty.", "Enter a class name in each line."
            )
        if len(names) == most:
            raise UnusableSource(f"{show(path.name)} has more than {most:,} lines.")
        names.append(show(name))
    if not names:
        raise UnusableSource(f"{show(path.name)} is empty.", "Enter a class name in each line.")
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if first.setdefault(name, number) != number:
            raise UnusableSource(
                f"{show(path.name)}, line {number}, repeats “{name}” of line {first[name]}.",
                "Give each class a unique name.",
            )
    return names


def sort_labels(labels: set[str]) -> list[str]:
    """Sort the names of classes: numerically if all are integers."""
    if all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)
