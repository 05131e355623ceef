"""The plan of a dataset: which image becomes a record of which split, decided before any image is opened.

A kind's reader makes the plan from its source. Plans depend on the source and the seed only, never on the
order in which a file system lists files.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import DigitsError
from digits.core.recipe import CreateDataset
from digits.data.images import images
from digits.data.images.images import Geometry
from digits.data.images.object_sizes import LostObjects, ObjectSizes
from digits.data.records.records import Features
from digits.data.targets.forms import form_of
from digits.data.targets.target import Target

MAX_NAMES_IN_A_MESSAGE = 5
MAX_LINES_SHOWN = 3

Item = TypeVar("Item")


class UnusableSource(DigitsError):
    """A source cannot become a dataset."""

    http_status = 400


class WiderValues(Exception):
    """A 16-bit image uses ``bits`` bits, more than `Plan.bits`."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        self.bits = bits


class Progress:
    """How a source is read: all of it, without reports. Subclasses report what is read, or read only a part.

    ``max_bytes`` is the limit for each file of a table. ``is_partial``: not everything was read.
    """

    max_bytes = 512 * 1024 * 1024
    is_partial = False

    @property
    def at_least(self) -> str:
        """The beginning of a sentence with a number that may not be final."""
        return "At least " if self.is_partial else ""

    def reading(self, what: str) -> None:
        """Report the present activity, such as ``Reading images: 20,000 files``."""

    def downloaded(self, fraction: float, what: str) -> None:
        """Report the progress of a download, 0 to 1."""

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the files, rows or records to read of ``items``."""
        return iter(items)

    def sample(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return those of ``items`` to open, each of which takes long."""
        return items

    def say(self, fact: str, *, is_problem: bool = False) -> None:
        """Report a sentence about the contents of the source, or about a problem that the task reports later."""

    def show_rows(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], roles: Mapping[int, str]
    ) -> None:
        """Report the first ``rows`` of a table with columns called ``names``, and the roles of some columns."""

    def show_features(
        self,
        features: Mapping[str, Any],
        image: Any = None,
        *,
        guessed: Mapping[str, str],
        chosen: Mapping[str, str],
        none: Mapping[str, str],
    ) -> None:
        """Report the ``features`` of the first record; see `digits.kinds.forms.previews.PartialProgress`."""

    def offer(self, field: str, options: Sequence[tuple[str, str]]) -> None:
        """Report the values that the ``field`` of the form can have, each with its words."""


class ImageSource(Protocol):
    """The place from which the images of a split are read, by name."""

    def read(self, name: str) -> bytes:
        """Return the encoded image ``name``; raises UnusableImage and OSError."""

    def describe(self) -> str:
        """Return the folder of the images, for pages and messages."""

    def is_available(self) -> bool:
        """Return whether the folder still exists: its loss differs from that of an image."""


class Located:
    """A base class of image sources in one folder or file, the ``root``."""

    root: Path

    def describe(self) -> str:
        return show(str(self.root))

    def is_available(self) -> bool:
        return self.root.exists()


@dataclass(frozen=True)
class ImageFolder(Located):
    """Images that are files; their names are paths relative to ``root``."""

    root: Path

    def read(self, name: str) -> bytes:
        return images.read_source(f"{self.root}/{name}")


@dataclass
class SplitPlan:
    """The images of a split in the order of their records.

    ``files`` are names in ``images``. ``targets`` holds the target of each, and ``groups`` the position of
    its group in `Plan.groups`; it is empty for kinds without groups. ``source`` is what pages show as the source,
    by default the
    folder of the images.
    """

    images: ImageSource
    files: list[str] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    source: str = ""

    def __len__(self) -> int:
        return len(self.files)

    def path_of(self, name: str) -> str:
        """Return the path of the image ``name``, for pages and messages."""
        return f"{self.images.describe()}/{show(name)}"

    def reorder(self, order: Sequence[int]) -> None:
        """Rearrange the images: place n gets the image ``order[n]``."""
        self.files = [self.files[place] for place in order]
        self.targets = [self.targets[place] for place in order]
        self.groups = [self.groups[place] for place in order if self.groups]

    def take(self, places: Sequence[int]) -> Self:
        """Return the images at ``places``, in their order."""
        part = copy.copy(self)
        part.reorder(places)
        return part


