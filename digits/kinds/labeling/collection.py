"""The labeled images of a job up to a place in its log, as tables and COCO files, for datasets and downloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from digits.data.images.conversion import Size
from digits.data.sources.plan import count_of
from digits.kinds.labeling.answers import FINISHED, STATES, Entry, Object
from digits.kinds.labeling.images import ImageIndex, ListedImage
from digits.kinds.labeling.job import LabelClass
from digits.kinds.labeling.log import LabelLog
from digits.kinds.sources.coco import CocoWriter

MOST_MEASURED = 2000


class Labeled(NamedTuple):
    """An image with its latest entry."""

    image: ListedImage
    entry: Entry


@dataclass
class Collection:
    """The labeled images of the job in ``folder`` before the place ``until`` in its log, with those of its ``classes``.

    ``answer`` is the field of the form. ``names`` are the classes by id, without deleted ones. What these leave out is
    counted in ``left_out``, and the images in ``counts`` by split; ``sizes`` are those of the first ones, and
    ``trained`` the classes that training images, or objects in them, have.
    """

    folder: Path
    classes: Sequence[LabelClass]
    answer: str
    until: int
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    sizes: list[Size] = field(default_factory=list)
    trained: set[int] = field(default_factory=set)
    are_gray: bool = True

    def __post_init__(self) -> None:
        self.names = {item.id: item.name for item in self.classes if not item.is_deleted}
        self.indexes = {number: index for index, number in enumerate(self.names)}

    def __iter__(self) -> Iterator[Labeled]:
        """Yield the images in the order of their numbers; raises UnreadableFile."""
        images, log = ImageIndex(self.folder), LabelLog(self.folder)
        images.update()
        log.update(self.until)
        finished = {STATES.index(state) for state in FINISHED}
        for number in range(min(len(images), len(log.states))):
            if log.states[number] in finished and not images.unusable[number]:
                entry = log.latest(number)
                if entry is not None and self._is_usable(entry):
                    image = images.read(number)
                    self.counts[image.split] += 1
                    if image.split == "train":
                        self.trained |= self._classes_of(entry)
                    self.are_gray &= image.is_gray
                    self.sizes += [image.size] if len(self.sizes) < MOST_MEASURED else []
                    yield Labeled(image, entry)

    def _is_usable(self, entry: Entry) -> bool:
        """Return whether classes that were deleted or added since leave enough of an entry."""
        if self.answer == "label" and entry.label not in self.names:
            self.left_out["image"] += 1
            return False
        if self.answer == "numbers" and not {*map(str, self.names)} <= {*(entry.numbers or ())}:
            self.left_out["image without some of the numbers"] += 1
            return False
        return True

    def _classes_of(self, entry: Entry) -> set[int]:
        own = [entry.label] if isinstance(entry.label, int) else [item.class_ for item in entry.objects or []]
        return {*own} & self.names.keys()

    def objects(self, entry: Entry) -> list[Object]:
        """Return the objects of classes that are not deleted."""
        objects = entry.objects or []
        kept = [item for item in objects if item.class_ in self.names]
        if len(kept) < len(objects):
            self.left_out["object"] += len(objects) - len(kept)
        return kept

    def remarks(self) -> list[str]:
        """Return sentences about what was left out."""
        return [
            f"{count_of(count, what)} {'of a deleted class ' if ' ' not in what else ''}left out."
            for what, count in self.left_out.items()
        ]

    # Tables

    @property
    def columns(self) -> list[str]:
        """The names of the columns of a table; that of the images differs from those of the classes."""
        if self.answer == "objects":
            return ["image", "label", "left", "top", "right", "bottom"]
        image = "image"
        others = ["label"] if self.answer == "label" else [*self.names.values()]
        while image in others:
            image += "_"
        return [image, *others]

    def rows(self, labeled: Labeled) -> Iterator[list[Any]]:
        """Yield the rows of an image in a table."""
        image, entry = labeled
        if self.answer == "objects":
            for item in self.objects(entry):
                yield [image.path, self.names[item.class_], *map(shortest, item.edges)]
        elif self.answer == "label":
            assert isinstance(entry.label, int)
            yield [image.path, self.names[entry.label]]
        elif self.answer == "labels":
            yield [image.path, *(int(number in (entry.labels or ())) for number in self.names)]
        else:
            numbers = entry.numbers or {}
            yield [image.path, *(repr(numbers[str(number)]) for number in self.names)]

    def annotate(self, writer: CocoWriter, labeled: Labeled) -> None:
        """Add an image with its objects to a COCO file."""
        image, entry = labeled
        writer.add_image(image.path, image.width, image.height)
        for item in self.objects(entry):
            left, top, right, bottom = item.edges
            writer.add_annotation(
                item.class_,
                bbox=[left, top, right - left, bottom - top],
                area=sum(map(area_of, item.rings)) if item.rings else (right - left) * (bottom - top),
                segmentation=item.rings or [],
            )


def area_of(ring: Sequence[float]) -> float:
    """Return the area inside a ring of x and y in turn."""
    xs, ys = ring[::2], ring[1::2]
    pairs = zip(xs, [*ys[1:], *ys[:1]], ys, [*xs[1:], *xs[:1]], strict=True)
    return abs(sum(x * next_y - y * next_x for x, next_y, y, next_x in pairs)) / 2


def shortest(edge: float) -> str:
    """Return a coordinate as text, without a fraction if it is whole."""
    return f"{edge:g}" if edge.is_integer() and abs(edge) < 1e6 else repr(edge)
