"""Create a dataset: read the source, convert the images to records, write the mean image and the manifest.

Everything specific to a kind of dataset is in its package: its reader plans which image becomes a record of
which split, with which target. Each process turns one piece of a split at a time into a shard. The recipe and
the source alone determine which image goes into which shard, and every byte of it, whatever the number of
processes. The manifest is written last: its presence marks a complete dataset.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import humanize
import msgspec
import numpy as np
from numpy.typing import NDArray

from digits.core.csv_cells import harmless
from digits.core.errors import DigitsError
from digits.core.events import Counted, EventLog, Progressed, ReportInterval, Skipped, Warned
from digits.core.files import is_disk_full, write_bytes, write_json
from digits.core.recipe import CreateDataset
from digits.core.remote import replace_texts
from digits.core.splits import SPLITS, Split
from digits.data import images, parallel, records, samples
from digits.data.feature_spec import FeatureShapes
from digits.data.manifest import (
    FEATURES_FILE,
    LABELS_FILE,
    MEAN_ARRAY_FILE,
    MEAN_IMAGE_FILE,
    MEAN_JPEG_FILE,
    SKIPPED_FILE,
    Manifest,
    SplitRecords,
    remove_products,
)
from digits.data.remote.copies import Copies
from digits.data.sources import ImageSource, Plan, SplitPlan, Unusable, UnusableSource, count_of, show
from digits.kinds.recipes import build_recipe, read_source
from digits.worker.failure import UserFault

MAX_SKIPPED_EVENTS = 1000

# Small enough to share the work evenly, and few enough to be opened together.
RECORDS_PER_SHARD = 128
SHARDS_OF_SMALL_RECORDS = 32
MAX_SHARD_BYTES = 256 << 20

NEWS_SECONDS = 0.2
PROGRESS_SECONDS = 0.25
SHARE_OF_DOWNLOAD = 0.5
DIGEST_BYTES = 8
MAX_UINT16_SUMMANDS = 65535 // 255
# DIGITS 6 rounds mean images.
MAX_MEAN_DIFFERENCE = 1.0

_FORMATS = {"png": "png", "jpg": "jpeg", "none": "raw"}


def run(recipe: CreateDataset, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Create the dataset that ``recipe`` describes in the parent of ``task_folder``.

    Raises UserFault if that is not possible. If it ends early for any reason, no part of a dataset is left behind,
    only the list of skipped images.
    """
    return Creation(recipe, task_folder.parent, events).run()


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


@dataclass(frozen=True)
class ShardWritten:
    """A shard of ``count`` records is complete; ``counts`` are those of the groups, ``counted`` of `Plan.counted`.

    ``class_counts`` are those of `digits.data.manifest.SplitRecords`.
    ``digests`` contains 8 bytes for the content of each source file, ``sha256`` the hash of the shard ``name``.
    """

    split: str
    name: str
    sha256: str
    features: FeatureShapes
    count: int
    counts: NDArray[np.int64]
    counted: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    size_bytes: int
    digests: bytes


@dataclass(frozen=True)
class Summed:
    """The sum of all training images that a process wrote, float64 [height, width, channels]."""

    total: NDArray[np.float64]


@dataclass
class Written:
    """The records written to a split so far."""

    counts: NDArray[np.int64]
    counted: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    count: int = 0
    size_bytes: int = 0
    digests: list[bytes] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    features: FeatureShapes = field(default_factory=FeatureShapes)


