"""The shards of a dataset: how its records are divided among processes, and what each process writes.

The recipe and the source alone determine which image goes into which shard, and every byte of it.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data import images, parallel, records
from digits.data.feature_spec import FeatureShapes
from digits.data.sources import ImageSource, Plan, SplitPlan, Unusable, WiderValues, show
from digits.worker.creation.mean_image import MeanSum
from digits.worker.failure import UserFault

# Small enough to share the work evenly, and few enough to be opened together.
RECORDS_PER_SHARD = 128
SHARDS_OF_SMALL_RECORDS = 32
MAX_SHARD_BYTES = 256 << 20

SAMPLED_FOR_BITS = 50

NEWS_SECONDS = 0.2
DIGEST_BYTES = 8

_FORMATS = {"png": "png", "jpg": "jpeg", "none": "raw"}


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


class UnusablePart(Exception):
    """The image ``name``, one of several in a record, cannot be used because of ``error``."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name, self.error = name, error


class ShardMaker:
    """The work of one process: convert the files of a piece to the records of a shard."""

    def __init__(self, recipe: CreateDataset, plan: Plan, pieces: list[Piece], job_folder: Path) -> None:
        self._recipe = recipe
        self._plan = plan
        self._pieces = pieces
        self._job_folder = job_folder
        # Image files have one or three channels.
        self._format = "raw" if plan.stacked > 1 else _FORMATS[recipe.encoding]
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
            for place in range(piece.start, piece.stop):
                group = split.groups[place] if split.groups else -1
                try:
                    make = self._record if self._plan.dtype == "uint8" else self._array_record
                    record, pixels, digest = make(split, place)
                except (images.UnusableImage, OSError, UnusablePart) as error:
                    name = self._plan.groups[group] if group >= 0 else ""
                    news.advance(_unusable(self._plan, piece.split, place, name, error))
                    continue
                classes = target.contained(record.target(target)) if target.contained_names else None
                writer.add(records.encode_example(record), group, record.source, classes)
                if classes is not None:
                    written.class_counts[classes if len(classes) else -1] += 1
                written.features.add(record)
                if group >= 0:
                    written.counts[group] += 1
                written.fractions += record.source_mode == "F"
                kept.append(place)
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

    def _pictures(self, split: SplitPlan, place: int) -> list[images.Picture]:
        """Read the images of a record; raises UnusableImage, OSError, UnusablePart and WiderValues."""
        plan, recipe = self._plan, self._recipe
        # Images to pad are decoded at their full size.
        enough = None if plan.padding else (recipe.width, recipe.height)
        names = plan.names(split, place)
        if len(names) == 1:
            return [plan.open(data, recipe.channels, enough) for data in plan.read(split, place)]
        pictures = []
        for name in names:
            try:
                pictures.append(plan.open(split.images.read(name), recipe.channels, enough))
            except (images.UnusableImage, OSError) as error:
                raise UnusablePart(name, error) from error
        return pictures

    def _record(self, split: SplitPlan, place: int) -> tuple[records.Record, images.Pixels, bytes]:
        recipe, size = self._recipe, (self._recipe.width, self._recipe.height)
        read = self._pictures(split, place)
        pictures = [self._plan.pad(item) for item in read]
        first = pictures[0]
        features = self._plan.features(split, place, _geometry(first.size, *size, recipe.resize_mode))
        digest = _digest(b"".join([item.data for item in pictures]))
        # The padding noise depends on the images only, so that it is reproducible.
        seed = recipe.seed % (1 << 64) ^ int.from_bytes(digest, "big")
        resized = [item.resize(*size, recipe.resize_mode, seed=seed) for item in pictures]
        pixels = resized[0] if len(resized) == 1 else np.concatenate(resized, axis=2)
        if first.plain and first.size == size and first.format.lower() == self._format:
            data = first.data
        elif self._format == "raw":
            data = pixels.tobytes()
        else:
            data = images.encode(pixels, recipe.encoding)
        name = os.fsencode(split.files[place])
        source_size, source_mode = self._plan.source(split, place, read[0])
        record = records.Record(
            data,
            self._format,
            recipe.height,
            recipe.width,
            pixels.shape[2],
            features,
            source=name,
            source_size=source_size,
            source_mode=source_mode,
        )
        return record, pixels, digest

    def _array_record(
        self, split: SplitPlan, place: int
    ) -> tuple[records.Record, NDArray[np.float32], bytes]:
        recipe = self._recipe
        array = self._plan.array(split, place)
        features = self._plan.features(split, place, _geometry(*_unchanged(recipe)))
        data = array.astype("<f4").tobytes()
        digest = _digest(data)
        name = os.fsencode(split.files[place])
        record = records.Record(
            data, "float32", recipe.height, recipe.width, array.shape[2], features, source=name
        )
        return record, array, digest


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
    found = 0
    for split in plan.splits.values():
        for place in range(0, len(split), max(1, len(split) // SAMPLED_FOR_BITS)):
            try:
                for data in plan.read(split, place):
                    plan.open(data, recipe.channels)
            except WiderValues as wider:
                found = max(found, wider.bits)
            except (images.UnusableImage, OSError):
                continue
    return found


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


# Many images have the same size.
_geometry = functools.lru_cache(maxsize=4096)(images.Geometry)


def _digest(data: bytes) -> bytes:
    # Processors have instructions for this hash.
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


def _unchanged(recipe: CreateDataset) -> tuple[tuple[int, int], int, int, str]:
    return (recipe.width, recipe.height), recipe.width, recipe.height, "squash"


def raw_bytes(recipe: CreateDataset) -> int:
    """Return the size of one image's pixels in bytes: the maximum size of its record, except for names."""
    return recipe.width * recipe.height * recipe.channels
