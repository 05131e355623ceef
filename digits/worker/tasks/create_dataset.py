"""Create a dataset: read the source, convert the images to records, write the mean image and the manifest.

Everything specific to a kind of dataset is in its package: its reader plans which image becomes a record of
which split, with which target. Each process turns one piece of a split at a time into a shard. The recipe and
the source alone determine which image goes into which shard, and every byte of it, whatever the number of
processes. The manifest is written last: its presence marks a complete dataset.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import humanize
import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from digits.core.csv_cells import harmless
from digits.core.errors import DigitsError
from digits.core.events import EventLog
from digits.core.files import is_disk_full, remove_tree, write_bytes, write_json
from digits.core.recipe import CreateDataset
from digits.core.remote import replace_texts
from digits.core.splits import SPLITS
from digits.data import parallel
from digits.data.images import images
from digits.data.manifest import (
    ADDED_FOLDER,
    CONVERTED_FOLDER,
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
from digits.data.records.feature_spec import FeatureShapes
from digits.data.remote.copies import Copies
from digits.data.sources.causes import LIMIT_FIELD, Causes, advise_limit, enough_percent
from digits.data.sources.plan import Plan, SkippedParts, Unusable, WiderValues, count_of, show
from digits.kinds.recipes import build_recipe, convert_source, has_databases, read_source
from digits.kinds.versions import versions
from digits.kinds.versions.additions import unite
from digits.kinds.versions.versions import CreateVersion
from digits.worker.creation.report import SHARE_OF_ADDITIONS, Report
from digits.worker.creation.shards import (
    Advanced,
    Piece,
    ShardMaker,
    ShardWritten,
    Summed,
    Written,
    divide,
    find_bits,
    raw_bytes,
)
from digits.worker.failure import UserFault

# Smaller sources are read to the end even if too many images are unusable, so that the message has their number.
MAX_IMAGES_COUNTED = 2000


def run(recipe: CreateDataset, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Create the dataset that ``recipe`` describes in the parent of ``task_folder``.

    Raises UserFault if that is not possible. If it ends early for any reason, no part of a dataset is left behind,
    only the list of skipped images.
    """
    return Creation(recipe, task_folder.parent, Report(events)).run()