class UnusablePart(Exception):
    """The image ``name``, one of several in a record, cannot be used because of ``error``."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name, self.error = name, error


class Creation:
    """A dataset being created: owns its files until the manifest is written."""

    def __init__(self, recipe: CreateDataset, job_folder: Path, events: EventLog) -> None:
        self._recipe = recipe
        self._job_folder = job_folder
        self._report = Report(events)
        self._copies: Copies | None = None
        self._skipped: list[Unusable] = []
        # The number of images of the source, including those that are skipped.
        self._images = 0

    def run(self) -> dict[str, Any]:
        remove_products(self._job_folder)
        written: dict[str, Written] = {}
        try:
            self._fetch()
            result = self._make(self._plan(), written)
            if self._copies is not None:
                self._copies.remove()
            return result
        except UserFault as fault:
            remove_products(self._job_folder)
            show = self._report.show
            raise UserFault(show(fault.message), show(fault.hint)) from fault
        except parallel.ProcessDied as death:
            remove_products(self._job_folder)
            raise _process_fault(death) from death
        except OSError as error:
            remove_products(self._job_folder)
            if is_disk_full(error):
                raise self._full_disk(written) from error
            raise
        except BaseException:
            remove_products(self._job_folder)
            raise

    def _fetch(self) -> None:
        """Download the recipe's remote files, and read the local copies instead."""
        recipe = self._recipe
        if recipe.remote is None:
            return
        try:
            self._copies = Copies(recipe.remote, self._job_folder)
            self._report.show = self._copies.show
            failed = self._copies.fetch(self._report, recipe.max_unusable_percent)
        except DigitsError as error:
            raise UserFault(error.message, error.hint) from error
        self._skipped += [Unusable(address, reason) for address, reason in failed]
        body = msgspec.to_builtins(recipe) | {"remote": None}
        self._recipe = build_recipe(replace_texts(body, self._copies.paths))

    def _plan(self) -> Plan:
        try:
            plan = read_source(self._recipe, self._report)
        except (UnusableSource, samples.DownloadFailed) as error:
            raise UserFault(error.message, error.hint) from error
        for warning in plan.warnings:
            self._report.warn(warning)
        for name, split in plan.splits.items():
            self._report.counted(name, plan, plan.counts(split, range(len(split))))
        return plan

    def _make(self, plan: Plan, written: dict[str, Written]) -> dict[str, Any]:
        recipe = self._recipe
        pieces = divide(plan, recipe)
        self._need_room(plan)
        total = self._write(plan, pieces, written)
        skipped = self._skipped
        self._save_skipped()
        _need_enough(plan, written, skipped)
        self._warn_of_losses(plan, written)
        mean = total / written["train"].count
        self._save_mean(mean, plan)
        self._compare_mean(mean, plan)
        if plan.target.labels:
            lines = "".join(f"{label}\n" for label in plan.target.labels)
            write_bytes(self._job_folder / LABELS_FILE, lines.encode())
        for name, content in plan.files.items():
            write_bytes(self._job_folder / name, content)
        self._save_features(plan, written)
        for name in plan.splits:
            self._report.counted(name, plan, written[name].counted)
        manifest = Manifest(
            kind=recipe.kind,
            width=recipe.width,
            height=recipe.height,
            channels=recipe.channels * plan.stacked,
            dtype=plan.dtype,
            encoding="none" if plan.stacked > 1 or plan.dtype == "float32" else recipe.encoding,
            resize_mode=recipe.resize_mode,
            padding=plan.padding,
            target=plan.target,
            groups=plan.groups,
            splits={name: _split(name, written[name], pieces) for name in SPLITS if name in plan.splits},
            mean_pixel=[float(value) for value in mean.mean(axis=(0, 1))],
            skipped=len(skipped),
            seed=recipe.seed,
            source={
                name: self._report.show(show(split.source or split.images.describe()))
                for name, split in plan.splits.items()
            },
        )
        manifest.save(self._job_folder)
        self._report.finished()
        return {"images": sum(split.count for split in manifest.splits.values()), "skipped": len(skipped)}

    def _write(self, plan: Plan, pieces: list[Piece], written: dict[str, Written]) -> NDArray[np.float64]:
        """Write all shards; return the sum of the training images."""
        recipe = self._recipe
        written |= {
            name: Written(
                np.zeros(len(plan.groups), np.int64),
                np.zeros(len(plan.counted), np.int64),
                _no_class_counts(plan),
            )
            for name in plan.splits
        }
        total = np.zeros((recipe.height, recipe.width, recipe.channels * plan.stacked), np.float64)
        writer = ShardMaker(recipe, plan, pieces, self._job_folder)
        planned = sum(len(split) for split in plan.splits.values())
        self._images = plan.count_images() + _count_images([*plan.unusable, *self._skipped])
        self._report.start_writing(planned)
        self._report.skipped(self._skipped)
        self._skip(plan.unusable)
        news = parallel.run(writer.make, len(pieces), processes=recipe.processes, finish=writer.finish)
        with closing(news):
            for message in news:
                if isinstance(message, Advanced):
                    self._report.advanced(message)
                    if message.unusable:
                        self._skip(message.unusable)
                elif isinstance(message, ShardWritten):
                    split = written[message.split]
                    split.counts += message.counts
                    split.counted += message.counted
                    split.class_counts += message.class_counts
                    split.count += message.count
                    split.size_bytes += message.size_bytes
                    split.digests.append(message.digests)
                    split.hashes[message.name] = message.sha256
                    split.features.merge(message.features)
                elif isinstance(message, Summed):
                    total += message.total
                else:
                    self._report.advanced(Advanced(0, []))
        self._skipped.sort(key=_split_and_path)
        return total

    def _skip(self, unusable: list[Unusable]) -> None:
        """Skip images; fail as soon as these are more than the recipe allows."""
        self._skipped += unusable
        self._report.skipped(unusable)
        limit = self._recipe.max_unusable_percent
        count = _count_images(self._skipped)
        if count * 100 > self._images * limit:
            self._save_skipped()
            first = min(self._skipped, key=_split_and_path)
            raise UserFault(
                f"At least {count:,} of {count_of(self._images, 'image')} cannot be used, "
                f"more than the limit of {limit:g}%. The first one: {first.path} ({first.reason}).",
                f"{SKIPPED_FILE} lists those found. Repair or remove them, or raise the limit.",
            )

    def _warn_of_losses(self, plan: Plan, written: dict[str, Written]) -> None:
        train = plan.splits["train"]
        planned = plan.counts(train, range(len(train)))
        lost = [
            name
            for name, before, after in zip(plan.counted, planned, written["train"].counted, strict=True)
            if before and not after
        ]
        if lost:
            self._report.warn(f"No usable training image is left in: {', '.join(lost)}.")
        in_train = _digests(written["train"])
        for name in SPLITS[1:]:
            if name in written and (same := int(np.isin(_digests(written[name]), in_train).sum())):
                split = {"val": "validation", "test": "test"}[name]
                verb = "is" if same == 1 else "are"
                self._report.warn(f"{count_of(same, f'{split} image')} {verb} identical to training images.")

    def _save_skipped(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["path", "reason", "split", "label"])
        writer.writerows(
            map(harmless, (item.path, item.reason, item.split, item.group)) for item in self._skipped
        )
        write_bytes(self._job_folder / SKIPPED_FILE, text.getvalue().encode())

    def _save_features(self, plan: Plan, written: dict[str, Written]) -> None:
        features = FeatureShapes()
        for split in written.values():
            features.merge(split.features)
        write_json(self._job_folder / FEATURES_FILE, features.as_json(plan.target))

    def _save_mean(self, mean: NDArray[np.float64], plan: Plan) -> None:
        file = io.BytesIO()
        np.save(file, mean.astype(np.float32), allow_pickle=False)
        write_bytes(self._job_folder / MEAN_ARRAY_FILE, file.getvalue())
        is_array = plan.dtype == "float32"
        pixels = (
            images.scale_to_pixels(mean.astype(np.float32)) if is_array else np.rint(mean).astype(np.uint8)
        )
        picture = images.side_by_side(pixels)
        for name in (MEAN_IMAGE_FILE, MEAN_JPEG_FILE):
            write_bytes(self._job_folder / name, images.encode(picture, Path(name).suffix[1:]))

    def _compare_mean(self, mean: NDArray[np.float64], plan: Plan) -> None:
        """Warn if the mean image differs from the known one by more than rounding; resized images are not compared."""
        known = plan.known_mean
        if known is None or known.shape != mean.shape:
            return
        difference = float(np.abs(known - mean).max())
        if difference > MAX_MEAN_DIFFERENCE:
            self._report.warn(
                f"The recomputed mean image differs from the source’s mean image by up to {difference:.1f} of 255. "
                "The recomputed one is used."
            )

    def _need_room(self, plan: Plan) -> None:
        """Fail early if the dataset cannot fit on the disk; the compression ratio of PNG and JPEG is not known
        yet.
        """
        recipe = self._recipe
        if recipe.encoding != "none":
            return
        count = sum(len(split) for split in plan.splits.values())
        needed = count * _raw_bytes(recipe) * plan.stacked
        if needed > shutil.disk_usage(self._job_folder).free:
            raise _full_disk_fault(needed, self._job_folder)

    def _full_disk(self, written: dict[str, Written]) -> UserFault:
        done = sum(split.count for split in written.values())
        size = sum(split.size_bytes for split in written.values())
        each = size / done if done else _raw_bytes(self._recipe)
        return _full_disk_fault(math.ceil(self._report.images * each), self._job_folder)


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
        counts, class_counts = [0] * len(self._plan.groups), _no_class_counts(self._plan)
        digests = bytearray()
        kept: list[int] = []
        features = FeatureShapes()
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
                    class_counts[classes if len(classes) else -1] += 1
                features.add(record)
                if group >= 0:
                    counts[group] += 1
                kept.append(place)
                digests += digest
                if in_train:
                    self._sum.add(pixels)
                news.advance()
        news.flush()
        counted = self._plan.counts(split, kept)
        send(
            ShardWritten(
                split=piece.split,
                name=piece.name,
                sha256=writer.sha256,
                features=features,
                count=len(kept),
                counts=np.array(counts, np.int64),
                counted=counted,
                class_counts=class_counts,
                size_bytes=writer.size_bytes,
                digests=bytes(digests),
            )
        )

    def finish(self, send: parallel.Send) -> None:
        """Send the sum of the training images that this process wrote."""
        if (total := self._sum.total()) is not None:
            send(Summed(total))

    def _pictures(self, split: SplitPlan, place: int) -> list[images.Picture]:
        """Read the images of a record; raises UnusableImage, OSError and UnusablePart."""
        plan, recipe = self._plan, self._recipe
        # Images to pad are decoded at their full size.
        enough = None if plan.padding else (recipe.width, recipe.height)
        names = plan.names(split, place)
        if len(names) == 1:
            return [
                images.open_picture(data, recipe.channels, enough=enough) for data in plan.read(split, place)
            ]
        pictures = []
        for name in names:
            try:
                pictures.append(images.open_picture(split.images.read(name), recipe.channels, enough=enough))
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


