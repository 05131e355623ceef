"""The labeled images of a job up to a place in its log, for datasets and downloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from digits.data.images.conversion import Size
from digits.data.sources.plan import count_of
from digits.kinds.labeling.answers import FINISHED, STATES, Entry, LabelClass, classes_of
from digits.kinds.labeling.forms import Form
from digits.kinds.labeling.images import ImageIndex, ListedImage
from digits.kinds.labeling.log import LabelLog

MOST_MEASURED = 2000


class Labeled(NamedTuple):
    """An image with its latest entry."""

    image: ListedImage
    entry: Entry


@dataclass
class Collection:
    """The labeled images of the job in ``folder`` before the place ``until`` in its log, with those of its ``classes``.

    ``names`` are the classes by id, without deleted ones. What these leave out is counted in ``left_out``, and the
    images in ``counts`` by split; ``sizes`` are those of the first ones, and ``trained`` the classes that training
    images, or objects in them, have.
    """

    folder: Path
    classes: Sequence[LabelClass]
    form: Form
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
            if log.states[number] not in finished or images.unusable[number]:
                continue
            entry = log.latest(number)
            assert entry is not None
            if entry.objects:
                kept = [item for item in entry.objects if item.class_ in self.names]
                self.left_out["object of a deleted class"] += len(entry.objects) - len(kept)
                entry.objects = kept
            if reason := self.form.left_out(entry, self.names):
                self.left_out[reason] += 1
                continue
            image = images.read(number)
            self.counts[image.split] += 1
            if image.split == "train":
                self.trained.update(classes_of(entry))
            self.are_gray &= image.is_gray
            self.sizes += [image.size] if len(self.sizes) < MOST_MEASURED else []
            yield Labeled(image, entry)

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
        others, image = [*(self.form.columns or self.names.values())], "image"
        while image in others:
            image += "_"
        return [image, *others]
