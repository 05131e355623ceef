"""JSON Lines with the objects of an image in each line, such as ``metadata.jsonl`` on the Hugging Face Hub.

See https://huggingface.co/docs/datasets/image_dataset#object-detection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from digits.data.image_finder import ImageFinder
from digits.data.sources import UnusableSource, count_of, path_below, show
from digits.data.tables import IMAGE_COLUMNS, first_lines, open_json_lines
from digits.kinds.detection.annotations import AnnotatedImage, Box
from digits.kinds.detection.label_files import InvalidAnnotation

FILE_NAME = "metadata.jsonl"
CLASS_KEYS = ("categories", "category", "label", "labels")


def read(path: Path, root: Path) -> Iterator[AnnotatedImage]:
    """Yield the images of a file, which are below ``root``, a real path; raises UnusableSource."""
    finder = ImageFinder(root)
    faults: list[str] = []
    for line, item in open_json_lines(path):
        name = next((item[key] for key in IMAGE_COLUMNS if isinstance(item.get(key), str)), "")
        try:
            file = path_below(str(root), name)
            file = file if (root / file).exists() else finder.find(name) or file
            yield AnnotatedImage(file, read_boxes(item.get("objects"), f"line {line}"))
        except (InvalidAnnotation, ValueError) as error:
            faults.append(f"line {line}: {error}")
    if faults:
        raise UnusableSource(
            f"{count_of(len(faults), 'line')} of {show(path.name)} cannot be used: {first_lines(faults)}.",
            "Correct or remove them.",
        )


def read_boxes(objects: Any, where: str, classes: Sequence[str] = ()) -> list[Box]:
    """Return the boxes of an image, from lists of boxes and of classes, or from a list of objects.

    ``classes`` are the names of classes that are numbers. Raises InvalidAnnotation.
    """
    if isinstance(objects, list) and all(isinstance(item, dict) for item in objects):
        keys = dict.fromkeys(key for item in objects for key in item)
        objects = {key: [item.get(key) for item in objects] for key in keys}
    if objects is None or objects == {}:
        return []
    edges = objects.get("bbox") if isinstance(objects, dict) else None
    names = next((objects[key] for key in CLASS_KEYS if key in objects), None) if edges is not None else None
    if not isinstance(edges, list) or not isinstance(names, list) or len(edges) != len(names):
        raise InvalidAnnotation("“objects” must have a list “bbox” and one of the same length “categories”")
    return [
        _box(box, _name_of(name, classes), f"{where}, object {number}")
        for number, (box, name) in enumerate(zip(edges, names, strict=True), 1)
    ]


def _name_of(name: Any, classes: Sequence[str]) -> Any:
    """Return the name of the class ``name``, which may be its number; None if there is no such class."""
    if not classes or isinstance(name, bool) or not isinstance(name, int):
        return name
    return classes[name] if 0 <= name < len(classes) else None


def _box(edges: Any, name: Any, where: str) -> Box:
    try:
        left, top, width, height = map(float, edges)
    except (TypeError, ValueError):
        raise InvalidAnnotation(f"{where}: “bbox” must be left, top, width and height") from None
    if isinstance(name, bool) or not isinstance(name, (str, int)) or not str(name).strip():
        raise InvalidAnnotation(f"{where}: no class")
    return Box(left, top, left + width, top + height, str(name).strip(), where)
