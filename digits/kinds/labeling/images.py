"""The list of the images to label: ``images.jsonl``, to which the task that lists them appends.

The number of an image is that of its line, from 0, and never changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from digits.core import append_log
from digits.core.schema import Count
from digits.core.splits import SPLITS, Split
from digits.data.images.conversion import Size

IMAGES_FILE = "images.jsonl"
# In percent; the others are for training. Images of a set are in the same split.
VAL_PERCENT, TEST_PERCENT = 15, 10


class ListedImage(Struct, omit_defaults=True, gc=False):
    """An image: its ``path`` below the root, and its size as displayed.

    ``set`` is the number of the first image among those that look the same, and ``digest`` identifies the content of
    the file. ``turn`` is the EXIF orientation. ``is_gray`` if it is stored without colors. An image that cannot be
    decoded has the ``reason`` instead of a size.
    """

    path: str
    split: Split
    set: Count
    digest: str
    width: Count = 0
    height: Count = 0
    turn: int = 1
    is_gray: bool = False
    reason: str = ""

    @property
    def size(self) -> Size:
        return self.width, self.height


class _Brief(Struct, gc=False):
    """What the index keeps of an image."""

    split: Split
    reason: str = ""


def split_of(digest: str) -> Split:
    """Return the split of a set of images whose first one has the ``digest``."""
    percent = int(digest, 16) % 10_000 / 100
    return "test" if percent < TEST_PERCENT else "val" if percent < TEST_PERCENT + VAL_PERCENT else "train"


class ImageIndex:
    """The images in the ``folder`` of a job: where their lines begin, their splits, and which are unusable."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / IMAGES_FILE
        self._offsets = array("q")
        self.cursor = 0
        self.splits = bytearray()
        self.unusable = bytearray()

    def __len__(self) -> int:
        return len(self._offsets)

    def update(self) -> None:
        """Read the lines that are new; raises UnreadableFile."""
        for brief, end in append_log.read(self._path, _Brief, self.cursor, below=self._folder):
            self.splits.append(SPLITS.index(brief.split))
            self.unusable.append(bool(brief.reason))
            self._offsets.append(self.cursor)
            self.cursor = end

    def read(self, number: int) -> ListedImage:
        """Return an image; raises UnreadableFile."""
        log = append_log.read(self._path, ListedImage, self._offsets[number], below=self._folder)
        return next(log)[0]


def read_images(folder: Path) -> Iterator[ListedImage]:
    """Yield all images of the job in ``folder``; raises UnreadableFile."""
    for image, _ in append_log.read(folder / IMAGES_FILE, ListedImage, below=folder):
        yield image
