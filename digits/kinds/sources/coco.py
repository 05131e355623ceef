"""COCO files: JSON with ``images``, ``annotations`` and ``categories``; see https://cocodataset.org/#format-data.

Files by scripts may take liberties: ids and sizes that are texts or floats, booleans, nulls, annotations without ids.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from digits.data import loose_json
from digits.data.archives.file_names import numbered_name
from digits.data.archives.writing import Entry
from digits.data.loose_json import InvalidJson, UnexpectedJson
from digits.data.manifest import Manifest
from digits.data.records.index import IndexCache
from digits.data.records.records import Record
from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import UnusableSource, listed, read_bounded, show
from digits.data.tables.tables import Faults
from digits.kinds.versions.export import Export, File, Files, append, image_file

MAX_BYTES = 2 << 30
# The first bytes by which other formats are recognized.
SNIFFED_BYTES = 1 << 16

Id = int | str
_MAX_DIGITS = 20
# Why items of the lists cannot be used, by id.
_Rejected = dict[str, dict[Id, str]]


class _Identified(Struct, gc=False):
    id: Id


class Image(_Identified, gc=False):
    """An image; its size is optional."""

    file_name: str
    width: int | None = None
    height: int | None = None


class Category(_Identified):
    name: str


class Annotation(Struct, gc=False):
    """An object of a category in an image. Without an ``id``, it gets its number in the file, from 1.

    ``bbox`` contains left, top, width and height. The ``segmentation`` is decoded only where it is used, since polygons
    are most of a file.
    """

    image_id: Id
    category_id: Id
    id: Id | None = None
    iscrowd: int = 0
    bbox: list[float] | None = None
    segmentation: Raw = Raw()


_Item = TypeVar("_Item", bound=_Identified)


class _File(Struct):
    """The parts of a file that DIGITS uses."""

    images: list[Image]
    categories: list[Category]
    annotations: list[Annotation] = msgspec.field(default_factory=list)


class _LooseFile(Struct):
    """A file whose items are decoded one by one."""

    images: list[Raw]
    categories: list[Raw]
    annotations: list[Raw] | None = None


@dataclass
class CocoFile:
    """The contents of a file: the ``images`` by id, their ``paths`` below the image folder, and the names of the
    categories by id. Images outside the folder and unusable annotations are in ``unusable_images`` and
    ``unusable_annotations`` instead.
    """

    path: Path
    images: dict[Id, Image]
    paths: dict[Id, str]
    categories: dict[Id, str]
    annotations: list[Annotation]
    unusable_images: Faults
    unusable_annotations: Faults

    @property
    def faults(self) -> list[Faults]:
        """All parts that cannot be used."""
        return [self.unusable_images, self.unusable_annotations]

    @property
    def classes(self) -> list[str]:
        """The names of the categories in the order of their ids."""
        ids = sorted(self.categories, key=_rank)
        return list(dict.fromkeys(self.categories[item] for item in ids))

    def skip(self, item: Annotation, reason: str) -> None:
        """Count one of the ``annotations`` as unusable."""
        self.unusable_annotations.usable -= 1
        self.unusable_annotations.add_place(f"annotation {item.id}", reason)


def read(path: Path, root: Path) -> CocoFile:
    """Read a file whose images are below ``root``, a real path.

    Raises UnusableSource for a file in a different format, and if ids of images or categories are not unique.
    """
    content, rejected = _decode(path)
    content.images = _need_unique(path, "image", content.images)
    content.categories = _need_unique(path, "category", content.categories)
    images = {item.id: item for item in content.images}
    categories = {item.id: item.name for item in content.categories}
    matches, paths = ImageTree(root).match(item.file_name for item in content.images), {}
    faulty, skipped = Faults(path, row="image"), Faults(path, row="annotation", are_images=False)
    for number, fault in rejected["images"].items():
        faulty.add_place(f"image {number}", fault)
    for number, fault in rejected["annotations"].items():
        skipped.add_place(f"annotation {number}", fault)
    for item in content.images:
        try:
            paths[item.id] = matches.locate(item.file_name)
        except ValueError as error:
            faulty.add_place(f"image {item.id}", str(error))
    faulty.usable = len(paths)
    faulty.notes = matches.remarks(path.name)
    annotations = []
    for number, entry in enumerate(content.annotations, 1):
        if entry.id is None:
            entry.id = number
        if entry.image_id in paths and entry.category_id in categories:
            annotations.append(entry)
            continue
        # References can have a different type than the ids.
        if entry.image_id not in images:
            entry.image_id = _converted(entry.image_id)
        if entry.category_id not in categories:
            entry.category_id = _converted(entry.category_id)
        if entry.image_id in rejected["images"]:
            continue
        if fault := _fault(entry, images, categories):
            skipped.add_place(f"annotation {entry.id}", fault)
        elif entry.image_id in paths:
            annotations.append(entry)
    skipped.usable = len(annotations)
    return CocoFile(path, images, paths, categories, annotations, faulty, skipped)


_KEYS = re.compile(rb'"(images|annotations|categories|licenses)"\s*:')


# Words in the files of other tools, their names, and what to do with them.
_OTHERS = (
    (rb'"(shapes|imageData)"\s*:', "LabelMe", "Enter the folder of these files instead of one of them."),
    (rb'"classTitle"', "Supervisely", "Enter the folder of the project instead of one of its files."),
    (
        rb'"(dm_format_version|label_cat)"',
        "Datumaro",
        "Export the annotations as COCO from CVAT or Datumaro.",
    ),
    (rb'"(box2d|poly2d)"', "BDD100K", "Convert it to COCO with the package bdd100k (bdd100k.label.to_coco)."),
    (rb'"imgHeight"', "Cityscapes", "For segmentation, use the label images that end in _labelIds.png."),
    (rb'"(data_row|DataRow ID|Labeled Data)"', "Labelbox", "Convert the export to COCO."),
    (rb'"coordinates"\s*:', "CreateML", "Export the annotations as COCO."),
    (rb'"_?vid"\s*:|"xy"\s*:', "VIA 3", "Export the project from VIA 3 as COCO."),
)


def suggest_export(head: bytes, otherwise: str = "Export the annotations as COCO.") -> str:
    """Return which tool wrote JSON that begins with ``head``, and what to do, for an error; or else ``otherwise``."""
    for words, tool, advice in _OTHERS:
        if re.search(words, head):
            return f"It looks like a file of {tool}. {advice}"
    return otherwise


def looks_like(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` may have this format."""
    return bool(_KEYS.search(head))


