"""CVAT for images: an XML file with an ``image`` element per image; see https://docs.cvat.ai/docs/other/xml_format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from digits.data.image_finder import ImageFinder
from digits.data.sources import UnusableSource, read_bounded, show
from digits.data.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, Box
from digits.kinds.detection.format import Format, Source
from digits.kinds.detection.label_files import InvalidAnnotation, number_in
from digits.kinds.detection.voc import parse_xml

FILE_NAME = "annotations.xml"
MAX_BYTES = 512 << 20
_EDGES = ("xtl", "ytl", "xbr", "ybr")
_SHAPES = ("polygon", "mask", "ellipse", "polyline", "points", "cuboid", "skeleton")


def _open(source: Source) -> Annotations:
    remarks: list[str] = []
    classes: list[str] = []
    faults = Faults(source.labels, row="image")
    found = _read(source.labels, source.images, classes, remarks, faults)
    return Annotations(found, classes, remarks, faults=[faults])


def _read(
    path: Path, root: Path, classes: list[str], remarks: list[str], faults: Faults
) -> Iterator[AnnotatedImage]:
    """Yield the images of a file, which are below ``root``, and add its labels to ``classes``.

    Images that cannot be used are added to ``faults``. Raises UnusableSource for a file in a different format.
    """
    tree = _parse(path)
    classes += [name for name in (item.findtext("name") for item in tree.findall("meta//label")) if name]
    finder = ImageFinder(root)
    others: Counter[str] = Counter()
    for image in tree.findall("image"):
        name = image.get("name", "")
        try:
            file = finder.locate(name)
            boxes = [_box(item, f"{show(name)}, box {n}") for n, item in enumerate(image.findall("box"), 1)]
        except ValueError as error:
            faults.add_place(show(name), str(error).removeprefix(f"{show(name)}, "))
            continue
        faults.usable += 1
        others.update(item.tag for item in image if item.tag in _SHAPES)
        yield AnnotatedImage(file, boxes)
    if others:
        shapes = ", ".join(f"{count} × {shape}" for shape, count in others.most_common())
        remarks.append(f"Only boxes are used. Other shapes: {shapes}.")


def _parse(path: Path) -> Element:
    try:
        tree = parse_xml(read_bounded(path, MAX_BYTES))
    except (InvalidAnnotation, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnusableSource(f"{show(path.name)} cannot be read: {reason}.") from error
    if tree.tag != "annotations" or tree.find("image") is None:
        raise UnusableSource(
            f"{show(path.name)} does not list images.", "Export the task from CVAT as “CVAT for images”."
        )
    return tree


def _box(item: Element, where: str) -> Box:
    label = item.get("label", "").strip()
    if not label:
        raise InvalidAnnotation(f"{where}: no label")
    left, top, right, bottom = (number_in(item.get(edge, ""), f"{where}, {edge}") for edge in _EDGES)
    return Box(left, top, right, bottom, label, where)


FORMAT = Format("cvat", "CVAT", _open, (".xml",), words="CVAT for images (XML)")
