"""Downloads of labels as archives, in pixels of the original images as they are displayed.

The images themselves are not in the archives: files name them by their paths below the folder of the labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from digits.core.splits import SPLITS
from digits.data.archives.writing import Entry
from digits.kinds.detection.export import Object, voc_file, yolo_lines, yolo_settings
from digits.kinds.labeling.collection import Collection, Labeled
from digits.kinds.labeling.forms import MASKS_FOLDER
from digits.kinds.sources.coco import CocoFiles

TITLES = {"coco": "COCO", "yolo": "YOLO", "voc": "Pascal VOC", "csv": "CSV", "masks": "Masks"}
LEFT_OUT_FILE = "left_out.csv"


class LabelExport(CocoFiles):
    """An archive of a ``collection`` in one of the formats of its form; see `digits.data.archives.writing`."""

    def __init__(self, collection: Collection, name: str) -> None:
        super().__init__()
        self.categories = collection.names
        self._collection, self._name = collection, name
        # The path of the image of each file, because formats name files without the ending of the image.
        self._images: dict[str, str] = {}

    def entries(self) -> Iterator[Entry]:
        """Yield the files; raises UnreadableFile."""
        formats = {
            "coco": self._coco,
            "yolo": self._yolo,
            "voc": self._voc,
            "csv": self._csv,
            "masks": self._masks,
        }
        for labeled in self._collection:
            yield from formats[self._name](labeled)
        yield from self.collected()

    def finish(self) -> Iterator[Entry]:
        yield from super().finish()
        if self._name == "yolo":
            lists: dict[str, str] = {
                split: f"{split}.txt" for split in SPLITS if f"{split}.txt" in self._lists
            }
            yield from yolo_settings(self._collection.names.values(), lists)
        if self._name == "masks":
            legend = [
                {"id": item.id, "name": item.name, "color": item.color}
                for item in self._collection.classes
                if not item.is_deleted
            ]
            yield "classes.json", json.dumps(legend, ensure_ascii=False, indent=1).encode()

    def _list(self, name: str, line: str) -> None:
        self.lines(name).write(f"{line}\n".encode())

    def _named(self, path: str, folder: str, ending: str) -> str:
        """Return the file of an image in ``folder``, with its whole name if another one differs only in its ending."""
        short = f"{folder}/{PurePosixPath(path).with_suffix(ending)}"
        is_free = self._images.setdefault(short, path) == path
        return short if is_free else f"{folder}/{path}{ending}"

    def _objects(self, labeled: Labeled) -> list[Object]:
        indexes = self._collection.indexes
        return [(*item.edges, indexes[item.class_]) for item in labeled.entry.objects or []]

    def _coco(self, labeled: Labeled) -> Iterator[Entry]:
        image, entry = labeled
        writer = self.writer(image.split)
        writer.add_image(image.path, image.width, image.height)
        for item in entry.objects or []:
            left, top, right, bottom = item.edges
            writer.add_annotation(
                item.class_,
                bbox=[left, top, right - left, bottom - top],
                area=sum(map(area_of, item.rings)) if item.rings else (right - left) * (bottom - top),
                segmentation=item.rings or [],
            )
        return iter(())

    def _yolo(self, labeled: Labeled) -> Iterator[Entry]:
        image = labeled.image
        name = self._named(image.path, "labels", ".txt")
        if name == f"labels/{image.path}.txt":  # which no program would find
            reason = "the name differs from that of another image only in its ending"
            self.table(LEFT_OUT_FILE, ["image", "reason"]).add([image.path, reason])
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
        collection, image = self._collection, labeled.image
        table = self.table(f"{image.split}.csv", collection.columns)
        for row in collection.form.rows(labeled.entry, collection.names):
            table.add([image.path, *row])
        if collection.form.field == "objects":  # images without any have no row
            self._list(f"{image.split}.txt", image.path)
        return iter(())

    def _masks(self, labeled: Labeled) -> Iterator[Entry]:
        image, folder = labeled.image, self._collection.folder
        name = self._named(image.path, MASKS_FOLDER, ".png")
        yield name, (folder / MASKS_FOLDER / str(labeled.entry.mask), folder)
        table = self.table(f"{image.split}.csv", ["image", "mask"])
        table.add([image.path, name.removeprefix(f"{MASKS_FOLDER}/")])


def area_of(ring: Sequence[float]) -> float:
    """Return the area inside a ring of x and y in turn."""
    xs, ys = ring[::2], ring[1::2]
    pairs = zip(xs, [*ys[1:], *ys[:1]], ys, [*xs[1:], *xs[:1]], strict=True)
    return abs(sum(x * next_y - y * next_x for x, next_y, y, next_x in pairs)) / 2
