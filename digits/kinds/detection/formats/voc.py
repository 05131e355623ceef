"""Pascal VOC: an XML file for each image, with an ``object`` element per object.

Files are untrusted: those with a document type declaration are rejected, so there are no entities to expand.
"""

from __future__ import annotations

from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from digits.data.xml_text import to_utf8
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, declared_size
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation, LabelFolder, number_in
from digits.kinds.sources.shapes import Rectangle, Shape

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_MAX_DEPTH = 50


def parse(data: bytes) -> AnnotatedImage:
    """Parse a file; raises InvalidAnnotation."""
    root = parse_xml(data)
    if root.tag != "annotation":
        raise InvalidAnnotation(f"the root element is <{root.tag[:40]}> instead of <annotation>")
    boxes = [_box(item, f"object {number}") for number, item in enumerate(root.findall("object"), 1)]
    file = _text(root, "filename") or _text(root, "path")
    return AnnotatedImage(file, boxes, declared_size(_text(root, "size/width"), _text(root, "size/height")))


def _box(item: Element, where: str) -> Shape:
    name = _text(item, "name")
    if not name:
        raise InvalidAnnotation(f"{where}: no <name>")
    # Paths with a slash are slow.
    edges = item.find("bndbox")
    sides = (number_in("" if edges is None else _text(edges, edge), f"{where}, {edge}") for edge in _EDGES)
    is_difficult = _text(item, "difficult") not in ("", "0")
    return Shape(name, Rectangle(*sides), where, is_difficult)


def _text(item: Element, path: str) -> str:
    return (item.findtext(path) or "").strip()


def parse_xml(data: bytes) -> Element:
    """Parse XML without a document type declaration; raises InvalidAnnotation."""
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise InvalidAnnotation(
                f"line {parser.CurrentLineNumber}: more than {_MAX_DEPTH} nested elements"
            )
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> NoReturn:
        raise InvalidAnnotation(
            f"line {parser.CurrentLineNumber}: document type declarations are not allowed"
        )

    try:
        data = to_utf8(data)
    except ValueError as error:
        raise InvalidAnnotation(str(error)) from error
    parser = expat.ParserCreate("utf-8")  # also if the file declares another encoding
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InvalidAnnotation(f"line {error.lineno}: {expat.ErrorString(error.code)}") from error
    return builder.close()


def _open(source: Source) -> Annotations:
    return LabelFolder(source.labels, source.images, ".xml").annotations(parse)


FORMAT = Format("voc", "Pascal VOC", _open, (".xml",), is_folder=True, words="Pascal VOC (XML)")
