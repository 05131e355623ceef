"""Images with their objects in TFRecord files."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from digits.data.images import images
from digits.data.images.images import Size, UnusableImage
from digits.data.records.features import (
    BYTES,
    FLOATS,
    INTEGERS,
    ClassFeature,
    ExampleFeatures,
    ImageFeature,
    best_named,
    last_word,
    values_of,
)
from digits.data.records.files import RecordFiles
from digits.data.sources.plan import UnusableSource, count_of, naming_unreadable, read_bounded, show
from digits.kinds.detection.recipe import BoxOrder, BoxRecords, BoxUnits
from digits.kinds.sources.records import RecordMapping, need_feature
from digits.kinds.sources.shapes import Rectangle, Shape

# The fields of the form for the edges, and usual last words of the names of their features.
EDGES = {
    "xmin_feature": ("xmin", "x_min", "left", "x1"),
    "ymin_feature": ("ymin", "y_min", "top", "y1"),
    "xmax_feature": ("xmax", "x_max", "right", "x2"),
    "ymax_feature": ("ymax", "y_max", "bottom", "y2"),
}
# The field of the form for a feature with four numbers for each object, and usual last words of its name.
BOX_FIELD = "box_feature"
BOX_WORDS = ("bbox", "bboxes", "boxes")
BOX_NUMBERS = 4
ORDER_WORDS: dict[BoxOrder, str] = {
    "yxyx": "top, left, bottom, right",
    "xyxy": "left, top, right, bottom",
    "xywh": "left, top, width, height",
}
# The orders to try, first those of TensorFlow Datasets, and of Pascal VOC and COCO.
_LIKELY_ORDERS: dict[BoxUnits, tuple[BoxOrder, ...]] = {
    "relative": ("yxyx", "xyxy", "xywh"),
    "pixels": ("xyxy", "xywh", "yxyx"),
}
# Edges may exceed the image by this fraction of its sides, because of rounding.
_TOLERANCE = 0.01
CLASS_NAMES = tuple(
    "image/object/class/text image/object/class/label class classes label labels text".split()
)
# Objects to ignore, if these features have a number for each object.
IGNORED_FEATURES = ("image/object/difficult", "image/object/is_crowd")
MAX_LABEL_MAP_BYTES = 1_000_000
# Edges may exceed the image slightly; numbers above this one are pixels.
LARGEST_FRACTION = 2.0
_FRACTIONS = "edges are fractions of the width and height, from 0 to 1, unless the units are pixels"
_ITEM = re.compile(r"item\s*\{(.*?)\}", re.DOTALL)
_ID = re.compile(r"\bid\s*:\s*([0-9]+)")
_NAME = re.compile(r"\b(display_name|name)\s*:\s*([\"'])(.*?)\2")

Edges = tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class BoxLayout:
    """How records store boxes: the ``names`` of four features of edges, or of one feature in the given ``order``."""

    names: list[str]
    order: BoxOrder
    units: BoxUnits

    def read(self, features: ExampleFeatures) -> Edges:
        """Return the left, top, right and bottom edges of all objects; raises ValueError with a message."""
        if len(self.names) > 1:
            left, top, right, bottom = (self._numbers(features, name) for name in self.names)
            return left, top, right, bottom
        name = self.names[0]
        values = self._numbers(features, name)
        if len(values) % BOX_NUMBERS:
            raise ValueError(
                f"“{show(name)}” has {count_of(len(values), 'value')}: "
                f"expected {ORDER_WORDS[self.order]} of each object"
            )
        return _edges(values, self.order)

    def describe(self) -> str:
        """Return the order and the units, for pages."""
        order = f"{ORDER_WORDS[self.order]}, " if len(self.names) == 1 else ""
        return f"{order}in pixels" if self.units == "pixels" else f"{order}as fractions of the image"

    def _numbers(self, features: ExampleFeatures, name: str) -> Sequence[float]:
        kind, values = values_of(features, name)
        if not len(values):
            return values
        if self.units == "pixels":
            if kind not in (FLOATS, INTEGERS):
                raise ValueError(f"“{show(name)}” is {kind}, not numbers of pixels")
            return values
        if kind != FLOATS:
            raise ValueError(f"“{show(name)}” is {kind}, not {FLOATS}: {_FRACTIONS}")
        for value in values:
            if abs(value) > LARGEST_FRACTION:
                raise ValueError(f"“{show(name)}” contains {value:g}: {_FRACTIONS}")
        return values


def _edges(values: Sequence[float], order: BoxOrder) -> Edges:
    """Return the left, top, right and bottom edges of boxes of four numbers each."""
    first, second, third, fourth = (values[index::BOX_NUMBERS] for index in range(BOX_NUMBERS))
    if order == "yxyx":
        return second, first, fourth, third
    if order == "xyxy":
        return first, second, third, fourth
    right = [left + width for left, width in zip(first, third, strict=True)]
    bottom = [top + height for top, height in zip(second, fourth, strict=True)]
    return first, second, right, bottom


def _guess_order(values: Sequence[float], units: BoxUnits, size: Size | None) -> BoxOrder:
    """Return the order in which most boxes are in an image of this ``size``; the most usual one of several."""
    likely = _LIKELY_ORDERS[units]
    if len(values) % BOX_NUMBERS:
        return likely[0]
    width, height = (1.0, 1.0) if units == "relative" else size or (math.inf, math.inf)

    def misfits(order: BoxOrder) -> int:
        boxes = zip(*_edges(values, order), strict=True)
        return sum(
            not (_fits(left, right, width) and _fits(top, bottom, height))
            for left, top, right, bottom in boxes
        )

    return min(likely, key=misfits)


def _fits(low: float, high: float, side: float) -> bool:
    """Return whether two edges are in order and within an image of this ``side``."""
    return -_TOLERANCE * side <= low < high <= side * (1 + _TOLERANCE)


class BoxMapping(RecordMapping):
    """How the records of ``files`` become images with objects; raises UnusableSource."""

    FEATURES = RecordMapping.FEATURES | {"box_features": BOX_FIELD, "class_feature": "class_feature"}

    def __init__(self, recipe: Any, source: BoxRecords, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, source, files, first)
        boxes = [need_feature(first, name, "the boxes of objects") for name in source.box_features or [""]]
        self.boxes = BoxLayout(boxes, source.box_order, source.box_units)
        name = need_feature(first, source.class_feature, "the class of objects")
        names = read_label_map(Path(source.labels)) if source.labels else files.names_of(name)
        self._class, self.classes = ClassFeature(name, names), list(names.values())

    def read(self, features: ExampleFeatures) -> tuple[Size | None, list[Shape]]:
        """Return the width and height of the image of a record, None if it is unusable, and its objects in pixels.

        Raises ValueError with a message.
        """
        edges = self.boxes.read(features)
        names = self._class.read_all(features)
        if not all(names):
            raise ValueError(f"“{show(self._class.name)}” contains an empty text")
        is_joint = len(self.boxes.names) == 1
        for name, values in zip(self.boxes.names, edges, strict=not is_joint):
            if len(values) != len(names):
                found = count_of(len(values), "box" if is_joint else "value")
                raise ValueError(f"“{show(name)}” has {found}, and “{show(self._class.name)}” {len(names):,}")
        ignored = [_flags(features, name, len(names)) for name in IGNORED_FEATURES]
        size = _size(self.image, features)
        across, down = size if size and self.boxes.units == "relative" else (1, 1)
        boxes = []
        for index, name in enumerate(names):
            left, top, right, bottom = (values[index] for values in edges)
            box = Rectangle(left * across, top * down, right * across, bottom * down)
            is_ignored = any(flags[index] for flags in ignored)
            boxes.append(Shape(name, box, f"object {index}", is_ignored))
        return size, boxes

    @classmethod
    def propose(cls, source: BoxRecords, files: RecordFiles, first: ExampleFeatures) -> BoxRecords:
        """Propose the edges or the boxes, their order and units, and the classes beside them."""
        source = super().propose(source, files, first)
        types = {name: values_of(first, name)[0] for name in sorted(first)}

        def ending(words: tuple[str, ...]) -> str:
            return best_named(
                [name for name in types if name.lower().endswith(words) and types[name] != BYTES], words
            )

        edges, box = [ending(words) for words in EDGES.values()], ending(BOX_WORDS)
        boxes = source.box_features or (edges if all(edges) else [box] if box else [])
        folder = "".join(boxes[:1]).rpartition("/")[0].removesuffix("/bbox")
        classes = [name for name in types if name.startswith(folder) and last_word(name) in CLASS_NAMES]
        named = source.class_feature or best_named(
            [name for name in classes if types[name] != FLOATS], CLASS_NAMES
        )
        units, order = source.box_units, source.box_order
        stored = [values_of(first, name) for name in boxes]
        if units == "auto" and boxes:
            is_large = any(abs(value) > LARGEST_FRACTION for _, values in stored for value in values)
            units = "pixels" if is_large or any(kind == INTEGERS for kind, _ in stored) else "relative"
        if len(boxes) == 1 and order == "auto":
            image = ImageFeature.of(source.image_feature, first, tuple(source.shape))
            order = _guess_order(stored[0][1], units, _size(image, first))
        return structs.replace(
            source, box_features=boxes, box_order=order, box_units=units, class_feature=named
        )

    @classmethod
    def fields(cls, source: BoxRecords, setting: str) -> dict[str, str]:
        if setting != "box_features":
            return super().fields(source, setting)
        names = source.box_features
        boxes = {BOX_FIELD: names[0] if len(names) == 1 else ""}
        return boxes | dict(zip(EDGES, names if len(names) > 1 else [""] * len(EDGES), strict=True))


def _size(image: ImageFeature, features: ExampleFeatures) -> Size | None:
    try:
        return images.upright_size_and_turn(image.encoded(features))[0]
    except UnusableImage:
        return None


def _flags(features: ExampleFeatures, name: str, count: int) -> Sequence[Any]:
    kind, values = values_of(features, name)
    return values if kind == INTEGERS and len(values) == count else [0] * count


def read_label_map(path: Path) -> dict[int, str]:
    """Read the names of the classes by number from a label map (.pbtxt); raises UnusableSource."""
    with naming_unreadable(path):
        text = read_bounded(path, MAX_LABEL_MAP_BYTES).decode()
    labels: dict[int, str] = {}
    for item in _ITEM.findall(text):
        number = _ID.search(item)
        names = {key: value for key, _, value in _NAME.findall(item)}
        name = names.get("display_name") or names.get("name")
        if number is None or not name:
            raise UnusableSource(f"{show(path.name)}: an item has no id or no name.")
        labels[int(number[1])] = show(name)
    if not labels:
        raise UnusableSource(
            f"{show(path.name)} is not a label map.",
            "It consists of items such as item { id: 1 name: 'car' }.",
        )
    return labels
