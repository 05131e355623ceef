"""Versions: datasets made from the records of another dataset, with some excluded, relabeled or moved to another split.

A version stores its own records, so it does not depend on its parent once it is finished.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray
from PIL import Image

from digits.core.files import UnreadableFile, read_json
from digits.core.recipe import CreateDataset
from digits.core.schema import Count, JsonObject, Percent
from digits.data import images
from digits.data import manifest as manifests
from digits.data.images import Geometry, Picture, UnusableImage
from digits.data.manifest import SPLITS, Manifest
from digits.data.records import Features, Record, SplitReader
from digits.data.sources import (
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    shuffle,
    split_counts,
)
from digits.data.target import IGNORED, NO_BOX, TargetSpec

EDITS_FILE = "edits.json"
MAX_EDITS = 1_000_000

SplitName = Literal["train", "val", "test"]
# A record of the parent: its split and its number.
RecordId = tuple[SplitName, Count]


class Edits(Struct, kw_only=True):
    """Changes of single records: those to ``exclude``, new classes by index, and new splits."""

    exclude: Annotated[list[RecordId], Meta(max_length=MAX_EDITS)] = field(default_factory=list)
    relabel: Annotated[list[tuple[SplitName, Count, Count]], Meta(max_length=MAX_EDITS)] = field(
        default_factory=list
    )
    move: Annotated[list[tuple[SplitName, Count, SplitName]], Meta(max_length=MAX_EDITS)] = field(
        default_factory=list
    )

    def describe(self) -> str:
        """Return the changes in words, such as ``3 images excluded, 1 image relabeled``."""
        counts = {
            "excluded": len(self.exclude),
            "relabeled": len(self.relabel),
            "moved": len(self.move),
        }
        return ", ".join(f"{count_of(count, 'image')} {what}" for what, count in counts.items() if count)


class CreateVersion(CreateDataset, kw_only=True):
    """Make a dataset from the records of the finished dataset in the folder ``parent``.

    The `Edits` in the file ``edits``, in words ``changes``, are applied first. Then, ``keep`` percent of the records of
    each group are chosen. The splits remain, unless ``pct_val`` or ``pct_test`` is set: then all records are divided
    again. ``original`` is the recipe of the dataset that was created from a source, the first one of its versions.
    """

    parent: str
    parent_id: str = ""
    parent_name: str = ""
    original: JsonObject = field(default_factory=JsonObject)
    edits: str | None = None
    changes: str = ""
    keep: Annotated[float, Meta(gt=0, le=100)] = 100.0
    pct_val: Percent | None = None
    pct_test: Percent | None = None


class RecordImages:
    """The images of the records in the dataset in ``folder``; a name is that of the split and a number: ``train/7``."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        # The image and the features of a record are read in turn.
        self._last: tuple[str, Record] | None = None

    def read(self, name: str) -> bytes:
        record = self.record(name)
        return images.encode(record.as_array(), "png") if record.format == "raw" else record.data

    def describe(self) -> str:
        return self._manifest.source.get("train", str(self._folder))

    def is_available(self) -> bool:
        return self._folder.is_dir()

    def record(self, name: str) -> Record:
        """Return a record; raises UnusableImage if it is damaged."""
        if self._last is None or self._last[0] != name:
            split, _, number = name.partition("/")
            try:
                self._last = name, self._readers[split].read(int(number))
            except UnreadableFile as error:
                raise UnusableImage(str(error)) from error
        return self._last[1]

    def close(self) -> None:
        """Close the files; reading opens them again."""
        for reader in self.__dict__.pop("_readers", {}).values():
            reader.close()

    @functools.cached_property
    def _readers(self) -> dict[str, SplitReader]:
        splits = self._manifest.splits.items()
        return {name: SplitReader(self._folder, split) for name, split in splits}


