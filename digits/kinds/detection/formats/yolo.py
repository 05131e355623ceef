"""YOLO: a text file for each image, with the number of a class and a normalized box per line.

The columns are class, center x, center y, width and height; a score or keypoints may follow. Lines with more columns
contain the x and y of the corners of a polygon or of an oriented box. See
`digits.kinds.detection.class_names` for the names of the classes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from digits.data.numbers import parse_number
from digits.data.sources.plan import count_of, listed, show
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.class_names import (
    MAX_CLASSES,
    Names,
    choose_file,
    find_names,
    has_keypoints,
    read_names,
)
from digits.kinds.detection.formats.box_order import Order
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation, LabelFolder, number_in, text_lines
from digits.kinds.sources.shapes import Form, Rectangle, Rings, Shape

_COLUMNS = 5
# Other programs mix these up.
_ORDERS = (Order.CENTERS, Order.EDGES, Order.SIDES)
_MAX_DIGITS = 10
# Keypoints may be outside their box by this fraction of the image.
_SLACK = 0.05
_UNNAMED = re.compile(r"class \d+")


def parse(data: bytes, names: Names, is_pose: bool = False) -> list[Shape]:
    """Return the objects in a file, in fractions of the image; raises InvalidAnnotation.

    Without ``names``, classes are called ``class 0``, and so on. If ``is_pose``, keypoints follow the boxes, and there
    are no polygons.
    """
    boxes = []
    for where, words in text_lines(data):
        if len(words) < _COLUMNS:
            raise InvalidAnnotation(f"{where}: {len(words)} columns instead of {_COLUMNS}")
        is_box = is_pose or len(words) <= _COLUMNS + 1
        numbers = [number_in(word, where) for word in words[1 : _COLUMNS if is_box else None]]
        name = _class_name(words[0], names, where)
        if is_box or _has_keypoints(numbers):
            x, y, width, height = numbers[:4]
            form: Form = Rectangle(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        else:
            form = Rings.of(numbers[: len(numbers) // 2 * 2])
        boxes.append(Shape(name, form, where))
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


def _class_name(word: str, names: Names, where: str) -> str:
    number = _whole_number(word)
    if not 0 <= number < MAX_CLASSES:
        raise InvalidAnnotation(f"{where}: “{show(word[:40])}” is not the number of a class")
    if not names:
        return f"class {number}"
    try:
        return names[number]
    except KeyError:
        raise InvalidAnnotation(
            f"{where}: there is no class {number}, only {min(names)} to {max(names)}"
        ) from None


def _whole_number(word: str) -> int:
    """Return the number in ``word``, which can be written as ``1.0``; -1 if it is not a whole number."""
    if word.isascii() and word.isdecimal():
        return int(word) if len(word) < _MAX_DIGITS else -1
    try:
        number = parse_number(word)
    except ValueError:
        return -1
    return int(number) if number.is_integer() else -1


def _open(source: Source) -> Annotations:
    chosen = None if source.names else choose_file(find_names(source.labels, source.images))
    path = source.names or (chosen.path if chosen else None)
    folder = LabelFolder(source.labels, source.images, ".txt")
    if path is None:
        names, remark = _names_by_choice(source.classes)
        folder.remarks.append(remark)
    else:
        names = read_names(path)
        repeated = [name for name, count in Counter(names.values()).items() if count > 1]
        if repeated:
            folder.remarks.append(
                f"Several class numbers have the same name: {listed(repeated)}. They are one class."
            )
    is_pose = path is not None and has_keypoints(path)
    declared = [names[number] for number in sorted(names)]
    annotations = folder.annotations(
        lambda data: AnnotatedImage("", parse(data, names, is_pose), is_relative=True),
        declared,
        unlabeled_are_empty=True,
    )
    return replace(annotations, images=_noting_polygons(annotations), orders=_ORDERS)


def _noting_polygons(annotations: Annotations) -> Iterator[AnnotatedImage]:
    """Yield the images of ``annotations``, then remark on polygons, which tools mix with boxes by accident."""
    count = 0
    for image in annotations.images:
        count += sum(isinstance(box.form, Rings) for box in image.boxes)
        yield image
    if count:
        use = (
            "is used as the smallest box around it"
            if count == 1
            else "are used as the smallest boxes around them"
        )
        annotations.box_remarks.append(f"{count_of(count, 'polygon')} {use}.")


def _names_by_choice(classes: Sequence[str]) -> tuple[Names, str]:
    """Return the names of classes without names: the chosen ``classes`` in their order; and a remark about it."""
    if any(map(_UNNAMED.fullmatch, classes)) or not classes:
        return {}, (
            "The classes have no names, only numbers: they are called “class 0”, and so on. List the names under "
            "“Classes” in the order of the numbers, or choose a file with one name per line as “Class names”."
        )
    remark = f"The classes have no names, only numbers: 0 is “{classes[0]}”, and so on."
    return dict(enumerate(classes)), remark


FORMAT = Format("yolo", "YOLO", _open, (".txt",), is_folder=True)
