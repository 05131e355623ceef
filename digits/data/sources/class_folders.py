"""Distinguish folders of classes from those of other layouts, and find classes in the names of images.

Folders are judged by the names of their first entries. Names of images with classes are such as ``cat.0.jpg`` and
``Abyssinian_12.jpg``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from digits.data.images.endings import KNOWN_ENDINGS, is_image_file
from digits.data.images.lists import MAX_ENTRIES_PROBED, is_visible
from digits.data.sources.declared_splits import affixed_splits, split_named
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.data.sources.target_images import find_folders

# Folders with targets of images, in lowercase.
TARGET_FOLDERS = (
    *("masks", "mask", "labels", "label", "annotations", "annotation", "segmentationclass", "annot", "gt"),
    *("groundtruth", "ground_truth", "bboxes", "boxes"),
)
MAX_ENTRIES = 200
_NUMBERS = re.compile(r"([-_. (]+\d+)+\)?\Z")
_WORD_AND_NUMBER = re.compile(r"([^\W\d_]+)\d+")
_LETTER = re.compile(r"[^\W\d_]")
_FEWEST_NAMED = 0.9


def refuse_other_layouts(root: Path) -> None:
    """Raise UnusableSource if the folders in ``root`` are images and their targets, or datasets, instead of classes."""
    if pair := find_folders(root, TARGET_FOLDERS):
        images, targets = (show(path.name) for path in pair)
        raise UnusableSource(
            f"The folders {images} and {targets} in {show(str(root))} are not classes: the second one describes the "
            "images of the first one.",
            "Create a dataset for segmentation or object detection from them.",
        )
    if found := find_datasets(root):
        raise UnusableSource(
            f"The folders in {show(str(root))} are not classes but datasets: {listed(found)}.",
            "Enter the path of one of them.",
        )
    if parts := _find_parts(root):
        raise UnusableSource(
            f"The folders in {show(str(root))} are not classes but parts of a dataset: {listed(parts)} contain folders "
            "of the same names.",
            f"{'Enter' if all(map(split_named, parts)) else 'Name them train, val and test, or enter'} the path of one "
            "of them.",
        )


def find_datasets(root: Path) -> list[str]:
    """Return the names of the folders in ``root`` that are datasets, if at least half of them are, and several.

    Folders of classes in folders can also be those of parts of classes, unless a folder beside them is a dataset.
    """
    folders = [Path(entry.path) for entry in _first(root) if entry.is_dir()]
    if affixed_splits(path.name for path in folders) or find_folders(root, TARGET_FOLDERS):
        return []
    declared = [path.name for path in folders if _is_dataset(path)]
    others = [path.name for path in folders if path.name not in declared and _has_classes(path)]
    found = sorted([*declared, *others])
    return found if declared and len(found) > 1 and 2 * len(found) >= len(folders) else []


def _find_parts(root: Path) -> list[str]:
    """Return the names of the folders in ``root`` with classes of the same names, if one of them is for training."""
    classes = {
        entry.name: {inner.name for inner in _first(entry.path) if inner.is_dir()}
        for entry in _first(root)
        if entry.is_dir()
    }
    train = next(
        (name for name in classes if split_named(name) == "train" and _has_classes(root / name)), None
    )
    parts = [name for name in classes if train and classes[name] & classes[train]]
    return sorted(parts) if len(parts) > 1 else []


def count_images(folder: str) -> str:
    """Return the number of images directly in ``folder`` in words, up to `MAX_ENTRIES`; empty if there is none."""
    count = sum(map(_is_image, _first(folder)))
    return (
        (f"at least {count_of(count, 'image')}" if count == MAX_ENTRIES else count_of(count, "image"))
        if count
        else ""
    )


def _is_dataset(folder: Path) -> bool:
    """Return whether ``folder`` contains those of splits, or of images and their targets."""
    names = [entry.name for entry in _first(folder) if entry.is_dir()]
    return bool(affixed_splits(names)) or find_folders(folder, TARGET_FOLDERS) is not None


def _has_classes(folder: Path) -> bool:
    """Return whether ``folder`` contains no images but several folders with some."""
    entries = _first(folder)
    if any(_is_image(entry) for entry in entries):
        return False
    folders = (entry.path for entry in entries if entry.is_dir())
    with_images = (path for path in folders if any(_is_image(entry) for entry in _first(path)))
    return len([*itertools.islice(with_images, 2)]) == 2


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(KNOWN_ENDINGS)


def _first(folder: Path | str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry for entry in itertools.islice(entries, MAX_ENTRIES) if is_visible(entry.name)]
    return []


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
