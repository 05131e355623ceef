"""COCO: a JSON file with ``images``, ``annotations`` and ``categories``; see https://cocodataset.org/#format-data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from digits.data.sources import UnusableSource, count_of, path_below, show
from digits.data.tables import first_lines
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box
from digits.kinds.detection.label_files import read_bounded

MAX_BYTES = 2 << 30

Id = int | str
_Item = TypeVar("_Item", bound="_Identified")


class _Identified(Struct):
    id: Id


class Image(_Identified):
    file_name: str


class Category(_Identified):
    name: str


class Annotation(_Identified):
    """An object; ``bbox`` contains left, top, width and height. Objects without a box are ignored."""

    image_id: Id
    category_id: Id
    bbox: list[float] | None = None
    iscrowd: int = 0


class File(Struct):
    """The parts of a file that DIGITS uses."""

    images: list[Image]
    categories: list[Category]
    annotations: list[Annotation] = field(default_factory=list)


def read(path: Path, root: Path) -> Annotations:
    """Read a file whose images are below ``root``, a real path; raises UnusableSource."""
    found = _decode(path)
    names = {item.id: item.name for item in found.categories}
    faults = _duplicates("image", found.images) + _duplicates("category", found.categories)
    files: dict[Id, str] = {}
    for item in found.images:
        try:
            files[item.id] = _relative(root, item.file_name)
        except ValueError as error:
            faults.append(f"image {item.id}: {error}")
    objects: dict[Id, list[Box]] = {number: [] for number in files}
    listed_images = {item.id for item in found.images}
    for annotation in found.annotations:
        fault = _fault(annotation, listed_images, names)
        if fault:
            faults.append(f"annotation {annotation.id}: {fault}")
        elif annotation.bbox and annotation.image_id in objects:
            objects[annotation.image_id].append(
                _box(annotation, annotation.bbox, names[annotation.category_id])
            )
    if faults:
        raise UnusableSource(
            f"{count_of(len(faults), 'entry' if len(faults) == 1 else 'entrie')} of {show(path.name)} cannot be "
            f"used: {first_lines(faults)}.",
            "Correct or remove them.",
        )
    classes = [item.name for item in sorted(found.categories, key=lambda item: (str(type(item.id)), item.id))]
    return Annotations("COCO", _images(files, objects), list(dict.fromkeys(classes)))


def _images(files: dict[Id, str], objects: dict[Id, list[Box]]) -> Iterator[AnnotatedImage]:
    for number, file in files.items():
        yield AnnotatedImage(file, objects[number])


def _decode(path: Path) -> File:
    try:
        return msgspec.json.decode(read_bounded(path, MAX_BYTES), type=File)
    except msgspec.ValidationError as error:
        raise UnusableSource(f"{show(path.name)} is not a COCO file: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableSource(f"{show(path.name)} is not valid JSON: {error}.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnusableSource(f"{show(path.name)} cannot be read: {reason}.") from error


def _relative(root: Path, name: str) -> str:
    """The path of an image below ``root``: as written in the file, or else its last part."""
    found = path_below(str(root), name)
    last = os.path.basename(name)
    return last if last and not (root / found).exists() and (root / last).exists() else found


def _duplicates(noun: str, items: list[_Item]) -> list[str]:
    seen: set[Id] = set()
    found = []
    for item in items:
        if item.id in seen:
            found.append(f"{noun} {item.id}: the id is not unique")
        seen.add(item.id)
    return found


def _fault(item: Annotation, images: set[Id], names: dict[Id, str]) -> str:
    if item.image_id not in images:
        return f"there is no image {item.image_id}"
    if item.category_id not in names:
        return f"there is no category {item.category_id}"
    if item.bbox and len(item.bbox) != 4:
        return f"bbox has {len(item.bbox)} numbers instead of 4"
    return ""


def _box(item: Annotation, bbox: list[float], name: str) -> Box:
    left, top, width, height = bbox
    where = f"annotation {item.id}"
    return Box(left, top, left + width, top + height, name, where, is_ignored=item.iscrowd != 0)
