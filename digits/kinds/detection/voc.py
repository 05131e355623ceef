"""Pascal VOC: an XML file for each image, with an ``object`` element per object.

Files are untrusted: those with a document type declaration are rejected, so there are no entities to expand.
"""

from __future__ import annotations

from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from digits.kinds.detection.annotations import Annotations, Box
from digits.kinds.detection.format import Format, Source
from digits.kinds.detection.label_files import InvalidAnnotation, LabelFolder, number_in

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_MAX_DEPTH = 50


def parse(data: bytes) -> list[Box]:
    """Parse a file; raises InvalidAnnotation."""
    root = parse_xml(data)
    if root.tag != "annotation":
        raise InvalidAnnotation(f"the root element is <{root.tag[:40]}> instead of <annotation>")
    return [_box(item, f"object {number}") for number, item in enumerate(root.findall("object"), 1)]


def _box(item: Element, where: str) -> Box:
    name = (item.findtext("name") or "").strip()
    if not name:
        raise InvalidAnnotation(f"{where}: no <name>")
    left, top, right, bottom = (
        number_in((item.findtext(f"bndbox/{edge}") or "").strip(), f"{where}, {edge}") for edge in _EDGES
    )
    is_difficult = (item.findtext("difficult") or "").strip() not in ("", "0")
    return Box(left, top, right, bottom, name, where, is_ignored=is_difficult)


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

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InvalidAnnotation(f"line {error.lineno}: {expat.ErrorString(error.code)}") from error
    except (ValueError, LookupError) as error:  # an unknown encoding
        if isinstance(error, InvalidAnnotation):
            raise
        raise InvalidAnnotation(str(error)) from error
    return builder.close()


def _open(source: Source) -> Annotations:
    return LabelFolder(source.labels, source.images, ".xml").annotations(parse)


FORMAT = Format("voc", "Pascal VOC", _open, (".xml",), is_folder=True, words="Pascal VOC (XML)")
