"""Images with their objects in TFRecord files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from digits.data import images
from digits.data.images import UnusableImage
from digits.data.record_features import (
    BYTES,
    FLOATS,
    INTEGERS,
    Features,
    best_named,
    guess_image,
    last_word,
    values_of,
)
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource, count_of, read_bounded, show
from digits.kinds.detection.annotations import Box
from digits.kinds.detection.recipe import BoxRecords
from digits.kinds.record_source import need_feature

# The fields of the form for the edges, and usual last words of the names of their features.
EDGES = {
    "xmin_feature": ("xmin", "x_min", "left", "x1"),
    "ymin_feature": ("ymin", "y_min", "top", "y1"),
    "xmax_feature": ("xmax", "x_max", "right", "x2"),
    "ymax_feature": ("ymax", "y_max", "bottom", "y2"),
}
# A feature with all edges of each object in the order of TensorFlow Datasets: top, left, bottom, right.
JOINT_EDGES = ("bbox", "bboxes", "boxes")
CLASS_NAMES = (
    "image/object/class/text",
    "image/object/class/label",
    "class",
    "classes",
    "label",
    "labels",
    "text",
)
# Objects to ignore, if these features have a number for each object.
IGNORED_FEATURES = ("image/object/difficult", "image/object/is_crowd")
MAX_LABEL_MAP_BYTES = 1_000_000
# Edges may exceed the image slightly; numbers above this one are pixels.
LARGEST_FRACTION = 2.0
_FRACTIONS = "edges are fractions of the width and height, from 0 to 1"
_ITEM = re.compile(r"item\s*\{(.*?)\}", re.DOTALL)
_ID = re.compile(r"\bid\s*:\s*([0-9]+)")
_NAME = re.compile(r"\b(display_name|name)\s*:\s*([\"'])(.*?)\2")

Size = tuple[int, int]


class BoxMapping:
    """How the records of ``files`` become images with objects; raises UnusableSource."""

    def __init__(self, source: BoxRecords, files: RecordFiles, first: Features) -> None:
        self.image = source.map_image(files, first)
        guessed = guess(source, files, first)
        chosen = source.box_features or [""] * len(EDGES)
        self._edges = [
            need_feature(first, name, guessed[field], f"the edge {field.partition('_')[0]} of objects")
            for name, field in zip(chosen, EDGES, strict=True)
        ]
        self._class = need_feature(
            first, source.class_feature, guessed["class_feature"], "the class of objects"
        )
        self._names = read_label_map(Path(source.labels)) if source.labels else files.names_of(self._class)
        self.classes = list(self._names.values())
        self.chosen = {"image_feature": self.image.name, "class_feature": self._class}
        self.chosen |= dict(zip(EDGES, self._edges, strict=True))
        if self._has_joint_edges:
            self.chosen = {**self.chosen, "edges": self._edges[0]}

    @property
    def _has_joint_edges(self) -> bool:
        """Whether one feature contains all four edges, as in TensorFlow Datasets."""
        return len(set(self._edges)) == 1

    def read(self, features: Features) -> tuple[Size | None, list[Box]]:
        """Return the width and height of the image of a record, None if it is unusable, and its objects.

        Raises ValueError with a message.
        """
        edges = self._read_edges(features)
        names = self._class_names(features)
        for name, values in zip(self._edges, edges, strict=True):
            if len(values) != len(names):
                raise ValueError(
                    f"“{show(name)}” has {count_of(len(values), 'value')}, and “{show(self._class)}” {len(names):,}"
                )
        ignored = [_flags(features, name, len(names)) for name in IGNORED_FEATURES]
        boxes = []
        for place, name in enumerate(names):
            left, top, right, bottom = (values[place] for values in edges)
            is_ignored = any(flags[place] for flags in ignored)
            boxes.append(Box(left, top, right, bottom, name, f"object {place}", True, is_ignored))
        return self._size(features), boxes

    def _read_edges(self, features: Features) -> list[Sequence[float]]:
        """Return the left, top, right and bottom edges of all objects."""
        if not self._has_joint_edges:
            return [self._numbers(features, name) for name in self._edges]
        name = self._edges[0]
        values = self._numbers(features, name)
        if len(values) % len(EDGES):
            raise ValueError(
                f"“{show(name)}” has {count_of(len(values), 'value')}: "
                "expected top, left, bottom and right of each object"
            )
        top, left, bottom, right = (values[place :: len(EDGES)] for place in range(len(EDGES)))
        return [left, top, right, bottom]

    def _size(self, features: Features) -> Size | None:
        try:
            return images.upright_size_of(self.image.encoded(features))
        except UnusableImage:
            return None

    def _numbers(self, features: Features, name: str) -> Sequence[float]:
        kind, values = values_of(features, name)
        if len(values) and kind != FLOATS:
            raise ValueError(f"“{show(name)}” is {kind}, not {FLOATS}: {_FRACTIONS}")
        for value in values:
            if abs(value) > LARGEST_FRACTION:
                raise ValueError(f"“{show(name)}” contains {value:g}: {_FRACTIONS}")
        return values

    def _class_names(self, features: Features) -> list[str]:
        kind, values = values_of(features, self._class)
        if len(values) and kind not in (BYTES, INTEGERS):
            raise ValueError(f"“{show(self._class)}” is {kind}, not integers or texts")
        if kind == BYTES:
            names = [show(value.decode("utf-8", "backslashreplace").strip()) for value in values]
            if not all(names):
                raise ValueError(f"“{show(self._class)}” contains an empty text")
            return names
        unknown = [value for value in values if self._names and value not in self._names]
        if unknown:
            raise ValueError(f"the class {unknown[0]} is not in the label map")
        return [self._names.get(value, str(value)) for value in values]


def _flags(features: Features, name: str, count: int) -> Sequence[Any]:
    kind, values = values_of(features, name)
    return values if kind == INTEGERS and len(values) == count else [0] * count


def guess(source: BoxRecords, files: RecordFiles, first: Features) -> dict[str, str]:
    """Return the feature that each field of the form has by default, or an empty string."""
    names = sorted(first)
    found = {"image_feature": files.image or guess_image(first)}
    for field, words in EDGES.items():
        found[field] = best_named([name for name in names if name.lower().endswith(words)], words)
    if not found["xmin_feature"]:
        floats = [name for name in names if values_of(first, name)[0] == FLOATS]
        joint = best_named([name for name in floats if name.lower().endswith(JOINT_EDGES)], JOINT_EDGES)
        found |= dict.fromkeys(EDGES, joint)
    folder = found["xmin_feature"].rpartition("/")[0].removesuffix("/bbox")
    beside = [name for name in names if name.startswith(folder) and last_word(name) in CLASS_NAMES]
    found["class_feature"] = best_named(
        [name for name in beside if values_of(first, name)[0] != FLOATS], CLASS_NAMES
    )
    return found


def read_label_map(path: Path) -> dict[int, str]:
    """Read the names of the classes by number from a label map (.pbtxt); raises UnusableSource."""
    try:
        text = read_bounded(path, MAX_LABEL_MAP_BYTES).decode()
    except (OSError, ValueError) as error:
        raise UnusableSource(f"{show(path.name)} cannot be read: {error}.") from error
    found: dict[int, str] = {}
    for item in _ITEM.findall(text):
        number = _ID.search(item)
        names = {key: value for key, _, value in _NAME.findall(item)}
        name = names.get("display_name") or names.get("name")
        if number is None or not name:
            raise UnusableSource(f"{show(path.name)}: an item has no id or no name.")
        found[int(number[1])] = show(name)
    if not found:
        raise UnusableSource(
            f"{show(path.name)} is not a label map.",
            "It consists of items such as item { id: 1 name: 'car' }.",
        )
    return found
