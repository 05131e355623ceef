"""KITTI: a text file for each image, with one object per line.

The 15 columns are type, truncated, occluded, alpha, left, top, right, bottom, height, width, length, x, y, z and
rotation_y; a score may follow. See the development kit of https://www.cvlibs.net/datasets/kitti/eval_object.php.
"""

from __future__ import annotations

from digits.data.numbers import is_float
from digits.kinds.detection.annotations import DONT_CARE, Annotations
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation, LabelFolder, number_in, text_lines
from digits.kinds.sources.shapes import Rectangle, Shape

COLUMNS = 15
# In the order of DIGITS' class numbers, from 1; 0 is don't care.
CLASSES = (
    *("car", "van", "truck", "bus", "pickup", "vehicle-with-trailer", "special-vehicle", "person"),
    *("person-fa", "person?", "people", "cyclist", "tram", "person_sitting", "misc"),
)
_SYNONYMS = {"pedestrian": "person"}


def parse(data: bytes, keeps_all_types: bool) -> list[Shape]:
    """Parse a file; raises InvalidAnnotation.

    By default, objects have one of `CLASSES`, and those of other types are ignored, as in DIGITS.
    """
    boxes = []
    for where, words in text_lines(data):
        if len(words) < COLUMNS:
            raise InvalidAnnotation(f"{where}: {len(words)} columns instead of {COLUMNS}")
        name = words[0].lower()
        if not keeps_all_types:
            name = _SYNONYMS.get(name, name)
        left, top, right, bottom = (number_in(word, where) for word in words[4:8])
        is_ignored = name == DONT_CARE or not (keeps_all_types or name in CLASSES)
        boxes.append(Shape(name, Rectangle(left, top, right, bottom), where, is_ignored))
    return boxes


def _is_object(words: list[str]) -> bool:
    """Return whether a line has the columns of KITTI; a polygon begins with a number, and a sentence is text."""
    if len(words) < COLUMNS or is_float(words[0]) or not all(map(is_float, words[1:COLUMNS])):
        return False
    return float(words[2]).is_integer()


def _open(source: Source) -> Annotations:
    folder = LabelFolder(source.labels, source.images, ".txt")
    return folder.annotations(lambda data: parse(data, bool(source.classes)), CLASSES)


FORMAT = Format(
    "kitti",
    "KITTI",
    _open,
    (".txt",),
    is_folder=True,
    is_in=lambda first: any(map(_is_object, first.lines(".txt"))),
    min_val_box_size=25,
)
