"""JSON Lines with the objects of an image in each line, such as ``metadata.jsonl`` on the Hugging Face Hub.

See https://huggingface.co/docs/datasets/image_dataset#object-detection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from digits.data.numbers import parse_number
from digits.data.sources.path_rules import ImageTree
from digits.data.tables.split_columns import find_split_keys
from digits.data.tables.tables import IMAGE_COLUMNS, Faults, open_json_lines
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.box_order import SIDES
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation
from digits.kinds.sources.shapes import Rectangle, Shape

FILE_NAME = "metadata.jsonl"
CLASS_KEYS = ("categories", "category", "label", "labels")


def _open(source: Source) -> Annotations:
    faults = Faults(source.labels)
    lines = list(open_json_lines(source.labels))
    split_of, note = find_split_keys((item for _, item in lines), ["objects"])
    images = _read(source.labels, lines, source.images, split_of, faults)
    return Annotations(images, faults=[faults], orders=SIDES, split_note=note)


def _read(
    path: Path,
    lines: list[tuple[int, dict[str, Any]]],
    root: Path,
    split_of: Callable[[dict[str, Any]], str],
    faults: Faults,
) -> Iterator[AnnotatedImage]:
    """Yield the images of a file, which are below ``root``, a real path.

    Lines that cannot be used are added to ``faults``.
    """
    items = [(line, _image_of(item), item) for line, item in lines]
    matches = ImageTree(root).match(name for _, name, _ in items)
    faults.notes = matches.remarks(path.name)
    for line, name, item in items:
        try:
            file = matches.locate(name)
            boxes = read_boxes(item.get("objects"), f"line {line}")
            split = split_of(item)
        except ValueError as error:
            faults.add(line, str(error))
            continue
        faults.usable += 1
        yield AnnotatedImage(file, boxes, declared_size(item.get("width"), item.get("height")), split=split)


def _image_of(item: dict[str, Any]) -> str:
    return next((item[key] for key in IMAGE_COLUMNS if isinstance(item.get(key), str)), "")


def read_boxes(objects: Any, where: str, classes: Sequence[str] = ()) -> list[Shape]:
    """Return the boxes of an image, from lists of boxes and of classes, or from a list of objects.

    ``classes`` are the names of classes that are numbers, and ``where`` the place of the image. Raises
    InvalidAnnotation.
    """
    if isinstance(objects, list) and all(isinstance(item, dict) for item in objects):
        keys = dict.fromkeys(key for item in objects for key in item)
        objects = {key: [item.get(key) for item in objects] for key in keys}
    if objects is None or objects == {}:
        return []
    edges = objects.get("bbox") if isinstance(objects, dict) else None
    names = next((objects[key] for key in CLASS_KEYS if key in objects), None) if edges is not None else None
    if not isinstance(edges, list) or not isinstance(names, list) or len(edges) != len(names):
        raise InvalidAnnotation("“objects” must have lists “bbox” and “categories” of the same length")
    return [
        _box(box, _name_of(name, classes), where, number)
        for number, (box, name) in enumerate(zip(edges, names, strict=True), 1)
    ]


def _name_of(name: Any, classes: Sequence[str]) -> Any:
    """Return the name of the class ``name``, which may be its number; None if there is no such class."""
    if not classes or isinstance(name, bool) or not isinstance(name, int):
        return name
    return classes[name] if 0 <= name < len(classes) else None


def _box(edges: Any, name: Any, where: str, number: int) -> Shape:
    try:
        left, top, width, height = map(parse_number, edges)
    except (TypeError, ValueError):
        raise InvalidAnnotation(f"object {number}: “bbox” must be left, top, width and height") from None
    if isinstance(name, bool) or not isinstance(name, (str, int)) or not str(name).strip():
        raise InvalidAnnotation(f"object {number}: no class")
    edges = Rectangle(left, top, left + width, top + height)
    return Shape(str(name).strip(), edges, f"{where}, object {number}")


FORMAT = Format("jsonl", "JSON Lines", _open, (".jsonl",), words="JSON Lines (Hugging Face)")
