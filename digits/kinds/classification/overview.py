"""Summarize a folder of images for the form: classes with counts, a sample of the images, and separate folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from digits.data.sources import UnusableSource, count_of, show
from digits.kinds.classification.reader import Scan, large_enough, need_two_classes, remarks, scan_steps
from digits.kinds.source_summary import (
    MAX_FILES,
    SPLIT_NAMES,
    Pace,
    SourceSummary,
    Suggestion,
    joined,
    with_sample,
)


def summarize_folder(
    root: Path, min_per_class: int, separate: set[str], is_allowed: Callable[[Path], bool]
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the folder ``root``, a real path; the last one is finished.

    ``separate`` contains the splits that already have a separate folder. ``is_allowed`` returns whether the server
    may read a path, which may be a link.
    """
    suggestion = _suggest(root, separate, is_allowed)
    pace = Pace()
    found = Scan(root)
    try:
        for found in scan_steps(root, MAX_FILES):
            if pace.is_over(found.seen):
                break
            if pace.is_due():
                summary = _summarize(found, min_per_class, suggestion)
                summary.finished = False
                yield summary
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return
    files = [name for item in found.classes for name in item.files]
    yield from with_sample(str(root), files, lambda: _summarize(found, min_per_class, suggestion))


def _summarize(found: Scan, min_per_class: int, suggestion: Suggestion | None) -> SourceSummary:
    summary = SourceSummary(suggestion=suggestion)
    at_least = "" if found.complete else "at least "
    images, classes = count_of(found.count, "image"), _count_of_classes(len(found.classes))
    summary.facts.append(f"{at_least}{images} in {at_least}{classes}.".capitalize())
    # Split folders are not classes.
    has_splits = suggestion is not None and suggestion.fields["folder_train"] != str(found.root)
    if found.complete:
        summary.problems += remarks(found)
        try:
            kept = large_enough(found, max(min_per_class, 1), summary.problems)
            need_two_classes(found, kept, summary.problems)
        except UnusableSource as error:
            summary.problems.append(error.sentences)
    if has_splits:
        summary.facts, summary.problems = [f"{at_least}{images} in total.".capitalize()], []
    else:
        counts = [(item.label, len(item.files)) for item in found.classes if item.files]
        summary.set_bars("Images per class", counts)
        fewest, most = min(counts, key=_count, default=None), max(counts, key=_count, default=None)
        if found.complete and fewest and most and fewest[1] < most[1]:
            summary.facts.append(
                f"The smallest class is “{fewest[0]}” with {count_of(fewest[1], 'image')}, "
                f"the largest “{most[0]}” with {most[1]:,}."
            )
    return summary


def _count(pair: tuple[str, int]) -> int:
    return pair[1]


def _count_of_classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def _suggest(root: Path, separate: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the split folders in ``root``, or its siblings if ``root`` itself is named like a training folder."""
    inside = _folders_of_splits(root, is_allowed)
    if "train" in inside and len(inside) > 1:
        found = joined([f"{show(os.path.basename(path))}/" for path in inside.values()])
        return Suggestion(
            f"This folder contains {found}. Use them as separate folders?", "Use them", _fields(inside)
        )
    if root.name.lower() not in SPLIT_NAMES["train"]:
        return None
    beside = {
        split: path
        for split, path in _folders_of_splits(root.parent, is_allowed).items()
        if split != "train" and split not in separate
    }
    if not beside or not is_allowed(root.parent):
        return None
    names = [f"{show(os.path.basename(path))}/" for path in beside.values()]
    return Suggestion.use_separately(names, "folder", _fields({"train": str(root), **beside}))


def _folders_of_splits(root: Path, is_allowed: Callable[[Path], bool]) -> dict[str, str]:
    """Return the folders in ``root`` that are named after a split."""
    found: dict[str, str] = {}
    for split, names in SPLIT_NAMES.items():
        spellings = (
            root / spelling for name in names for spelling in (name, name.capitalize(), name.upper())
        )
        for path in spellings:
            if path.is_dir() and is_allowed(path):
                found[split] = str(path)
                break
    return found


def _fields(folders: dict[str, str]) -> dict[str, str | bool]:
    fields: dict[str, str | bool] = {"folder_train": folders["train"]}
    for split in ("val", "test"):
        if split in folders:
            fields |= {f"has_{split}_folder": True, f"folder_{split}": folders[split]}
    return fields
