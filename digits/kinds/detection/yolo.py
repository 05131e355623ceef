"""YOLO: a text file for each image, with the number of a class and a normalized box per line.

The columns are class, center x, center y, width and height; a score or keypoints may follow. Lines with more columns
contain the x and y of the corners of a polygon or of an oriented box. The names of the classes are in ``data.yaml``,
``classes.txt`` or ``obj.names``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from digits.data.sources import UnusableSource, read_bounded, show
from digits.kinds.detection.annotations import Annotations, Box
from digits.kinds.detection.format import Format, Source
from digits.kinds.detection.label_files import (
    NAME_FILES,
    InvalidAnnotation,
    LabelFolder,
    number_in,
    text_lines,
)

YAML_FILES = ("data.yaml", "data.yml", "dataset.yaml")
MAX_CLASSES = 10_000
_COLUMNS = 5
_MAX_DIGITS = 10
# Keypoints may be outside their box by this fraction of the image.
_SLACK = 0.05
_MAX_NAMES_BYTES = 1 << 20


def parse(data: bytes, names: list[str]) -> list[Box]:
    """Parse a file; raises InvalidAnnotation. Without ``names``, classes are called ``class 0``, and so on."""
    boxes = []
    for where, words in text_lines(data):
        if len(words) < _COLUMNS:
            raise InvalidAnnotation(f"{where}: {len(words)} columns instead of {_COLUMNS}")
        is_box = len(words) <= _COLUMNS + 1
        numbers = [number_in(word, where) for word in words[1 : _COLUMNS if is_box else None]]
        name = _class_name(words[0], names, where)
        if is_box or _has_keypoints(numbers):
            x, y, width, height = numbers[:4]
            edges = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            boxes.append(Box(*edges, name, where, is_relative=True))
        else:
            points = tuple(numbers[: len(numbers) // 2 * 2])
            boxes.append(Box.around(points, name, where, is_relative=True))
    return boxes


def _has_keypoints(numbers: list[float]) -> bool:
    """Return whether a box is followed by x, y and visibility of keypoints, at least three: then, they are inside."""
    x, y, width, height = numbers[:4]
    points = list(zip(numbers[4::3], numbers[5::3], numbers[6::3], strict=False))
    return (
        len(points) >= 3
        and len(numbers) == 4 + 3 * len(points)
        and all(seen in (0, 1, 2) for _, _, seen in points)
        and all(
            abs(left - x) <= width / 2 + _SLACK and abs(top - y) <= height / 2 + _SLACK
            for left, top, seen in points
            if seen
        )
    )


def _class_name(word: str, names: list[str], where: str) -> str:
    number = _whole_number(word)
    if not 0 <= number < MAX_CLASSES:
        raise InvalidAnnotation(f"{where}: “{show(word[:40])}” is not the number of a class")
    if not names:
        return f"class {number}"
    if number >= len(names):
        raise InvalidAnnotation(f"{where}: there is no class {number}, only 0 to {len(names) - 1}")
    return names[number]


def _whole_number(word: str) -> int:
    """Return the number in ``word``, which can be written as ``1.0``; -1 if it is not a whole number."""
    if word.isascii() and word.isdecimal():
        return int(word) if len(word) < _MAX_DIGITS else -1
    try:
        number = float(word)
    except ValueError:
        return -1
    return int(number) if number.is_integer() else -1


def find_names(labels: Path, images: Path) -> list[str]:
    """Return the names of the classes, from a file in ``labels`` or above, up to the folder that contains both.

    Both are real paths. Returns no names if there is no such file; raises UnusableSource.
    """
    top = Path(os.path.commonpath([labels, images]))
    folders = [folder for folder in (labels, *labels.parents) if folder.is_relative_to(top)]
    for folder in folders:
        for name in (*YAML_FILES, *NAME_FILES):
            path = folder / name
            if path.is_file() and Path(os.path.realpath(path)).is_relative_to(top):
                return _names_in(path)
    return []


def _names_in(path: Path) -> list[str]:
    try:
        text = read_bounded(path, _MAX_NAMES_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UnusableSource(f"{show(path.name)} cannot be read: {error}.") from error
    if path.name not in YAML_FILES:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if names := yaml_names(text):
        return names
    raise UnusableSource(
        f"{show(path.name)} has no list of “names”.", "Write it as names: [first, second], or one per line."
    )


_NAMES = re.compile(r"^names[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*(?:-[ \t]+|(\d{1,5})[ \t]*:[ \t]*)(.*)$")
_WHOLLY_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)\"""")
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"([^"]*)"|([^,'"]+)""")


def yaml_names(text: str) -> list[str]:
    """Return the list ``names`` of a ``data.yaml``: in brackets or braces, or one item per line."""
    found = _NAMES.search(text)
    if not found:
        return []
    inline = found[1].strip()
    if inline[:1] in ("[", "{"):
        ends = "]" if inline[0] == "[" else "}"
        body = text[found.start(1) :].lstrip()[1:].partition(ends)[0].replace("\n", " ")
        if ends == "}":
            return [_unquote(part.partition(":")[2]) for part in body.split(",") if ":" in part]
        items = [quoted or double or plain for quoted, double, plain in _QUOTED.findall(body)]
        return [item.strip() for item in items if item.strip()]
    return _block_items(text[found.end() :])


def _block_items(text: str) -> list[str]:
    names: dict[int, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _ITEM.match(line)
        if not item:
            break
        names[int(item[1]) if item[1] else len(names)] = _unquote(item[2])
    if not names:
        return []
    return [names.get(number, f"class {number}") for number in range(max(names) + 1)]


def _unquote(text: str) -> str:
    text = text.strip()
    if found := _WHOLLY_QUOTED.match(text):
        return found[1].replace("''", "'") if found[1] is not None else found[2]
    return text.partition(" #")[0].strip()


def _open(source: Source) -> Annotations:
    names = find_names(source.labels, source.images)
    folder = LabelFolder(source.labels, source.images, ".txt")
    return folder.annotations(lambda data: parse(data, names), names, unlabeled_are_empty=True)


FORMAT = Format("yolo", "YOLO", _open, (".txt",), is_folder=True)