class Creation:
    """A dataset being created: owns its files until the manifest is written.

    It ``is_part`` of another one if this reads its records.
    """

    def __init__(
        self, recipe: CreateDataset, job_folder: Path, report: Report, *, is_part: bool = False
    ) -> None:
        self._recipe = recipe
        self._job_folder = job_folder
        self._report = report
        self._is_part = is_part
        self._copies: Copies | None = None
        self._skipped: list[Unusable] = []
        # The number of images of the source, including those that are skipped, and of those that the plan skips.
        self._images = self._planned = 0

    def run(self) -> dict[str, Any]:
        remove_products(self._job_folder)
        written: dict[str, Written] = {}
        try:
            self._fetch()
            self._convert()
            self._add()
            result = self._make(self._plan(), written)
            for name in (CONVERTED_FOLDER, ADDED_FOLDER):
                remove_tree(self._job_folder / name, ignore_errors=True)
            if self._copies is not None:
                self._copies.remove()
            return result
        except BaseException as error:
            remove_products(self._job_folder)
            show = self._report.show
            if isinstance(error, UserFault | DigitsError):
                raise UserFault(show(error.message), show(error.hint), remedy=error.remedy) from error
            if isinstance(error, parallel.ProcessDied):
                raise _process_fault(error) from error
            if isinstance(error, OSError) and is_disk_full(error):
                raise self._full_disk(written) from error
            raise

    def _fetch(self) -> None:
        """Download the recipe's remote files, and read the local copies instead."""
        recipe = self._recipe
        if recipe.remote is None:
            return
        self._copies = Copies(recipe.remote, self._job_folder)
        self._report.show = self._copies.show
        failed = self._copies.fetch(self._report, recipe.max_unusable_percent)
        self._skipped += [Unusable(address, reason) for address, reason in failed]
        body = msgspec.to_builtins(recipe) | {"remote": None}
        self._recipe = build_recipe(replace_texts(body, self._copies.paths))

    def _convert(self) -> None:
        """Convert the recipe's databases, and read the result instead."""
        if not has_databases(self._recipe):
            return
        folder = self._job_folder / CONVERTED_FOLDER
        self._recipe, converted = convert_source(self._recipe, folder, self._report)
        show_copies = self._report.show
        self._report.show = lambda text: show_copies(converted.show(text))
        self._skipped += converted.unusable
        for warning in converted.warnings:
            self._report.warn(warning)

    def _add(self) -> None:
        """Make the records of the images that the version adds, and read these instead."""
        recipe = self._recipe
        if not isinstance(recipe, CreateVersion) or recipe.added is None:
            return
        folder = self._job_folder / ADDED_FOLDER
        folder.mkdir()
        self._report.end = SHARE_OF_ADDITIONS
        source, parent = versions.addition_of(recipe, recipe.added)
        new = Creation(source, folder, self._report, is_part=True)
        try:
            new._convert()
            plan = new._plan()
            unite(parent.target, plan.target, takes_new=recipe.added.new_classes)  # raises it before the work
            plan.bits = parent.bits
            new._make(plan, {})
        finally:
            self._skipped += new._skipped
            self._save_skipped()
        self._report.share, self._report.end = SHARE_OF_ADDITIONS, 1.0
        self._recipe = structs.replace(recipe, added=structs.replace(recipe.added, records=str(folder)))

    def _plan(self) -> Plan:
        plan = read_source(self._recipe, self._report)
        lost = plan.lost(self._recipe)
        for warning in [*plan.warnings, *([lost.words] if lost else [])]:
            if not isinstance(warning, SkippedParts):  # which are reported one by one
                self._report.warn(warning)
        for name, split in plan.splits.items():
            self._report.counted(name, plan, plan.counts(split, range(len(split))))
        return plan

    def _make(self, plan: Plan, written: dict[str, Written]) -> dict[str, Any]:
        recipe = self._recipe
        pieces = divide(plan, recipe)
        self._need_room(plan)
        total = self._write_in_range(plan, pieces, written)
        skipped = self._skipped
        self._save_skipped()
        _need_enough(plan, written, skipped)
        if not self._is_part:
            self._warn_of_losses(plan, written)
            self._warn_of_fractions(written)
        mean = total / written["train"].count
        _save_mean(mean, plan.dtype, self._job_folder)
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
            bits=plan.bits or images.FULL_BITS,
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

    def _write_in_range(
        self, plan: Plan, pieces: list[Piece], written: dict[str, Written]
    ) -> NDArray[np.float64]:
        """Write all shards like `_write`, again if 16-bit images use more bits than those read before."""
        skipped, bits = self._skipped.copy(), plan.bits
        while True:
            try:
                total = self._write(plan, pieces, written)
                break
            except WiderValues as found:
                plan.bits = max(found.bits, find_bits(plan, self._recipe))
                self._skipped = skipped.copy()
        if bits < plan.bits < images.FULL_BITS:
            self._report.warn(
                f"16-bit images use {plan.bits} bits: stretched to the full range of brightness."
            )
        return total

    def _write(self, plan: Plan, pieces: list[Piece], written: dict[str, Written]) -> NDArray[np.float64]:
        """Write all shards; return the sum of the training images."""
        recipe = self._recipe
        written |= {name: Written.nothing(plan) for name in plan.splits}
        total = np.zeros((recipe.height, recipe.width, recipe.channels * plan.stacked), np.float64)
        writer = ShardMaker(recipe, plan, pieces, self._job_folder)
        planned = sum(len(split) for split in plan.splits.values())
        self._images = plan.count_images() + _count_images([*plan.unusable, *self._skipped])
        self._report.start_writing(planned)
        self._report.skipped(self._skipped)
        self._skip(plan.unusable)
        self._planned = _count_images(self._skipped)
        news = parallel.run(writer.make, len(pieces), processes=recipe.processes, finish=writer.finish)
        with closing(news):
            for message in news:
                if isinstance(message, Advanced):
                    self._report.advanced(message.images)
                    if message.unusable:
                        self._skip(message.unusable)
                elif isinstance(message, ShardWritten):
                    written[message.split].add(message.written)
                elif isinstance(message, Summed):
                    total += message.total
                else:
                    self._report.advanced(0)
        self._skipped.sort(key=_split_and_path)
        self._check_limit()
        return total

    def _skip(self, unusable: list[Unusable]) -> None:
        """Skip images; fail as soon as these are more than the recipe allows, unless all are counted soon."""
        self._skipped += unusable
        self._report.skipped(unusable)
        if self._images > MAX_IMAGES_COUNTED:
            self._check_limit(is_complete=False)

    def _check_limit(self, is_complete: bool = True) -> None:
        """Fail if more images are skipped than the recipe allows; the message says which limit would be enough.

        It is an estimate from the images read so far if these are not all.
        """
        limit, total = self._recipe.max_unusable_percent, self._images
        count = _count_images(self._skipped)
        if count * 100 <= total * limit:
            return
        self._save_skipped()
        causes = _causes(self._skipped)
        hint, remedy = causes.remedy, {}
        expected = count
        if not is_complete and self._report.done:
            share = (count - self._planned) / self._report.done
            expected = max(count, math.ceil(self._planned + (total - self._planned) * share))
        if expected < total:
            percent = enough_percent(expected, total)
            hint += f" {advise_limit(percent, at_least=not is_complete)}"
            remedy = {LIMIT_FIELD: str(percent)}
        raise UserFault(
            f"{'' if is_complete else 'At least '}{count:,} of {count_of(total, 'image')} cannot be used, "
            f"more than the limit of {limit:g}%: {causes.describe()}.",
            f"{hint} {SKIPPED_FILE} lists {'them' if is_complete else 'those found'}.",
            remedy=remedy,
        )

    def _warn_of_losses(self, plan: Plan, written: dict[str, Written]) -> None:
        causes = _causes(self._skipped)
        if causes.count:
            self._report.warn(
                f"{count_of(causes.count, 'image')} skipped: {causes.describe()}. {causes.remedy}"
            )
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

    def _warn_of_fractions(self, written: dict[str, Written]) -> None:
        if fractions := sum(split.fractions for split in written.values()):
            verb = "has" if fractions == 1 else "have"
            self._report.warn(
                f"{count_of(fractions, 'image')} {verb} floating-point pixels from 0 to 1: scaled to 0 to 255."
            )

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

    def _need_room(self, plan: Plan) -> None:
        """Fail early if the dataset cannot fit on the disk; the compression ratio of PNG and JPEG is not known
        yet.
        """
        recipe = self._recipe
        if recipe.encoding != "none":
            return
        count = sum(len(split) for split in plan.splits.values())
        needed = count * raw_bytes(recipe) * plan.stacked
        if needed > shutil.disk_usage(self._job_folder).free:
            raise _full_disk_fault(needed, self._job_folder)

    def _full_disk(self, written: dict[str, Written]) -> UserFault:
        done = sum(split.count for split in written.values())
        size = sum(split.size_bytes for split in written.values())
        each = size / done if done else raw_bytes(self._recipe)
        return _full_disk_fault(math.ceil(self._report.images * each), self._job_folder)


