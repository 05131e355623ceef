"""Classes in the names of image files, such as ``cat.0.jpg`` and ``Abyssinian_12.jpg``."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable

from digits.data.images.endings import is_image_file
from digits.data.images.lists import MAX_ENTRIES_PROBED, is_visible

_NUMBERS = re.compile(r"([-_. (]+\d+)+\)?\Z")
_WORD_AND_NUMBER = re.compile(r"([^\W\d_]+)\d+")
_LETTER = re.compile(r"[^\W\d_]")
_FEWEST_NAMED = 0.9


def class_in_name(file: str) -> str:
    """Return what the name of a file contains before its last numbers; empty if this is no word."""
    stem = os.path.splitext(file)[0]
    if numbers := _NUMBERS.search(stem):
        name = stem[: numbers.start()]
        return name if _LETTER.search(name) else ""
    match = _WORD_AND_NUMBER.fullmatch(stem)
    return match[1] if match else ""


def named_classes(files: Iterable[str]) -> list[str]:
    """Return the classes in the names of files, sorted, if almost all names contain one of at least two classes.

    The classes have two images on average.
    """
    counts = Counter(map(class_in_name, files))
    total = counts.total()
    named = total - counts.pop("", 0)
    are_clear = len(counts) > 1 and 2 * len(counts) <= named and named >= _FEWEST_NAMED * total
    return sorted(counts) if are_clear else []


def named_classes_in(folder: str) -> list[str]:
    """Return the classes in the names of the first images directly in a folder; see `named_classes`."""
    try:
        with os.scandir(folder) as entries:
            first = itertools.islice(entries, MAX_ENTRIES_PROBED)
            return named_classes(
                [entry.name for entry in first if is_visible(entry.name) and is_image_file(entry)]
            )
    except OSError:
        return []