@dataclass
class VersionPlan(Plan):
    """A plan whose records are those of another dataset. The ``targets`` of its splits are new classes, or None."""

    def read(self, split: SplitPlan, place: int) -> list[bytes]:
        if self.stacked == 1:
            return super().read(split, place)
        pixels = cast(RecordImages, split.images).record(split.files[place]).as_array()
        return [images.encode(part, "png") for part in np.split(pixels, self.stacked, axis=2)]

    def pad(self, picture: Picture) -> Picture:
        return picture  # the images of the other dataset are padded

    def array(self, split: SplitPlan, place: int) -> NDArray[np.float32]:
        return cast(RecordImages, split.images).record(split.files[place]).as_array()

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        record = cast(RecordImages, split.images).record(split.files[place])
        features: dict[str, Any] = {**record.features, "image/filename": [record.source]}
        label = split.targets[place]
        if label is not None:
            features |= {
                self.target.feature: [label],
                "image/class/text": [self.target.names[label].encode()],
            }
        if self.target.spatial and geometry.size != (geometry.width, geometry.height):
            features[self.target.feature] = _resize_target(record, self.target, geometry)
        return features

    def source(self, split: SplitPlan, place: int, picture: Picture) -> tuple[tuple[int, int], str]:
        record = cast(RecordImages, split.images).record(split.files[place])
        return record.source_size, record.source_mode

    def counts(self, split: SplitPlan, places: Any) -> Any:
        is_mask = self.target.spatial == "mask"
        if not (self.target.multi_hot or is_mask):
            return super().counts(split, places)
        total = np.zeros(len(self.counted), np.int64)
        source = cast(RecordImages, split.images)
        for place in places:
            record = source.record(split.files[place])
            if is_mask:
                mask = record.target(_resized(self.target, record.width, record.height))
                total += np.bincount(mask.ravel(), minlength=256)[: len(total)] > 0
            else:
                total += np.asarray(record.features[self.target.feature]) != 0
        source.close()
        return total


def read(recipe: CreateVersion, progress: Progress) -> Plan:
    """Plan the version that ``recipe`` describes; raises UnusableSource."""
    folder = Path(recipe.parent)
    progress.reading(f"Reading {recipe.parent_name or folder.name}")
    try:
        manifest = manifests.load(folder)
        edits = read_json(Path(recipe.edits), Edits) if recipe.edits else Edits()
        records = list(_edited(folder, manifest, edits))
    except UnreadableFile as error:
        raise UnusableSource(
            f"The dataset {recipe.parent_name or folder.name} cannot be read: {error}.",
            "It may have been deleted. Choose another dataset.",
        ) from error
    if recipe.pct_val is not None or recipe.pct_test is not None:
        records = _divided(records, recipe.pct_val or 0, recipe.pct_test or 0, recipe.seed)
    if recipe.keep < 100:
        records = _sampled(records, recipe.keep, recipe.seed)
    source = RecordImages(folder, manifest)
    splits = {}
    for name in SPLITS:
        members = [record for record in records if record.split == name]
        if not members and name != "train":
            continue
        split = SplitPlan(
            source,
            [record.name for record in members],
            [record.label for record in members],
            [record.group for record in members] if manifest.groups else [],
        )
        shuffle(split, recipe.seed, name)
        split.source = recipe.parent_name or str(folder)
        splits[name] = split
    if not splits["train"].files:
        raise UnusableSource("No training image is left.", "Exclude fewer images.")
    target = _resized(manifest.target, recipe.width, recipe.height)
    stacked = manifest.channels // recipe.channels
    remarks = _remarks(manifest, splits)
    return VersionPlan(
        target,
        splits,
        manifest.groups,
        remarks,
        stacked=stacked,
        dtype=manifest.dtype,
        padding=manifest.padding,
    )


@dataclass
class _Planned:
    """A record of the parent, by its ``name``; ``label`` is a new class, if it was relabeled."""

    name: str
    split: str
    group: int
    label: int | None = None


