"""CVAT for images: an XML file with an ``image`` element per image; see https://docs.cvat.ai/docs/other/xml_format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import UnusableSource, count_of, listed, naming_unreadable, read_bounded, show
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_shapes import ellipse, polygon, rectangle, rotate
from digits.kinds.detection.formats.label_files import InvalidAnnotation, naming, number_in
from digits.kinds.detection.formats.voc import parse_xml
from digits.kinds.sources.shapes import Form, Rectangle, Rings, RunLengths, Shape, Surroundings, from_rows

FILE_NAME = "annotations.xml"
MAX_BYTES = 512 << 20
_EDGES = ("xtl", "ytl", "xbr", "ybr")
_DRAWN = ("polygon", "polyline", "ellipse", "mask")
_UNUSED = ("points", "cuboid", "skeleton")


def _open(source: Source) -> Annotations:
    remarks: list[str] = []
    box_remarks: list[str] = []
    classes: list[str] = []
    faults = Faults(source.labels, row="image")
    images = _read(source.labels, source.images, classes, (remarks, box_remarks), faults)
    return Annotations(images, classes, remarks, box_remarks=box_remarks, faults=[faults])


def _read(
    path: Path, root: Path, classes: list[str], remarks: tuple[list[str], list[str]], faults: Faults
) -> Iterator[AnnotatedImage]:
    """Yield the images of a file, which are below ``root``, and add its labels to ``classes``.

    ``remarks`` are those of `Annotations`, and those about boxes.

    Images that cannot be used are added to ``faults``. Raises UnusableSource for a file in a different format.
    """
    tree = _parse(path)
    classes += [name for name in (item.findtext("name") for item in tree.findall("meta//label")) if name]
    matches = ImageTree(root).match(image.get("name", "") for image in tree.findall("image"))
    faults.notes = matches.remarks(path.name)
    counts: Counter[str] = Counter()
    rotated: list[str] = []
    for image in tree.findall("image"):
        name = image.get("name", "")
        try:
            file = matches.locate(name)
            shapes = _shapes(image, show(name), rotated)
        except ValueError as error:
            faults.add_place(show(name), str(error).removeprefix(f"{show(name)}, "))
            continue
        faults.usable += 1
        counts.update(item.tag for item in image)
        yield AnnotatedImage(file, shapes, declared_size(image.get("width"), image.get("height")))
    if rotated:
        remarks[1].append(
            f"{count_of(len(rotated), 'rotated box')}: the smallest upright box around each is used "
            f"({listed(rotated)})."
        )
    if drawn := _counts(counts, _DRAWN):
        remarks[1].append(f"Boxes around other shapes are used: {drawn}.")
    if unused := _counts(counts, _UNUSED):
        remarks[0].append(f"Shapes that are not used: {unused}.")


def _parse(path: Path) -> Element:
    with naming_unreadable(path):
        tree = parse_xml(read_bounded(path, MAX_BYTES))
    if tree.tag != "annotations" or tree.find("image") is None:
        raise UnusableSource(
            f"{show(path.name)} does not list images.", "Export the task from CVAT as “CVAT for images”."
        )
    return tree


def _counts(shapes: Counter[str], names: tuple[str, ...]) -> str:
    return ", ".join(f"{count} × {shape}" for shape, count in shapes.most_common() if shape in names)


def _shapes(image: Element, name: str, rotated: list[str]) -> list[Shape]:
    """Return the objects in an image, and add the boxes that are ``rotated``."""
    counts: Counter[str] = Counter()
    shapes = []
    for item in image:
        counts[item.tag] += 1
        if item.tag != "box" and item.tag not in _DRAWN:
            continue
        where = f"{name}, {item.tag} {counts[item.tag]}"
        label = item.get("label", "").strip()
        if not label:
            raise InvalidAnnotation(f"{where}: no label")
        form = _form(item, where)
        if item.tag == "box" and isinstance(form, Rings):
            rotated.append(where)
        shapes.append(Shape(label, form, where))
    return shapes


def _form(item: Element, where: str) -> Form:
    """Return the form of an object; raises InvalidAnnotation."""
    if item.tag == "polygon":
        return polygon(_points(item, where), where)
    if item.tag == "polyline":
        around = rectangle(_points(item, where), where)
        return Surroundings(around.left, around.top, around.right, around.bottom)
    if item.tag == "mask":
        return _mask(item, where)
    angle = math.radians(_number(item, "rotation", where, "0"))
    if item.tag == "ellipse":
        x, y, width, height = (_number(item, key, where) for key in ("cx", "cy", "rx", "ry"))
        return polygon(ellipse(x, y, width, height, angle), where)
    left, top, right, bottom = (_number(item, edge, where) for edge in _EDGES)
    if not angle % (2 * math.pi):
        return Rectangle(left, top, right, bottom)
    x, y, width, height = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    corners = [(-width, -height), (width, -height), (width, height), (-width, height)]
    return polygon(rotate(corners, x, y, angle), where)


def _mask(item: Element, where: str) -> RunLengths:
    """Return a brush mask: run lengths of the rows of a rectangle, which begin outside."""
    left, top, width, height = (_number(item, key, where) for key in ("left", "top", "width", "height"))
    lengths = [text.strip() for text in item.get("rle", "").split(",")]
    with naming(where):
        frame = Rectangle(left, top, left + width, top + height)
        return from_rows(lengths, round(width), round(height), frame)


def _points(item: Element, where: str) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in item.get("points", "").split(";")]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidAnnotation(f"{where}: its points are not pairs of numbers")
    return [(number_in(x, f"{where}, points"), number_in(y, f"{where}, points")) for x, y in pairs]


def _number(item: Element, key: str, where: str, default: str = "") -> float:
    return number_in(item.get(key, default), f"{where}, {key}")


FORMAT = Format("cvat", "CVAT", _open, (".xml",), words="CVAT for images (XML)")
