"""Downloads of labels as archives, in pixels of the original images as they are displayed.

The images themselves are not in the archives: files name them by their paths below the folder of the labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import IO

from digits.core.splits import SPLITS
from digits.data.archives.writing import SPOOLED_BYTES, Entry
from digits.kinds.detection.export import Object, voc_file, yolo_lines, yolo_settings
from digits.kinds.labeling.collection import Collection, Labeled
from digits.kinds.labeling.log import MASKS_FOLDER
from digits.kinds.sources.coco import CocoWriter
from digits.kinds.versions.export import Table

TITLES = {"coco": "COCO", "yolo": "YOLO", "voc": "Pascal VOC", "csv": "CSV", "masks": "Masks"}
LEFT_OUT_FILE = "left_out.csv"


class LabelExport:
    """An archive of a ``collection`` in one of the formats of its form; see `digits.data.archives.writing`."""

    def __init__(self, collection: Collection, name: str) -> None:
        self._collection, self._name = collection, name
        self._opened = ExitStack()
        self._tables: dict[str, Table] = {}
        self._lists: dict[str, IO[bytes]] = {}
        self._writers: dict[str, CocoWriter] = {}
        # The path of the image of each file, because formats name files without the ending of the image.
        self._images: dict[str, str] = {}

    def entries(self) -> Iterator[Entry]:
        """Yield the files; raises UnreadableFile."""
        convert = {
            "coco": self._coco,
            "yolo": self._yolo,
            "voc": self._voc,
            "csv": self._csv,
            "masks": self._masks,
        }
        for labeled in self._collection:
            yield from convert[self._name](labeled)
        names = self._collection.names.values()
        if self._name == "yolo":
            yield from yolo_settings(
                names, {split: f"{split}.txt" for split in SPLITS if f"{split}.txt" in self._lists}
            )
        if self._name == "masks":
            legend = [
                {"id": item.id, "name": item.name, "color": item.color}
                for item in self._collection.classes
                if not item.is_deleted
            ]
            yield "classes.json", json.dumps(legend, ensure_ascii=False, indent=1).encode()
        for split, writer in self._writers.items():
            yield f"annotations/instances_{split}.json", writer.finish()
        for name, table in self._tables.items():
            yield name, table.file
        yield from self._lists.items()

    def close(self) -> None:
        """Delete the temporary files."""
        self._opened.close()

    def _file(self) -> IO[bytes]:
        return self._opened.enter_context(SpooledTemporaryFile(SPOOLED_BYTES))

    def _table(self, name: str, columns: list[str]) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self._file(), columns)
        return self._tables[name]

    def _list(self, name: str, line: str) -> None:
        if name not in self._lists:
            self._lists[name] = self._file()
        self._lists[name].write(f"{line}\n".encode())

    def _named(self, path: str, folder: str, ending: str) -> str:
        """Return the file of an image in ``folder``, with its whole name if another one differs only in its ending."""
        short = f"{folder}/{PurePosixPath(path).with_suffix(ending)}"
        is_free = self._images.setdefault(short, path) == path
        return short if is_free else f"{folder}/{path}{ending}"

    def _objects(self, labeled: Labeled) -> list[Object]:
        indexes = self._collection.indexes
        return [(*item.edges, indexes[item.class_]) for item in self._collection.objects(labeled.entry)]

    def _coco(self, labeled: Labeled) -> Iterator[Entry]:
        split = labeled.image.split
        if split not in self._writers:
            self._writers[split] = CocoWriter(self._file, self._collection.names)
        self._collection.annotate(self._writers[split], labeled)
        return iter(())

    def _yolo(self, labeled: Labeled) -> Iterator[Entry]:
        image = labeled.image
        name = self._named(image.path, "labels", ".txt")
        if name == f"labels/{image.path}.txt":  # which no program would find
            reason = "the name differs from that of another image only in its ending"
            self._table(LEFT_OUT_FILE, ["image", "reason"]).add([image.path, reason])
            return
        yield name, yolo_lines(self._objects(labeled), image.width, image.height)
        self._list(f"{image.split}.txt", f"./images/{image.path}")

    def _voc(self, labeled: Labeled) -> Iterator[Entry]:
        image, names = labeled.image, [*self._collection.names.values()]
        objects = [(names[index], edges, False) for *edges, index in self._objects(labeled)]
        name = self._named(image.path, "Annotations", ".xml")
        yield name, voc_file(image.path, (*image.size, 1 if image.is_gray else 3), objects)
        self._list(f"ImageSets/Main/{image.split}.txt", str(PurePosixPath(image.path).with_suffix("")))

    def _csv(self, labeled: Labeled) -> Iterator[Entry]:
        table = self._table(f"{labeled.image.split}.csv", self._collection.columns)
        for row in self._collection.rows(labeled):
            table.add(row)
        if self._collection.answer == "objects":  # images without any have no row
            self._list(f"{labeled.image.split}.txt", labeled.image.path)
        return iter(())

    def _masks(self, labeled: Labeled) -> Iterator[Entry]:
        image, folder = labeled.image, self._collection.folder
        name = self._named(image.path, MASKS_FOLDER, ".png")
        yield name, (folder / MASKS_FOLDER / str(labeled.entry.mask), folder)
        table = self._table(f"{image.split}.csv", ["image", "mask"])
        table.add([image.path, name.removeprefix(f"{MASKS_FOLDER}/")])