def check_edits(edits: Edits, manifest: Manifest) -> None:
    """Raise UnusableSource if an edit does not fit the dataset of ``manifest``."""
    changed: list[tuple[str, int]] = [*edits.exclude]
    changed += [(split, number) for split, number, _ in (*edits.relabel, *edits.move)]
    for split, number in changed:
        if split not in manifest.splits or number >= manifest.splits[split].count:
            raise UnusableSource(f"There is no record {number} in the split “{split}”.")
    if edits.relabel and not _has_classes(manifest):
        raise UnusableSource("Only images with one class each can be relabeled.")
    for split, number, label in edits.relabel:
        if label >= len(manifest.target.names):
            raise UnusableSource(
                f"There is no class {label} for the image {number} of the split “{split}”.",
                f"The classes are 0 to {len(manifest.target.names) - 1}.",
            )


def _has_classes(manifest: Manifest) -> bool:
    return manifest.target.classes and manifest.groups == manifest.target.names


def _edited(folder: Path, manifest: Manifest, edits: Edits) -> Iterator[_Planned]:
    check_edits(edits, manifest)
    excluded = set(edits.exclude)
    labels = {(split, number): label for split, number, label in edits.relabel}
    splits = {(split, number): new for split, number, new in edits.move}
    for name, content in manifest.splits.items():
        with SplitReader(folder, content) as reader:
            groups = reader.groups
        for number, group in enumerate(groups.tolist()):
            place = cast(RecordId, (name, number))
            if place in excluded:
                continue
            label = labels.get(place)
            yield _Planned(
                f"{name}/{number}", splits.get(place, name), group if label is None else label, label
            )


def _by_group(records: list[_Planned]) -> Iterator[list[_Planned]]:
    groups: dict[tuple[str, int], list[_Planned]] = {}
    for record in records:
        groups.setdefault((record.split, record.group), []).append(record)
    yield from groups.values()


def _sampled(records: list[_Planned], keep: float, seed: int) -> list[_Planned]:
    """Keep a fraction of the records of each group in each split, at least one."""
    kept: set[str] = set()
    for members in _by_group(records):
        count = max(1, round(len(members) * keep / 100))
        kept.update(choose([record.name for record in members], seed, "keep", maximum=count))
    return [record for record in records if record.name in kept]


def _divided(records: list[_Planned], pct_val: float, pct_test: float, seed: int) -> list[_Planned]:
    """Divide the records of each group among new splits."""
    for record in records:
        record.split = "train"
    new: dict[str, str] = {}
    for members in _by_group(records):
        shuffled = choose([record.name for record in members], seed, "divide")
        start = 0
        for split, count in zip(SPLITS, split_counts(len(members), pct_val, pct_test), strict=True):
            new |= dict.fromkeys(shuffled[start : start + count], split)
            start += count
    for record in records:
        record.split = new[record.name]
    return records


def _remarks(manifest: Manifest, splits: dict[str, SplitPlan]) -> list[str]:
    """Return warnings about groups without remaining training images."""
    present = set(splits["train"].groups)
    before = manifest.splits["train"].counts
    lost = [name for place, name in enumerate(manifest.groups) if before[place] and place not in present]
    return [f"No training image is left in: {', '.join(lost)}."] if lost else []


def _resized(target: TargetSpec, width: int, height: int) -> TargetSpec:
    if not target.is_picture:
        return target
    return TargetSpec(
        **{name: getattr(target, name) for name in target.__struct_fields__}
        | {"shape": [height, width, *target.shape[2:]]}
    )


def _resize_target(record: Record, target: TargetSpec, geometry: Geometry) -> list[Any]:
    """Return the spatial target of ``record``, resized like its image."""
    # The target has the size of the parent's images.
    parent = target if not target.is_picture else _resized(target, geometry.size[0], geometry.size[1])
    value = record.target(parent)
    if target.spatial == "boxes":
        rows = value.copy()
        used = rows[:, 4] != NO_BOX
        rows[used, :4] = geometry.move_boxes(rows[used, :4])
        return cast(list[Any], rows.ravel().tolist())
    if target.spatial == "mask":
        picture = geometry.resize_mask(Image.fromarray(value), IGNORED)
    else:
        picture = images.resize_image(images.as_image(value), geometry.width, geometry.height, geometry.mode)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return [file.getvalue()]
