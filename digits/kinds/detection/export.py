"""Downloads of detection datasets in the formats that `digits.kinds.detection.formats.formats` reads.

Images are in the folder ``images/SPLIT``; in that of Pascal VOC, ``JPEGImages/SPLIT``.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        root = Element("annotation")
        SubElement(root, "folder").text = "JPEGImages"
        SubElement(root, "filename").text = name.partition("/")[2]
        size = SubElement(root, "size")
        for key in ("width", "height"):
            SubElement(size, key).text = str(getattr(record, key))
        SubElement(size, "depth").text = str(record.channels)
        for *edges, place in self.objects(record):
            item = SubElement(root, "object")
            is_ignored = place == IGNORED_BOX
            name_of_class = DONT_CARE if is_ignored else self.manifest.target.names[int(place)]
            SubElement(item, "name").text = _printable(name_of_class)
            SubElement(item, "truncated").text = "0"
            SubElement(item, "difficult").text = str(int(is_ignored))
            box = SubElement(item, "bndbox")
            for key, edge in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True):
                SubElement(box, key).text = number_text(edge)
        indent(root)
        self.lines(f"ImageSets/Main/{split}.txt").write(f"{stem}\n".encode())
        return [(name, data), (f"Annotations/{stem}.xml", tostring(root, "utf-8"))]


class Yolo(_Boxes):
    """A text file for each image, and the names of the classes; the format has no regions to ignore."""

    name = "yolo"
    title = "YOLO"
    contents = "Images, and one text file of boxes per image. For Ultralytics and other tools."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        stem = f"{split}/{numbered_name(number, record.source)}"
        lines = []
        for left, top, right, bottom, place in self.objects(record):
            if place == IGNORED_BOX:
                continue
            values = (
                (left + right) / 2 / record.width,
                (top + bottom) / 2 / record.height,
                (right - left) / record.width,
                (bottom - top) / record.height,
            )
            lines.append(f"{place} {' '.join(map(repr, values))}\n")
        return [image_file(f"images/{stem}", record), (f"labels/{stem}.txt", "".join(lines).encode())]

    def finish(self) -> Iterator[Entry]:
        names = [_printable(name) for name in self.manifest.target.names]
        quoted = [name.replace("'", "''") for name in names]
        splits = [f"{split}: images/{split}\n" for split in self.manifest.splits]
        lines = [*splits, "names:\n", *(f"  {index}: '{name}'\n" for index, name in enumerate(quoted))]
        yield "data.yaml", "".join(lines).encode()
        yield "classes.txt", "".join(f"{name}\n" for name in names).encode()


def _printable(name: str) -> str:
    """Return the name of a class in one line."""
    return "".join(character if character.isprintable() else " " for character in name)


FORMATS = (Coco, Voc, Yolo)