def _decode(path: Path) -> tuple[_File, _Rejected]:
    """Return the contents of a file, and why items of its lists cannot be used; raises UnusableSource."""
    try:
        data = read_bounded(path, MAX_BYTES)
        try:
            return loose_json.load(data, _File), {"images": {}, "annotations": {}}
        except UnexpectedJson:
            return _decode_loosely(data)
    except UnexpectedJson as error:
        hint = suggest_export(data[:SNIFFED_BYTES])
        raise UnusableSource(f"{show(path.name)} is not a COCO file: {error}.", hint) from error
    except InvalidJson as error:
        raise UnusableSource(f"{show(path.name)} is not valid JSON: {error}.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnusableSource(f"{show(path.name)} cannot be read: {reason}.") from error


def _decode_loosely(data: bytes) -> tuple[_File, _Rejected]:
    """Decode a file with liberties, item by item; raises InvalidJson."""
    file = loose_json.load(data, _LooseFile)
    rejected: _Rejected = {"images": {}, "annotations": {}}

    def convert(raw: list[Raw], kind: type[Any], faults: dict[Id, str] | None = None) -> list[Any]:
        found = []
        for number, text in enumerate(raw, 1):
            plain: dict[str, Any] = {}
            try:
                plain = _plain(loose_json.load(bytes(text)))
                if kind is Annotation:
                    plain.setdefault("id", number)
                found.append(loose_json.load(msgspec.json.encode(plain), kind, strict=False))
            except UnexpectedJson as error:
                if faults is None:
                    raise
                named = plain.get("id")
                faults[named if isinstance(named, int | str) else f"number {number}"] = str(error)
        return found

    return _File(
        convert(file.images, Image, rejected["images"]),
        convert(file.categories, Category),
        convert(file.annotations or [], Annotation, rejected["annotations"]),
    ), rejected


def _plain(item: Any) -> dict[str, Any]:
    """Return an item without nulls and unusable sizes, and with whole numbers and texts as the format demands."""
    values = (
        {key: value for key, value in item.items() if value is not None} if isinstance(item, dict) else {}
    )
    for key in ("id", "image_id", "category_id", "width", "height", "iscrowd"):
        value = values.get(key)
        if isinstance(value, float) and value.is_integer():
            values[key] = int(value)
    for key in ("width", "height"):
        if not str(values.get(key, "")).isdecimal():
            values.pop(key, None)
    if isinstance(values.get("iscrowd"), bool):
        values["iscrowd"] = int(values["iscrowd"])
    for key in ("name", "file_name"):
        if isinstance(values.get(key), int | float):
            values[key] = str(values[key])
    return values


def _need_unique(path: Path, noun: str, items: list[_Item]) -> list[_Item]:
    """Return ``items`` without repetitions.

    Raises UnusableSource if two different ones have the same id: references to them are then ambiguous.
    """
    counts = Counter(item.id for item in items)
    if len(counts) == len(items):
        return items
    first: dict[Id, _Item] = {}
    repeated = {item.id: None for item in items if first.setdefault(item.id, item) != item}
    if repeated:
        raise UnusableSource(
            f"{show(path.name)}, {noun} {listed(map(str, repeated))}: the id is not unique.",
            "Correct or remove the duplicates.",
        )
    return list(first.values())


def _converted(number: Id) -> Id:
    """Return an id as a text if it is a number, and the other way around."""
    if isinstance(number, int):
        return str(number)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS else number


def _rank(number: Id) -> tuple[bool, int, str]:
    value = _converted(number) if isinstance(number, str) else number
    return (False, value, str(number)) if isinstance(value, int) else (True, 0, value)


def _fault(item: Annotation, images: Collection[Id], categories: Collection[Id]) -> str:
    if item.image_id not in images:
        return f"image {item.image_id} does not exist"
    if item.category_id not in categories:
        return f"category {item.category_id} does not exist"
    return ""


class CocoWriter:
    """Writes a file while images are added one by one. ``categories`` are the names of the classes by index."""

    def __init__(self, new_file: Callable[[], IO[bytes]], categories: Mapping[int, str]) -> None:
        self._ids: dict[int, int] = {}
        self._categories: list[dict[str, Any]] = []
        for index, name in categories.items():
            self.add_category(index, name)
        self._file, self._images = new_file(), new_file()
        self._file.write(b'{"annotations": [')
        self._images.write(b'\n],\n"images": [')
        self._count = self._annotations = 0

    def add_category(self, index: int, name: str) -> None:
        """Add the class ``index`` unless there is one."""
        if index not in self._ids:
            self._ids[index] = len(self._ids) + 1
            self._categories.append({"id": self._ids[index], "name": name})

    def add_image(self, name: str, width: int, height: int) -> None:
        """Add an image; the following annotations belong to it."""
        self._separate(self._images, self._count)
        self._count += 1
        image = {"id": self._count, "file_name": name, "width": width, "height": height}
        self._images.write(_json(image))

    def add_annotation(self, index: int, **keys: Any) -> None:
        """Add an object of the class ``index``; ``keys`` are those of the annotation, such as ``bbox``."""
        self._separate(self._file, self._annotations)
        self._annotations += 1
        ids = {
            "id": self._annotations,
            "image_id": self._count,
            "category_id": self._ids[index],
            "iscrowd": 0,
        }
        self._file.write(_json(ids | keys))

    def finish(self) -> IO[bytes]:
        """Return the complete file."""
        append(self._file, self._images)
        self._file.write(b'\n],\n"categories": %s}\n' % _json(self._categories))
        return self._file

    @staticmethod
    def _separate(file: IO[bytes], count: int) -> None:
        file.write(b",\n" if count else b"\n")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class CocoFiles(Files):
    """One COCO file per split. ``categories`` are the names of the classes by index."""

    categories: dict[int, str]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._writers: dict[str, CocoWriter] = {}

    def writer(self, split: str) -> CocoWriter:
        """Return the writer of the file of a split."""
        if split not in self._writers:
            self._writers[split] = CocoWriter(self.temporary_file, self.categories)
        return self._writers[split]

    def finish(self) -> Iterator[Entry]:
        for split, writer in self._writers.items():
            yield f"annotations/instances_{split}.json", writer.finish()


class CocoExport(CocoFiles, Export):
    """Images, and one COCO file per split with all classes of the dataset."""

    name = "coco"
    title = "COCO"

    def __init__(self, folder: Path, manifest: Manifest, indexes: IndexCache) -> None:
        super().__init__(folder, manifest, indexes)
        self.categories = dict(enumerate(manifest.target.names))

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        name, data = image_file(f"images/{split}/{numbered_name(number, record.source)}", record)
        target = self.read_target(record)
        writer = self.writer(split)
        writer.add_image(name.rpartition("/")[2], record.width, record.height)
        self.annotate(writer, record, target)
        return [(name, data)]

    def read_target(self, record: Record) -> Any:
        """Return the target of a record; raises DamagedRecords."""
        return record.target(self.manifest.target)

    def annotate(self, writer: CocoWriter, record: Record, target: Any) -> None:
        """Add the annotations of a record with a ``target``."""
        raise NotImplementedError