def _count_images(skipped: list[Unusable]) -> int:
    """Return the number of unusable images: records that share one are skipped together."""
    alone = sum(item.is_image and not item.file for item in skipped)
    return alone + len({item.file for item in skipped if item.file})


def _causes(skipped: list[Unusable]) -> Causes:
    """Return the causes of skipped images, each image once."""
    causes, seen = Causes(), set[str]()
    for item in sorted(skipped, key=lambda item: item.path):
        if item.is_image and item.file not in seen:
            causes.add("" if item.file else item.path, item.reason)
            seen |= {item.file} - {""}
    return causes


def _split_and_path(item: Unusable) -> tuple[int, str]:
    return SPLITS.index(item.split) if item.split else -1, item.path


def _need_enough(plan: Plan, written: dict[str, Written], skipped: list[Unusable]) -> None:
    causes = _causes(skipped)
    first = f" Skipped: {causes.describe()}." if causes.count else ""
    hint = f"{causes.remedy} All skipped images are listed in {SKIPPED_FILE}.".lstrip()
    groups = int(np.count_nonzero(written["train"].counts))
    if plan.required_groups > 1 and groups < plan.required_groups:
        raise UserFault(
            f"Usable train images are left in {groups} of {len(plan.groups)} classes; "
            f"{plan.required_groups} are needed.{first}",
            hint,
        )
    if not written["train"].count:
        raise UserFault(f"No usable train image is left.{first}", hint)


def _save_mean(mean: NDArray[np.float64], dtype: str, job_folder: Path) -> None:
    """Save the ``mean`` [height, width, channels] of images of ``dtype`` as an array and as pictures."""
    file = io.BytesIO()
    np.save(file, mean.astype(np.float32), allow_pickle=False)
    write_bytes(job_folder / MEAN_ARRAY_FILE, file.getvalue())
    is_array = dtype == "float32"
    pixels = images.scale_to_pixels(mean.astype(np.float32)) if is_array else np.rint(mean).astype(np.uint8)
    picture = images.side_by_side(pixels)
    for name in (MEAN_IMAGE_FILE, MEAN_JPEG_FILE):
        write_bytes(job_folder / name, images.encode(picture, Path(name).suffix[1:]))


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


def _digests(written: Written) -> NDArray[np.uint64]:
    return np.frombuffer(written.digests, np.uint64)


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