@dataclass(frozen=True)
class Unusable:
    """A skipped image or row of a source.

    ``path`` is printable and relative to the folder of its split, if it has one. ``split`` and ``group`` are empty if
    they are not known. If a record consists of several images, ``file`` is the path of the one that cannot be used.
    ``is_image`` is False for a part of the annotations of an image, such as a box.
    """

    path: str
    reason: str
    split: str = ""
    group: str = ""
    file: str = ""
    is_image: bool = True


class Remark(str):
    """A sentence about a source with nothing wrong, unlike the other warnings of a plan."""


class SkippedParts(str):
    """A sentence about unusable parts of a source, which the task also reports one by one.

    ``percent`` is the limit of unusable images that allows a plan without them.
    """

    percent: float

    @classmethod
    def of(cls, sentence: str, percent: float = 0) -> SkippedParts:
        parts = cls(sentence)
        parts.percent = percent
        return parts


@dataclass
class Plan:
    """The dataset to create: its target, the groups of its records, its splits, and warnings for the user.

    ``unusable`` are the parts of the source that the plan skips. They count toward the limit of unusable images.
    ``files`` are further files of the dataset, by name.

    A record is in one group at most, which is used to list and to balance records. ``required_groups`` is the
    number of groups that must have usable images in the train split. A record can consist of several images, which are
    ``stacked`` along the channels; `read` then returns as many. With the ``dtype`` float32, records are arrays of
    numbers, which `array` returns, instead of images. ``declared`` are the classes that the source names, even those
    without records. ``bits`` are those that its 16-bit images use; 0 means that it
    has none, as far as is known. `open` raises WiderValues as soon as an image uses more.

    If ``padding`` (width, height) is given, images are padded
    to it before they are resized; see `images.pad`. ``objects`` are the sizes of the objects in the images, if it has
    any.
    """

    target: Target
    splits: dict[str, SplitPlan]
    groups: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    required_groups: int = 1
    stacked: int = 1
    dtype: Literal["uint8", "float32"] = "uint8"
    padding: tuple[int, int] | None = None
    bits: int = 0
    objects: ObjectSizes | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid target."""
        self.target = form_of(self.target)

    @property
    def counted(self) -> list[str]:
        """What the page of the dataset counts records by: classes if a record can have several, else the groups."""
        return self.target.contained_names or self.groups

    def counts(self, split: SplitPlan, places: Iterable[int]) -> NDArray[np.int64]:
        """Count the records at ``places`` by `counted`."""
        total = np.zeros(len(self.counted), np.int64)
        if self.target.contained_names:
            for place in places:
                total += self.target.count(split.targets[place])
        elif split.groups:
            np.add.at(total, [split.groups[place] for place in places], 1)
        return total

    def lost(self, recipe: CreateDataset) -> LostObjects | None:
        """Return the objects that almost vanish in the images of ``recipe``; None without any."""
        return self.objects.lost(recipe, self.padding) if self.objects else None

    def count_images(self) -> int:
        """Return the number of images of the source; records that consist of several can share them."""
        if self.stacked == 1:
            return sum(map(len, self.splits.values()))
        return len(
            {
                split.path_of(name)
                for split in self.splits.values()
                for index in range(len(split))
                for name in self.names(split, index)
            }
        )

    def names(self, split: SplitPlan, place: int) -> list[str]:
        """Return the names of the images of a record."""
        return [split.files[place]]

    def source_name(self, split: SplitPlan, place: int) -> bytes:
        """Return the name of the source of a record, which the record contains and searches find."""
        return os.fsencode(split.files[place])

    def read(self, split: SplitPlan, place: int) -> list[bytes]:
        """Read the encoded images of a record; raises UnusableImage and OSError."""
        return [split.images.read(name) for name in self.names(split, place)]

    def open(self, data: bytes, channels: int, enough: tuple[int, int] | None = None) -> images.Picture:
        """Decode an image; raises UnusableImage and WiderValues."""
        picture = images.open_picture(data, channels, enough=enough, bits=self.bits or images.FULL_BITS)
        if picture.bits > self.bits:
            raise WiderValues(picture.bits)
        return picture

    def pad(self, picture: images.Picture) -> images.Picture:
        """Pad an image that `read` returned to the `padding`."""
        return picture.pad(*self.padding) if self.padding else picture

    def array(self, split: SplitPlan, place: int) -> NDArray[np.float32]:
        """Read the array of a record, float32 [height, width, channels]; raises UnusableImage and OSError."""
        raise NotImplementedError

    def source(self, split: SplitPlan, place: int, picture: images.Picture) -> tuple[tuple[int, int], str]:
        """The width and height of the source of a record, and its Pillow mode; (0, 0) and "" if they are not known.

        ``picture`` is the image that was read.
        """
        return picture.size, picture.mode

    def value(self, split: SplitPlan, place: int) -> Any:
        """Return the target of a record for its image at full size; raises UnusableImage and OSError."""
        return split.targets[place]

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        """The features of a record besides those of its image, which is resized as in ``geometry``.

        Kinds whose targets are files override this. Raises UnusableImage or OSError if a target cannot be used; the
        record is then skipped.
        """
        value = self.target.resize(split.targets[place], geometry)
        return self.target.encode(value, geometry.width, geometry.height)


def choose(items: Iterable[Item], seed: int, *names: str, maximum: int | None = None) -> list[Item]:
    """Shuffle ``items`` by ``seed`` and ``names``, and keep the first ``maximum``."""
    shuffled = list(items)
    _random(seed, *names).shuffle(shuffled)
    return shuffled[:maximum]


def shuffle(split: SplitPlan, seed: int, name: str) -> None:
    """Shuffle the images of the split ``name`` in place."""
    order = list(range(len(split)))
    _random(seed, name).shuffle(order)
    split.reorder(order)


def path_below(root: str, path: str) -> str:
    """The real path of the image ``path``, relative to ``root``; raises ValueError, with a message, if it is outside.

    For paths that a source contains, which can lead anywhere, also through links. ``root`` must be a real path.
    """
    if not path or "\0" in path:
        raise ValueError("the path of the image is missing")
    try:
        whole = os.path.realpath(os.path.join(root, path))
    except OSError as error:
        raise ValueError(f"“{show(path)}” cannot be read: {error.strerror}") from error
    if os.path.commonpath([whole, root]) != root:
        raise ValueError(f"“{show(path)}” is outside the image folder")
    return os.path.relpath(whole, root)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the contents of a regular file; raises OSError, and ValueError if it is too large."""
    if not path.is_file():
        raise ValueError("is not a regular file")
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"is larger than {max_bytes >> 20} MiB")
    return data


