"""Downloads of labels as archives, in pixels of the original images as they are displayed.

The images themselves are not in the archives: files name them by their paths below the folder of the labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from digits.core.splits import SPLITS
from digits.data.archives import writing
from digits.data.images.conversion import Size
from digits.data.sources.plan import count_of
from digits.kinds.detection.export import voc_file, yolo_lines, yolo_settings
from digits.kinds.labeling.answers import FINISHED, STATES, Entry, LabelClass, classes_of
from digits.kinds.labeling.forms import MASKS_FOLDER, Form
from digits.kinds.labeling.images import ImageIndex, ListedImage
from digits.kinds.labeling.log import LabelLog
from digits.kinds.sources.coco import CocoFiles

TITLES = {"coco": "COCO", "yolo": "YOLO", "voc": "Pascal VOC", "csv": "CSV", "masks": "Masks"}
LEFT_OUT_FILE = "left_out.csv"
MOST_MEASURED = 2000


class LabelExport(CocoFiles):
    """An archive in a format of the ``form``; see `digits.data.archives.writing`.

    It contains the images that were labeled before the place ``until`` in the log of the job in ``folder``, with those
    of the ``classes`` that are not deleted: ``categories``, their names by id. When all entries were yielded,
    ``left_out`` counts what these leave out, and ``counts`` the images by split; ``sizes`` are those of the first ones,
    and ``trained`` the classes that training images, or objects in them, have.
    """

    def __init__(
        self, folder: Path, classes: Sequence[LabelClass], form: Form, until: int, name: str
    ) -> None:
        super().__init__()
        self._folder, self._form, self._until, self._name = folder, form, until, name
        self._classes = [item for item in classes if not item.is_deleted]
        self.categories = {item.id: item.name for item in self._classes}
        self.indexes = {number: index for index, number in enumerate(self.categories)}
        self.left_out: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.sizes: list[Size] = []
        self.trained: set[int] = set()
        self.are_gray = True
        # The path of the image of each file, because formats name files without the ending of the image.
        self._images: dict[str, str] = {}

    def entries(self) -> Iterator[writing.Entry]:
        """Yield the files; raises UnreadableFile."""
        formats = {
            "coco": self._coco,
            "yolo": self._yolo,
            "voc": self._voc,
            "csv": self._csv,
            "masks": self._masks,
        }
        for image, entry in self._labeled():
            yield from formats[self._name](image, entry)
        yield from self.collected()

    def finish(self) -> Iterator[writing.Entry]:
        yield from super().finish()
        if self._name == "yolo":
            lists: dict[str, str] = {
                split: f"{split}.txt" for split in SPLITS if f"{split}.txt" in self._lists
            }
            yield from yolo_settings(self.categories.values(), lists)
        if self._name == "masks":
            legend = [{"id": item.id, "name": item.name, "color": item.color} for item in self._classes]
            yield "classes.json", json.dumps(legend, ensure_ascii=False, indent=1).encode()

    def remarks(self) -> list[str]:
        """Return sentences about what was left out."""
        return [
            f"{count_of(count, noun)} {details} left out."
            for what, count in (+self.left_out).items()
            for noun, _, details in [what.partition(" ")]
        ]

    @property
    def columns(self) -> list[str]:
        """The names of the columns of a table; that of the images differs from those of the classes."""
        others, image = [*(self._form.columns or self.categories.values())], "image"
        while image in others:
            image += "_"
        return [image, *others]

    def _labeled(self) -> Iterator[tuple[ListedImage, Entry]]:
        """Yield the images in the order of their numbers, each with its latest entry."""
        images, log = ImageIndex(self._folder), LabelLog(self._folder)
        images.update()
        log.update(self._until)
        finished = {STATES.index(state) for state in FINISHED}
        for number in range(min(len(images), len(log.states))):
            if log.states[number] not in finished or images.unusable[number]:
                continue
            entry = log.latest(number)
            assert entry is not None
            if entry.objects:
                kept = [item for item in entry.objects if item.class_ in self.categories]
                self.left_out["object of a deleted class"] += len(entry.objects) - len(kept)
                entry.objects = kept
            if reason := self._form.left_out(entry, self.categories):
                self.left_out[reason] += 1
                continue
            image = images.read(number)
            self.counts[image.split] += 1
            if image.split == "train":
                self.trained.update(classes_of(entry))
            self.are_gray &= image.is_gray
            self.sizes += [image.size] if len(self.sizes) < MOST_MEASURED else []
            yield image, entry

    def _list(self, name: str, line: str) -> None:
        self.lines(name).write(f"{line}\n".encode())

    def _named(self, path: str, folder: str, ending: str) -> str:
        """Return the file of an image in ``folder``, with its whole name if another one differs only in its ending."""
        short = f"{folder}/{PurePosixPath(path).with_suffix(ending)}"
        is_free = self._images.setdefault(short, path) == path
        return short if is_free else f"{folder}/{path}{ending}"

    def _coco(self, image: ListedImage, entry: Entry) -> Iterator[writing.Entry]:
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

    def _yolo(self, image: ListedImage, entry: Entry) -> Iterator[writing.Entry]:
        name = self._named(image.path, "labels", ".txt")
        if name == f"labels/{image.path}.txt":  # which no program would find
            reason = "the name differs from that of another image only in its ending"
            self.table(LEFT_OUT_FILE, ["image", "reason"]).add([image.path, reason])
            return
        objects = ((*item.edges, self.indexes[item.class_]) for item in entry.objects or [])
        yield name, yolo_lines(objects, image.width, image.height)
        self._list(f"{image.split}.txt", f"./images/{image.path}")

    def _voc(self, image: ListedImage, entry: Entry) -> Iterator[writing.Entry]:
        objects = [(self.categories[item.class_], item.edges, False) for item in entry.objects or []]
        name = self._named(image.path, "Annotations", ".xml")
        yield name, voc_file(image.path, (*image.size, 1 if image.is_gray else 3), objects)
        self._list(f"ImageSets/Main/{image.split}.txt", str(PurePosixPath(image.path).with_suffix("")))

    def _csv(self, image: ListedImage, entry: Entry) -> Iterator[writing.Entry]:
        table = self.table(f"{image.split}.csv", self.columns)
        for row in self._form.rows(entry, self.categories):
            table.add([image.path, *row])
        if self._form.field == "objects":  # images without any have no row
            self._list(f"{image.split}.txt", image.path)
        return iter(())

    def _masks(self, image: ListedImage, entry: Entry) -> Iterator[writing.Entry]:
        name = self._named(image.path, MASKS_FOLDER, ".png")
        yield name, (self._folder / MASKS_FOLDER / str(entry.mask), self._folder)
        table = self.table(f"{image.split}.csv", ["image", "mask"])
        table.add([image.path, name.removeprefix(f"{MASKS_FOLDER}/")])


def area_of(ring: Sequence[float]) -> float:
    """Return the area inside a ring of x and y in turn."""
    xs, ys = ring[::2], ring[1::2]
    pairs = zip(xs, [*ys[1:], *ys[:1]], ys, [*xs[1:], *xs[:1]], strict=True)
    return abs(sum(x * next_y - y * next_x for x, next_y, y, next_x in pairs)) / 2
