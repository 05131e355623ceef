"""The shards of a dataset: how its records are divided among processes, and what each process writes.

The recipe and the source alone determine which image goes into which shard, and every byte of it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data import parallel
from digits.data.images import images
from digits.data.records import records
from digits.data.records.feature_spec import FeatureShapes
from digits.data.records.maker import RecordMaker, UnusablePart
from digits.data.sources.plan import ImageSource, Plan, Unusable, WiderValues, show
from digits.worker.failure import UserFault

# Small enough to share the work evenly, and few enough to be opened together.
RECORDS_PER_SHARD = 128
SHARDS_OF_SMALL_RECORDS = 32
MAX_SHARD_BYTES = 256 << 20

SAMPLED_FOR_BITS = 50
MAX_UINT16_SUMMANDS = 65535 // 255

NEWS_SECONDS = 0.2


@dataclass(frozen=True)
class Piece:
    """Records ``start`` to ``stop`` of a split, which become the shard ``name``."""

    split: str
    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Advanced:
    """A process has finished ``images`` more images, of which ``unusable`` were skipped."""

    images: int
    unusable: list[Unusable]


@dataclass
class Written:
    """``count`` records of a split in complete shards.

    ``counts`` are those of the groups, ``counted`` of `Plan.counted`, and ``class_counts`` of
    `digits.data.manifest.SplitRecords`. ``digests`` contains 8 bytes for the content of each source file, ``hashes``
    the SHA-256 of each shard by its name. ``fractions`` images have floating-point pixels.
    """

    counts: NDArray[np.int64]
    counted: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    count: int = 0
    size_bytes: int = 0
    fractions: int = 0
    digests: bytearray = field(default_factory=bytearray)
    hashes: dict[str, str] = field(default_factory=dict)
    features: FeatureShapes = field(default_factory=FeatureShapes)

    @classmethod
    def nothing(cls, plan: Plan) -> Written:
        """Return no records of a split of ``plan``."""
        names = plan.target.contained_names
        # Records per class, and those without one; none for single classes.
        classes = len(names) + 1 if names else 0
        counts, counted, class_counts = (
            np.zeros(size, np.int64) for size in (len(plan.groups), len(plan.counted), classes)
        )
        return cls(counts, counted, class_counts)

    def add(self, other: Written) -> None:
        """Add the records in other shards of the split."""
        self.counts += other.counts
        self.counted += other.counted
        self.class_counts += other.class_counts
        self.count += other.count
        self.size_bytes += other.size_bytes
        self.fractions += other.fractions
        self.digests += other.digests
        self.hashes |= other.hashes
        self.features.merge(other.features)


@dataclass(frozen=True)
class ShardWritten:
    """A shard of a ``split`` is complete."""

    split: str
    written: Written


@dataclass(frozen=True)
class Summed:
    """The sum of all training images that a process wrote, float64 [height, width, channels]."""

    total: NDArray[np.float64]


class MeanSum:
    """The sum of images of one size; that of uint8 images is exact and does not depend on their order."""

    def __init__(self) -> None:
        self._total: NDArray[np.float64] | None = None
        self._recent = np.zeros(0, np.uint16)
        self._count = 0

    def add(self, pixels: NDArray[Any]) -> None:
        """Add uint8 or float32 [height, width, channels]."""
        if pixels.dtype != np.uint8:
            total = np.zeros(pixels.shape) if self._total is None else self._total
            self._total = np.add(total, pixels, out=total)
            return
        # Adding 16-bit integers is faster than adding float64.
        if self._count == MAX_UINT16_SUMMANDS:
            self._total = self.total()
            self._count = 0
        if self._count:
            np.add(self._recent, pixels, out=self._recent)
        else:
            self._recent = pixels.astype(np.uint16)
        self._count += 1

    def total(self) -> NDArray[np.float64] | None:
        """The sum so far, float64 [height, width, channels]; None without images."""
        if not self._count:
            return self._total
        return self._recent.astype(np.float64) if self._total is None else self._total + self._recent


class ShardMaker:
    """The work of one process: convert the files of a piece to the records of a shard."""

    def __init__(self, recipe: CreateDataset, plan: Plan, pieces: list[Piece], job_folder: Path) -> None:
        self._plan = plan
        self._pieces = pieces
        self._job_folder = job_folder
        self._records = RecordMaker(recipe, plan)
        self._sum = MeanSum()

    def make(self, number: int, send: parallel.Send) -> None:
        """Write the shard of piece ``number``; send Advanced periodically, and ShardWritten at the end."""
        piece = self._pieces[number]
        split = self._plan.splits[piece.split]
        in_train = piece.split == "train"
        target = self._plan.target
        written = Written.nothing(self._plan)
        kept: list[int] = []
        news = _News(send)
        shard = self._job_folder / piece.name
        with records.ShardWriter(shard, lists_classes=bool(target.contained_names)) as writer:
            for index in range(piece.start, piece.stop):
                group = split.groups[index] if split.groups else -1
                try:
                    record, pixels, digest = self._records.make(split, index)
                except (images.UnusableImage, OSError, UnusablePart) as error:
                    name = self._plan.groups[group] if group >= 0 else ""
                    news.advance(_unusable(self._plan, piece.split, index, name, error))
                    continue
                classes = target.contained(record.target(target)) if target.contained_names else None
                writer.add(records.encode_example(record), group, record.source, classes)
                if classes is not None:
                    written.class_counts[classes if len(classes) else -1] += 1
                written.features.add(record)
                if group >= 0:
                    written.counts[group] += 1
                written.fractions += record.source_mode == "F"
                kept.append(index)
                written.digests += digest
                if in_train:
                    self._sum.add(pixels)
                news.advance()
        news.flush()
        written.count, written.size_bytes = len(kept), writer.size_bytes
        written.counted += self._plan.counts(split, kept)
        written.hashes[piece.name] = writer.sha256
        send(ShardWritten(piece.split, written))

    def finish(self, send: parallel.Send) -> None:
        """Send the sum of the training images that this process wrote."""
        if (total := self._sum.total()) is not None:
            send(Summed(total))


class _News:
    """Collects messages about single images and sends them in batches."""

    def __init__(self, send: parallel.Send) -> None:
        self._send = send
        self._images = 0
        self._unusable: list[Unusable] = []
        self._sent_at = time.monotonic()

    def advance(self, unusable: Unusable | None = None) -> None:
        self._images += 1
        if unusable is not None:
            self._unusable.append(unusable)
        if time.monotonic() - self._sent_at > NEWS_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._send(Advanced(self._images, self._unusable))
        self._images, self._unusable = 0, []
        self._sent_at = time.monotonic()


def find_bits(plan: Plan, recipe: CreateDataset) -> int:
    """Return the bits that the 16-bit images in a sample of a plan use, or 0 if it contains none."""
    bits = 0
    for split in plan.splits.values():
        for index in range(0, len(split), max(1, len(split) // SAMPLED_FOR_BITS)):
            try:
                for data in plan.read(split, index):
                    plan.open(data, recipe.channels)
            except WiderValues as wider:
                bits = max(bits, wider.bits)
            except (images.UnusableImage, OSError):
                continue
    return bits


def divide(plan: Plan, recipe: CreateDataset) -> list[Piece]:
    """Return the pieces of all splits, train first. Depends only on the plan and the image size."""
    pieces = []
    for split in SPLITS:
        if split not in plan.splits:
            continue
        count = len(plan.splits[split])
        total = max(
            1,
            min(SHARDS_OF_SMALL_RECORDS, math.ceil(count / RECORDS_PER_SHARD)),
            math.ceil(
                count * raw_bytes(recipe) * plan.stacked * np.dtype(plan.dtype).itemsize / MAX_SHARD_BYTES
            ),
        )
        bounds = [count * number // total for number in range(total + 1)]
        pieces += [
            Piece(split, records.shard_name(split, number, total), bounds[number], bounds[number + 1])
            for number in range(total)
        ]
    return pieces


def _unusable(plan: Plan, split_name: str, place: int, group: str, error: Exception) -> Unusable:
    """Return the record that is skipped because of ``error``; raises UserFault like `_reason`."""
    split = plan.splits[split_name]
    path = show(split.files[place])
    if not isinstance(error, UnusablePart):
        return Unusable(path, _reason(error, split.images), split_name, group)
    reason = f"{show(error.name)}: {_reason(error.error, split.images)}"
    return Unusable(path, reason, split_name, group, split.path_of(error.name))


def _reason(error: Exception, source: ImageSource) -> str:
    """Return why an image was skipped; raises UserFault if the whole source has disappeared."""
    if isinstance(error, images.UnusableImage):
        return error.reason
    if not source.is_available():
        raise UserFault(
            f"The folder {source.describe()} disappeared or became unreadable while its images were read.",
            "Check that the disk is still mounted, then create the dataset again.",
        ) from error
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def raw_bytes(recipe: CreateDataset) -> int:
    """Return the size of one image's pixels in bytes: the maximum size of its record, except for names."""
    return recipe.width * recipe.height * recipe.channels
