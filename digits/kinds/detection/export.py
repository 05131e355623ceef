"""Downloads of detection datasets in the formats that `digits.kinds.detection.formats.formats` reads.

Images are in the folder ``images/SPLIT``; in that of Pascal VOC, ``JPEGImages/SPLIT``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from digits.data.archives.file_names import numbered_name
from digits.data.archives.writing import Entry
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Record
from digits.data.targets.box_matching import IGNORED_BOX, NO_BOX
from digits.kinds.detection.annotations import DONT_CARE
from digits.kinds.sources.coco import CocoExport, CocoWriter
from digits.kinds.versions.export import Export, File, image_file, number_text

# Left, top, right and bottom in pixels, and the index of the class, or `IGNORED_BOX`.
Object = tuple[float, float, float, float, int]


class _Boxes(Export):
    def objects(self, record: Record) -> list[Object]:
        """Return the objects of a record, and its regions to ignore; raises DamagedRecords."""
        target = self.manifest.target
        rows = record.target(target).tolist()
        objects = [(*row[:4], int(row[4])) for row in rows if row[4] != NO_BOX]
        if any(place >= len(target.names) for *_, place in objects):
            raise DamagedRecords(f"record of {record.filename!r} has an unknown class")
        return objects


class Coco(CocoExport, _Boxes):
    """One COCO file per split."""

    contents = "Images, and one JSON file of boxes per split. For Label Studio, CVAT and other tools."

    def read_target(self, record: Record) -> list[Object]:
        return self.objects(record)

    def annotate(self, writer: CocoWriter, record: Record, target: list[Object]) -> None:
        for left, top, right, bottom, place in target:
            width, height = right - left, bottom - top
            box = [left, top, width, height]
            is_ignored = place == IGNORED_BOX
            if is_ignored:
                writer.add_category(place, DONT_CARE)
            # Some tools would import polygons instead of boxes, or in addition to them.
            writer.add_annotation(
                place, bbox=box, area=width * height, segmentation=[], iscrowd=int(is_ignored)
            )


class Voc(_Boxes):
    """One XML file per image, and lists of the images in each split."""

    name = "voc"
    title = "Pascal VOC"
    contents = "Images, and one XML file of boxes per image."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        stem = f"{split}/{numbered_name(number, record.source)}"
        name, data = image_file(f"JPEGImages/{stem}", record)
        objects = [
            (
                DONT_CARE if place == IGNORED_BOX else self.manifest.target.names[place],
                edges,
                place == IGNORED_BOX,
            )
            for *edges, place in self.objects(record)
        ]
        xml = voc_file(name.partition("/")[2], (record.width, record.height, record.channels), objects)
        self.lines(f"ImageSets/Main/{split}.txt").write(f"{stem}\n".encode())
        return [(name, data), (f"Annotations/{stem}.xml", xml)]


def voc_file(
    name: str, size: tuple[int, int, int], objects: Iterable[tuple[str, Sequence[float], bool]]
) -> bytes:
    """Return the XML file of an image of this width, height and depth in the format of Pascal VOC.

    Each of the ``objects`` has a name, its left, top, right and bottom, and whether it is difficult.
    """
    root = Element("annotation")
    SubElement(root, "folder").text = "JPEGImages"
    SubElement(root, "filename").text = name
    sizes = SubElement(root, "size")
    for key, side in zip(("width", "height", "depth"), size, strict=True):
        SubElement(sizes, key).text = str(side)
    for name_of_class, edges, is_difficult in objects:
        item = SubElement(root, "object")
        SubElement(item, "name").text = _printable(name_of_class)
        SubElement(item, "truncated").text = "0"
        SubElement(item, "difficult").text = str(int(is_difficult))
        box = SubElement(item, "bndbox")
        for key, edge in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True):
            SubElement(box, key).text = number_text(edge)
    indent(root)
    xml: bytes = tostring(root, "utf-8")
    return xml


class Yolo(_Boxes):
    """A text file for each image, and the names of the classes; the format has no regions to ignore."""

    name = "yolo"
    title = "YOLO"
    contents = "Images, and one text file of boxes per image. For Ultralytics and other tools."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        stem = f"{split}/{numbered_name(number, record.source)}"
        objects = [item for item in self.objects(record) if item[4] != IGNORED_BOX]
        lines = yolo_lines(objects, record.width, record.height)
        return [image_file(f"images/{stem}", record), (f"labels/{stem}.txt", lines)]

    def finish(self) -> Iterator[Entry]:
        return yolo_settings(
            self.manifest.target.names, {split: f"images/{split}" for split in self.manifest.splits}
        )


def yolo_lines(objects: Iterable[Object], width: int, height: int) -> bytes:
    """Return the text file of the objects in an image of this size in the format of YOLO."""
    lines = []
    for left, top, right, bottom, place in objects:
        center = (left + right) / 2 / width, (top + bottom) / 2 / height
        values = *center, (right - left) / width, (bottom - top) / height
        lines.append(f"{place} {' '.join(map(repr, values))}\n")
    return "".join(lines).encode()


def yolo_settings(classes: Iterable[str], images: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the files that name the classes, and where the ``images`` of each split are."""
    names = [_printable(name) for name in classes]
    quoted = [name.replace("'", "''") for name in names]
    splits = [f"{split}: {place}\n" for split, place in images.items()]
    lines = [*splits, "names:\n", *(f"  {index}: '{name}'\n" for index, name in enumerate(quoted))]
    yield "data.yaml", "".join(lines).encode()
    yield "classes.txt", "".join(f"{name}\n" for name in names).encode()


def _printable(name: str) -> str:
    """Return the name of a class in one line."""
    return "".join(character if character.isprintable() else " " for character in name)


FORMATS = (Coco, Voc, Yolo)