@contextlib.contextmanager
def naming_unreadable(path: Path) -> Iterator[None]:
    """Raise UnusableSource that names the file ``path`` for an OSError or ValueError that is raised inside."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnusableSource(f"{show(path.name)} cannot be read: {reason}.") from error


def show(path: str) -> str:
    """``path`` for messages and files: one line, with bytes that are not UTF-8 as ``\\xff``."""
    try:
        text = os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON can contain it
        text = path.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line_of(error: Exception) -> str:
    """Return the first line of the message of a library, without a period, or else the type of the error."""
    return show((str(error).splitlines() or [type(error).__name__])[0]).rstrip(".")


def listed(names: Iterable[str]) -> str:
    """The first few of ``names`` for a sentence, and the number of further ones."""
    shown = [show(name) for name in names]
    more = len(shown) - MAX_NAMES_IN_A_MESSAGE
    text = ", ".join(shown[:MAX_NAMES_IN_A_MESSAGE])
    return f"{text} and {more:,} more" if more > 0 else text


def first_lines(items: Sequence[str]) -> str:
    """Join the first few of ``items`` with semicolons, and add how many are not listed."""
    more = len(items) - MAX_LINES_SHOWN
    return "; ".join(items[:MAX_LINES_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


def count_of(count: int, noun: str) -> str:
    """``1 image``, ``2 images``, ``3 classes``."""
    plural = noun + ("es" if noun.endswith(("s", "x")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def _random(seed: int, *names: str) -> random.Random:
    key = b"\0".join([str(seed).encode(), *map(os.fsencode, names)])
    return random.Random(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big"))