class Report:
    """Reports the progress of the task as events, no more often than a reader can follow."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._interval = ReportInterval(PROGRESS_SECONDS)
        self._started_at = 0.0
        self._done = 0
        self._skipped = 0
        self.images = 0
        self.share = 0.0  # the progress before writing starts
        # Replaces paths in texts for the user.
        self.show: Callable[[str], str] = str

    def warn(self, message: str) -> None:
        self._events.append(Warned(self.show(message)))

    def counted(self, split: str, plan: Plan, counts: NDArray[np.integer[Any]]) -> None:
        if plan.counted:
            self._events.append(Counted(cast(Split, split), plan.counted, counts.tolist()))

    def reading(self, what: str) -> None:
        self._events.append(Progressed(self.share, None, self.show(what)))

    def downloaded(self, fraction: float, what: str, seconds_left: float | None = None) -> None:
        self.share = SHARE_OF_DOWNLOAD
        if self._interval.is_due(now=fraction >= 1):
            self._events.append(Progressed(fraction * self.share, seconds_left, what))

    def start_writing(self, count: int) -> None:
        self.images = count
        self._started_at = time.monotonic()

    def skipped(self, unusable: list[Unusable]) -> None:
        for item in unusable[: MAX_SKIPPED_EVENTS - self._skipped]:
            self._events.append(Skipped(item.path, item.reason, item.split, item.group))
        self._skipped += len(unusable)

    def advanced(self, news: Advanced) -> None:
        self._done += news.images
        if self._interval.is_due():
            fraction = self._done / self.images
            rate = self._done / max(time.monotonic() - self._started_at, 1e-3)
            what = f"Writing images: {self._done:,} of {self.images:,} ({rate:,.0f} img/s)"
            fraction = self.share + (1 - self.share) * fraction
            self._events.append(Progressed(fraction, self._seconds_left(), what))

    def finished(self) -> None:
        self._events.append(Progressed(1.0, 0.0, "Done"))

    def _seconds_left(self) -> float | None:
        if not self._done:
            return None
        return (self.images - self._done) * (time.monotonic() - self._started_at) / self._done


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
                count * _raw_bytes(recipe) * plan.stacked * np.dtype(plan.dtype).itemsize / MAX_SHARD_BYTES
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


def _count_images(skipped: list[Unusable]) -> int:
    """Return the number of unusable images: records that share one are skipped together."""
    alone = sum(item.is_image and not item.file for item in skipped)
    return alone + len({item.file for item in skipped if item.file})


def _split_and_path(item: Unusable) -> tuple[int, str]:
    return SPLITS.index(item.split) if item.split else -1, item.path


def _need_enough(plan: Plan, written: dict[str, Written], skipped: list[Unusable]) -> None:
    first = f" The first unusable one: {skipped[0].path} ({skipped[0].reason})." if skipped else ""
    hint = f"All skipped images are listed in {SKIPPED_FILE}."
    groups = int(np.count_nonzero(written["train"].counts))
    if plan.required_groups > 1 and groups < plan.required_groups:
        raise UserFault(
            f"Usable train images are left in {groups} of {len(plan.groups)} classes; "
            f"{plan.required_groups} are needed.{first}",
            hint,
        )
    if not written["train"].count:
        raise UserFault(f"No usable train image is left.{first}", hint)


def _split(name: str, written: Written, pieces: list[Piece]) -> SplitRecords:
    shards = [piece.name for piece in pieces if piece.split == name]
    return SplitRecords(
        count=written.count,
        counts=written.counts.tolist(),
        class_counts=written.class_counts.tolist(),
        bytes=written.size_bytes,
        shards=shards,
        hashes=[written.hashes[shard] for shard in shards],
    )


def _no_class_counts(plan: Plan) -> NDArray[np.int64]:
    """Return zeros for the counts of records per class, and of those without one; none for single classes."""
    return np.zeros(len(plan.target.contained_names) + 1 if plan.target.contained_names else 0, np.int64)


def _digests(written: Written) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(written.digests), np.uint64)


# Many images have the same size.
_geometry = functools.lru_cache(maxsize=4096)(images.Geometry)


def _digest(data: bytes) -> bytes:
    # Processors have instructions for this hash.
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


def _unchanged(recipe: CreateDataset) -> tuple[tuple[int, int], int, int, str]:
    return (recipe.width, recipe.height), recipe.width, recipe.height, "squash"


def _raw_bytes(recipe: CreateDataset) -> int:
    """Return the size of one image's pixels in bytes: the maximum size of its record, except for names."""
    return recipe.width * recipe.height * recipe.channels


def _process_fault(death: parallel.ProcessDied) -> UserFault:
    if death.code == -9:
        return UserFault(
            "A process that converts images was killed (signal 9, SIGKILL): it most likely ran out of memory.",
            "Close other programs, or use fewer processes.",
        )
    return UserFault(f"A process that converts images crashed ({death.reason}).", "See the log.")


def _full_disk_fault(needed: int, place: Path) -> UserFault:
    size, free = humanize.naturalsize(needed), humanize.naturalsize(shutil.disk_usage(place).free)
    return UserFault(
        f"The disk is full: the dataset needs about {size}, {free} are free.",
        f"Free some space for {show(str(place))}, or choose smaller images.",
    )
