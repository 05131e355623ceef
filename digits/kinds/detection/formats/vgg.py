"""VGG Image Annotator (VIA 1 and 2): a JSON or CSV file with the regions of all images."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import UnusableSource, listed, naming_unreadable, read_bounded, show
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_shapes import (
    ellipse,
    items,
    load,
    number,
    numbers,
    polygon,
    rectangle,
    report_unused,
    surroundings,
)
from digits.kinds.detection.formats.label_files import InvalidAnnotation
from digits.kinds.sources.shapes import Form, Shape

MAX_BYTES = 512 << 20
# The usual names of the attribute that is the class, in the order of preference.
_CLASS_KEYS = ("class", "label", "name", "category", "type", "object", "class_name", "object_name")
_ONLY_CLASS = "object"


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the regions of each image by its file name; raises UnusableSource."""
    with naming_unreadable(path):
        data = read_bounded(path, MAX_BYTES)
        entries = _rows(data) if path.suffix.lower() == ".csv" else _entries(load(data))
    regions: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        regions.setdefault(str(entry.get("filename") or ""), []).extend(items(entry.get("regions")))
    if not regions:
        raise UnusableSource(f"{show(path.name)} lists no images.", "Export the annotations from VIA again.")
    return regions


def _entries(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, dict) and "_via_img_metadata" in content:
        content = content["_via_img_metadata"]
    return [item for item in items(content) if "filename" in item]


def _rows(data: bytes) -> list[dict[str, Any]]:
    rows = []
    for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig"))):
        row = {str(key).lstrip("#"): value for key, value in row.items()}
        shape = load((row.get("region_shape_attributes") or "{}").encode())
        region = {
            "shape_attributes": shape,
            "region_attributes": load((row.get("region_attributes") or "{}").encode()),
        }
        rows.append({"filename": row.get("filename"), "regions": [region] if shape else []})
    return rows


def _class_key(path: Path, regions: list[dict[str, Any]], chosen: str) -> str:
    """Return the attribute that is the class: the usual or the only one, empty if there are none.

    Raises UnusableSource if there are several.
    """
    counts = Counter(
        key for region in regions for key, value in _attributes(region).items() if _class_of(value)
    )
    usual = [key for name in _CLASS_KEYS for key in counts if key.lower() == name]
    if chosen:
        usual = [key for key in counts if key == chosen]
    if usual or len(counts) == 1:
        return (usual or list(counts))[0]
    if counts:
        raise UnusableSource(
            f"The regions in {show(path.name)} have several attributes, and none is called “class”: "
            f"{listed(counts)}.",
            "Enter the one that is the class as “Class column” (class_column).",
        )
    return ""


def _attributes(region: dict[str, Any]) -> dict[str, Any]:
    attributes = region.get("region_attributes")
    return attributes if isinstance(attributes, dict) else {}


def _class_of(value: Any) -> str:
    """Return the class in the value of an attribute: a text, a number, or the checked one of several."""
    if isinstance(value, dict):
        checked = [key for key, is_checked in value.items() if is_checked]
        return checked[0].strip() if len(checked) == 1 else ""
    return "" if value is None or isinstance(value, bool) else str(value).strip()


def _form(region: dict[str, Any], where: str, unused: Counter[str]) -> Form | None:
    shape = region.get("shape_attributes")
    if not isinstance(shape, dict):
        raise InvalidAnnotation(f"{where}: no shape_attributes")
    kind = shape.get("name")
    if kind == "rect":
        x, y, width, height = numbers(shape, ("x", "y", "width", "height"), where)
        return rectangle([(x, y), (x + width, y + height)], where)
    if kind in ("polygon", "polyline"):
        xs, ys = shape.get("all_points_x"), shape.get("all_points_y")
        if not isinstance(xs, list) or not isinstance(ys, list) or len(xs) != len(ys):
            raise InvalidAnnotation(f"{where}: “all_points_x” and “all_points_y” do not fit together")
        points = [(number(x, where), number(y, where)) for x, y in zip(xs, ys, strict=True)]
        if kind == "polygon":
            return polygon(points, where)
        unused[kind] += 1
        return surroundings(points, where) if points else None
    if kind == "circle":
        x, y, radius = numbers(shape, ("cx", "cy", "r"), where)
        return polygon(ellipse(x, y, radius, radius), where)
    if kind == "ellipse":
        x, y, width, height = numbers(shape, ("cx", "cy", "rx", "ry"), where)
        angle = number(shape.get("theta") or 0, where)
        return polygon(ellipse(x, y, width, height, angle), where)
    unused[str(kind)] += 1
    if kind != "point":
        return None
    x, y = numbers(shape, ("cx", "cy"), where)
    return surroundings([(x, y)], where)


def _images(
    source: Source, content: dict[str, list[dict[str, Any]]], key: str, faults: Faults, unused: Counter[str]
) -> Iterator[AnnotatedImage]:
    matches = ImageTree(source.images).match(content)
    faults.notes = matches.remarks(source.labels.name)
    for file, regions in content.items():
        shapes = []
        try:
            path = matches.locate(file)
            for index, region in enumerate(regions, 1):
                name = _class_of(_attributes(region).get(key)) if key else _ONLY_CLASS
                where = f"{show(file)}, region {index}"
                if not name:
                    raise InvalidAnnotation(f"region {index}: no “{key}”")
                form = _form(region, where, unused)
                if form is not None:
                    shapes.append(Shape(name, form, where))
        except ValueError as error:
            faults.add_place(show(file), str(error).removeprefix(f"{show(file)}, "))
            continue
        faults.usable += 1
        yield AnnotatedImage(path, shapes)


def _looks_like(head: bytes) -> bool:
    return (
        b"_via_" in head
        or b"region_shape_attributes" in head
        or (b'"filename"' in head and b'"regions"' in head)
    )


def _open(source: Source) -> Annotations:
    content = _read(source.labels)
    regions = [region for part in content.values() for region in part]
    key = _class_key(source.labels, regions, source.table.class_column)
    faults, unused = Faults(source.labels, row="image"), Counter[str]()
    remarks = []
    if regions and not key:
        remarks.append(f"The regions have no attributes: their class is called “{_ONLY_CLASS}”.")
    images = _images(source, content, key, faults, unused)
    return Annotations(
        report_unused(images, unused, remarks, source.needs_outlines), [], remarks, faults=[faults]
    )


FORMAT = Format(
    "vgg",
    "VGG Image Annotator",
    _open,
    (".json", ".csv"),
    looks_like=_looks_like,
    words="VGG Image Annotator (VIA)",
)
