"""Versions: datasets made from the records of another dataset, with some added, excluded, relabeled or moved.

A version stores its own records, so it does not depend on its parent once it is finished.
"""

from __future__ import annotations

import csv
import errno
import functools
import hashlib
import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, check_size, open_plain, read_json, write_bytes
from digits.core.recipe import CreateDataset
from digits.core.schema import Count, JsonObject, Percent, convert
from digits.core.splits import SPLITS, Split
from digits.data import manifest as manifests
from digits.data.images import images
from digits.data.images.images import Geometry, Picture, UnusableImage
from digits.data.manifest import CHANGES_FILE, Manifest
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Features, Record, SplitReader
from digits.data.sources.plan import (
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    listed,
    shuffle,
)
from digits.data.sources.shares import Shares
from digits.data.targets.target import NumberStatistics, Target
from digits.kinds import kind_named
from digits.kinds.versions.additions import Additions, CreateAddition, divide, unite

EDITS_FILE = "edits.json"
MAX_EDITS = 1_000_000
# A file of as many edits of every type.
MAX_EDITS_BYTES = 256 << 20

# A record of the parent: its split and its number.
RecordId = tuple[Split, Count]


Relabeled = Annotated[list[tuple[Split, Count, Count]], Meta(max_length=MAX_EDITS)]


class Edits(Struct, kw_only=True):
    """Changes of single records: those to ``exclude``, new targets, and new splits.

    The third item of ``relabel``, ``add_labels`` and ``remove_labels`` is the index of a class or label, that of
    ``set_numbers`` the index of the number to set.
    """

    exclude: Annotated[list[RecordId], Meta(max_length=MAX_EDITS)] = field(default_factory=list)
    relabel: Relabeled = field(default_factory=list)
    add_labels: Relabeled = field(default_factory=list)
    remove_labels: Relabeled = field(default_factory=list)
    set_numbers: Annotated[list[tuple[Split, Count, Count, float]], Meta(max_length=MAX_EDITS)] = field(
        default_factory=list
    )
    move: Annotated[list[tuple[Split, Count, Split]], Meta(max_length=MAX_EDITS)] = field(
        default_factory=list
    )

    @property
    def new_targets(self) -> list[tuple[Any, ...]]:
        """The changes of targets, each with its split and number first."""
        return [*self.relabel, *self.add_labels, *self.remove_labels, *self.set_numbers]

    def describe(self) -> str:
        """Return the changes in words, such as ``3 images excluded, 1 image relabeled``."""
        relabeled = len({(split, number) for split, number, *_ in self.new_targets})
        return self.in_words(len(self.exclude), relabeled, len(self.move))

    def splits(self, counts: dict[str, int]) -> dict[str, int]:
        """Return the numbers of records in the splits after the changes, from those before."""
        after: Counter[str] = Counter(counts)
        after.subtract(split for split, _ in self.exclude)
        after.subtract(split for split, _, _ in self.move)
        after.update(split for _, _, split in self.move)
        return dict(after)

    @staticmethod
    def in_words(excluded: int, relabeled: int, moved: int) -> str:
        """Return the numbers of changed images in words; empty without changes."""
        counts = {"excluded": excluded, "relabeled": relabeled, "moved": moved}
        return ", ".join(f"{count_of(count, 'image')} {what}" for what, count in counts.items() if count)


def save_edits(path: Path, edits: Edits) -> None:
    """Write ``edits`` durably; raises OSError, also if `load_edits` would refuse them."""
    if max(map(len, msgspec.structs.astuple(edits))) > MAX_EDITS:
        raise OSError(errno.EFBIG, f"There are more than {MAX_EDITS:,} changes of one type", str(path))
    data = msgspec.json.encode(edits)
    check_size(path, data, MAX_EDITS_BYTES)
    write_bytes(path, data)


def load_edits(path: Path, below: Path | None = None) -> Edits:
    """Read the edits in a file; raises UnreadableFile."""
    return read_json(path, Edits, below=below, limit=MAX_EDITS_BYTES)


class CreateVersion(CreateDataset, kw_only=True):
    """Make a dataset from the records of the finished dataset in the folder ``parent``.

    The `Edits` in the file ``edits``, in words ``changes``, are applied first, and the images ``added``. Then, ``keep``
    percent of the records of each group are chosen. The splits remain, unless ``pct_val`` or ``pct_test`` is set: then
    all records are divided again. ``original`` is the recipe of the dataset that was created from a source, the first
    one of its versions.
    """

    parent: str
    parent_id: str = ""
    parent_name: str = ""
    original: JsonObject = field(default_factory=JsonObject)
    edits: str | None = None
    changes: str = ""
    added: Additions | None = None
    keep: Annotated[float, Meta(gt=0, le=100)] = 100.0
    pct_val: Percent | None = None
    pct_test: Percent | None = None


@dataclass
class VersionImages:
    """The images of the records in datasets, such as the parent and the additions, by the prefix of their names.

    The name of a record is that of its split and a number, after the prefix: ``train/7``, ``added/train/7``. Records
    have the ``target`` of the version.
    """

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    target: Target

    def __post_init__(self) -> None:
        # The image and the features of a record are read in turn.
        self._last: tuple[str, Record] | None = None

    def read(self, name: str) -> bytes:
        record = self.record(name)
        return images.encode(record.as_array(), "png") if record.format == "raw" else record.data

    def describe(self) -> str:
        return self.manifests[""].source.get("train", str(self.folders[""]))

    def is_available(self) -> bool:
        return all(folder.is_dir() for folder in self.folders.values())

    def record(self, name: str) -> Record:
        """Return a record; raises UnusableImage if it is damaged."""
        if self._last is None or self._last[0] != name:
            place, _, number = name.rpartition("/")
            try:
                self._last = name, self._converted(place, self._readers[place].read(int(number)))
            except UnreadableFile as error:
                raise UnusableImage(str(error)) from error
        return self._last[1]

    def _converted(self, place: str, record: Record) -> Record:
        """Return a record with the target of the version."""
        manifest = self.manifests[place.rpartition("/")[0]]
        own, target = manifest.target, self.target.sized(manifest.width, manifest.height)
        places = [target.names.index(name) for name in own.names]
        if places == [*range(len(places))] and own.stored_shape == target.stored_shape:
            return record
        value = target.moved(record.target(own), places)
        features = target.encode(value, manifest.width, manifest.height)
        return msgspec.structs.replace(record, features={**record.features, **features})

    def target_of(self, name: str, geometry: Geometry, changed: Any = None) -> Any:
        """Return the target of a record after its image is resized as in ``geometry``, or the ``changed`` one.

        Raises UnusableImage if the record is damaged.
        """
        return target_of(self.record(name), self.target, geometry) if changed is None else np.asarray(changed)

    def close(self) -> None:
        """Close the files; reading opens them again."""
        for reader in self.__dict__.pop("_readers", {}).values():
            reader.close()

    @functools.cached_property
    def _readers(self) -> dict[str, SplitReader]:
        return {
            os.path.join(prefix, name): SplitReader(self.folders[prefix], split)
            for prefix, manifest in self.manifests.items()
            for name, split in manifest.splits.items()
        }


@dataclass
class VersionPlan(Plan):
    """A plan whose records are those of other datasets. Other ``targets`` than new ones are None.

    ``geometry`` is how their images are resized.
    """

    _: KW_ONLY
    geometry: Geometry

    def read(self, split: SplitPlan, place: int) -> list[bytes]:
        if self.stacked == 1:
            return super().read(split, place)
        pixels = cast(VersionImages, split.images).record(split.files[place]).as_array()
        return [images.encode(part, "png") for part in np.split(pixels, self.stacked, axis=2)]

    def source_name(self, split: SplitPlan, place: int) -> bytes:
        return cast(VersionImages, split.images).record(split.files[place]).source

    def pad(self, picture: Picture) -> Picture:
        return picture  # the images of the other dataset are already padded

    def array(self, split: SplitPlan, place: int) -> NDArray[np.float32]:
        return cast(VersionImages, split.images).record(split.files[place]).as_array()

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        record = cast(VersionImages, split.images).record(split.files[place])
        features: dict[str, Any] = dict(record.features)
        if split.targets[place] is not None:
            features |= super().features(split, place, geometry)
        if changes_targets(geometry, self.target):
            value = target_of(record, self.target, geometry)
            features |= self.target.encode(value, geometry.width, geometry.height)
        return features

    def source(self, split: SplitPlan, place: int, picture: Picture) -> tuple[tuple[int, int], str]:
        record = cast(VersionImages, split.images).record(split.files[place])
        return record.source_size, record.source_mode

    def counts(self, split: SplitPlan, places: Any) -> Any:
        """Count the objects of each class, the records with each label or class, or those of each group.

        Damaged records do not count: they are skipped.
        """
        if not self.target.contained_names:
            return super().counts(split, places)
        total = np.zeros(len(self.counted), np.int64)
        source = cast(VersionImages, split.images)
        for place in places:
            try:
                value = source.target_of(split.files[place], self.geometry, split.targets[place])
            except UnusableImage:
                continue
            total += self.target.count(value)
        source.close()
        return total


def read(recipe: CreateVersion, progress: Progress) -> Plan:
    """Plan the version that ``recipe`` describes; raises UnusableSource."""
    folder = Path(recipe.parent)
    progress.reading(f"Reading {recipe.parent_name or folder.name}")
    try:
        manifest = manifests.load(folder)
        edits = load_edits(Path(recipe.edits)) if recipe.edits else Edits()
        changes: list[Change] = []
        records = list(_edited(folder, manifest, edits, changes))
        target, groups = manifest.target.sized(recipe.width, recipe.height), manifest.groups
        warnings: list[str] = []
        geometry = Geometry(
            (manifest.width, manifest.height), recipe.width, recipe.height, recipe.resize_mode
        )
        # Classes in the image can be cropped, or too small for the new size.
        is_regrouped = bool(edits.new_targets or recipe.added or changes_targets(geometry, target))
        folders, contents = {"": folder}, {"": manifest}
        if recipe.added:
            folders["added"] = Path(recipe.added.records)
            new = contents["added"] = manifests.load(folders["added"])
            united = unite(manifest.target, new.target, takes_new=recipe.added.new_classes)
            target = united.sized(recipe.width, recipe.height)
        with closing(VersionImages(folders, contents, target)) as source:
            if recipe.added:
                added, warnings = _added(recipe, recipe.added, source, records)
                changes += added

            def values(record: _Planned) -> Any:
                return source.target_of(record.name, geometry, record.target)

            if is_regrouped:
                groups = _regroup(manifest, target, records, values)
            if recipe.pct_val is not None or recipe.pct_test is not None:
                records = _divided(records, Shares(recipe.pct_val or 0, recipe.pct_test or 0), recipe.seed)
            if recipe.keep < 100:
                records = _sampled(records, recipe.keep, recipe.seed)
            if manifest.target.mean:
                target = _described(target, records, values)
    except (UnreadableFile, UnusableImage) as error:
        raise _unreadable(recipe, error) from error
    splits: dict[str, SplitPlan] = {}
    for name in SPLITS:
        members = [record for record in records if record.split == name]
        if not members and name != "train":
            continue
        split = SplitPlan(
            source,
            [record.name for record in members],
            [record.target for record in members],
            [record.group for record in members] if groups else [],
        )
        shuffle(split, recipe.seed, name)
        split.source = recipe.parent_name or str(folder)
        splits[name] = split
    if not splits["train"].files:
        raise UnusableSource("No training image is left.", "Exclude fewer images.")
    stacked = manifest.channels // recipe.channels
    if groups[: len(manifest.groups)] == manifest.groups:
        warnings += _remarks(manifest, splits)
    files = {CHANGES_FILE: _as_csv(changes)} if changes else {}
    return VersionPlan(
        target,
        splits,
        groups,
        warnings,
        files=files,
        stacked=stacked,
        dtype=manifest.dtype,
        padding=manifest.padding,
        bits=manifest.bits,
        geometry=geometry,
    )


def addition_of(recipe: CreateVersion, added: Additions) -> tuple[CreateDataset, Manifest]:
    """Return the recipe of a dataset with the images that a version adds, like those of its parent, and the parent.

    Raises UnusableSource.
    """
    try:
        manifest = manifests.load(Path(recipe.parent))
    except UnreadableFile as error:
        raise _unreadable(recipe, error) from error
    inherited = ("kind", "width", "height", "resize_mode", "encoding")
    settings: dict[str, Any] = {name: getattr(manifest, name) for name in inherited}
    settings |= {"channels": recipe.channels, "processes": recipe.processes}
    settings["seed"] = int(recipe.original.get("seed", 0))
    if added.source is None:
        # The limit is that of all images of the version.
        return CreateAddition(
            **settings, parent=recipe.parent, added=added, max_unusable_percent=100
        ), manifest
    source = convert(added.source, kind_named(manifest.kind).load("recipe").Recipe)
    own = {"pct_val": 0.0, "pct_test": 0.0, "padding": manifest.padding}
    settings |= {name: value for name, value in own.items() if hasattr(source, name)}
    return msgspec.structs.replace(source, **settings), manifest


def _unreadable(recipe: CreateVersion, error: Exception) -> UnusableSource:
    return UnusableSource(
        f"The dataset {recipe.parent_name or Path(recipe.parent).name} cannot be read: {error}.",
        "It may have been deleted. Choose another dataset.",
    )


def _added(
    recipe: CreateVersion, additions: Additions, source: VersionImages, records: list[_Planned]
) -> tuple[list[Change], list[str]]:
    """Add the new records that are not among ``records`` to these; return their rows, and warnings.

    Raises UnusableSource.
    """
    manifest = source.manifests["added"]
    target = source.target.sized(manifest.width, manifest.height)
    known: dict[bytes, str] = {}
    before: dict[int, Counter[str]] = {}
    for record in records:
        before.setdefault(record.group, Counter())[record.split] += 1
        with suppress(UnusableImage):
            known.setdefault(hashlib.sha256(source.record(record.name).data).digest(), record.name)
    whole = sum(before.values(), Counter())
    new: dict[tuple[str, int], list[tuple[str, str, str]]] = {}
    repeated: list[str] = []
    differing = 0
    for split, content in manifest.splits.items():
        with SplitReader(source.folders["added"], content) as reader:
            groups = reader.groups.tolist()
        for number, group in enumerate(groups):
            name = f"added/{split}/{number}"
            found = source.record(name)
            read = functools.partial(found.target, target)
            same = known.setdefault(hashlib.sha256(found.data).digest(), name)
            if same == name:
                row = name, found.filename, target.describe_stored(read)
                new.setdefault((split, group if target.labels else -1), []).append(row)
            else:
                repeated.append(os.path.basename(found.filename))
                differing += not np.array_equal(read(), source.record(same).target(target))
    noun = kind_named(manifest.kind).load("views").Views.record
    count = count_of(len(repeated), noun)
    if not new:
        raise UnusableSource(
            f"The dataset has {f'this {noun}' if len(repeated) == 1 else f'all {count}'} already.",
            f"Choose other {noun}s.",
        )
    changes = []
    for (split, group), rows in new.items():
        rows = choose(rows, recipe.seed, "add", target.labels[group] if target.labels else "")
        own = before.get(group, Counter()) if target.labels else Counter[str]()
        chosen = additions.split or (split if len(manifest.splits) > 1 else None)
        splits = [chosen] * len(rows) if chosen else divide(rows, own, whole)
        for (name, path, words), place in zip(rows, splits, strict=True):
            changes.append(Change(place, None, path, "added", "", words))
            records.append(_Planned(name, place, group))
    warnings = []
    if repeated:
        warnings.append(f"{count} left out, which the dataset has already: {listed(sorted(repeated))}.")
    if differing:
        warnings.append(f"{differing:,} of them had another target than the dataset, whose target remains.")
    return changes, warnings


def _described(target: Target, records: list[_Planned], value: Callable[[_Planned], Any]) -> Target:
    """Return ``target`` with the mean and the standard deviation of the train split."""
    statistics = NumberStatistics(target)
    for record in records:
        if record.split == "train":
            with suppress(UnusableImage):  # it is skipped
                statistics.add(value(record))
    return statistics.described()


class Change(NamedTuple):
    """A changed record of the parent: a row of `CHANGES_FILE`.

    ``change`` is ``excluded``, ``relabeled`` or ``moved``. ``before`` and ``after`` are the targets in words, or the
    splits. An image that is ``added`` has no number.
    """

    split: str
    number: int | None
    path: str
    change: str
    before: str
    after: str


def _as_csv(changes: list[Change]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([Change._fields, *changes])
    return text.getvalue().encode()


def read_changes(job_folder: Path, maximum: int) -> list[Change]:
    """Return the first ``maximum`` changes of the version in ``job_folder``; raises UnreadableFile."""
    opened = open_plain(job_folder / CHANGES_FILE, below=job_folder)
    with io.TextIOWrapper(opened, "utf-8", "replace", newline="") as file:
        rows = csv.reader(file)
        try:
            next(rows, None)
            return [
                Change(split, int(number) if number else None, *others)
                for split, number, *others in itertools.islice(rows, maximum)
            ]
        except (csv.Error, ValueError, TypeError) as error:
            raise UnreadableFile(f"{CHANGES_FILE} is damaged: {error}") from error


@dataclass
class _Planned:
    """A record of the parent, or an added image, by its ``name``; ``target`` is a new one, if it was relabeled."""

    name: str
    split: str
    group: int
    target: Any = None


_REFUSALS = {
    "relabel": "Only images with one class each can be relabeled.",
    "add_labels": "Labels can be added and removed only in datasets with any number of labels per image.",
    "remove_labels": "Labels can be added and removed only in datasets with any number of labels per image.",
    "set_numbers": "Numbers can be set only in datasets with numbers as targets.",
}


def check_edits(edits: Edits, manifest: Manifest) -> None:
    """Raise UnusableSource if an edit does not fit the dataset of ``manifest``."""
    target = manifest.target
    changed: list[tuple[Any, ...]] = [*edits.exclude, *edits.new_targets, *edits.move]
    for split, number, *_ in changed:
        if split not in manifest.splits or number >= manifest.splits[split].count:
            raise UnusableSource(f"There is no record {number} in the split “{split}”.")
    for name, refusal in _REFUSALS.items():
        if getattr(edits, name) and name not in target.edited_by:
            raise UnusableSource(refusal)
    if edits.relabel and manifest.groups != target.names:
        raise UnusableSource(_REFUSALS["relabel"])
    for split, number, index, *_ in edits.new_targets:
        if index >= len(target.names):
            raise UnusableSource(
                f"Image {number} of the split “{split}” has no {target.noun} {index}.",
                f"Use an index from 0 to {len(target.names) - 1}.",
            )
    for split, number, _, value in edits.set_numbers:
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise UnusableSource(
                f"The number {value:g} for image {number} of the split “{split}” is out of range."
            )


def _edited(folder: Path, manifest: Manifest, edits: Edits, made: list[Change]) -> Iterator[_Planned]:
    """Yield the records that are not excluded; the changes are added to ``made``."""
    check_edits(edits, manifest)
    excluded = set(edits.exclude)
    splits = {(split, number): new for split, number, new in edits.move}
    changes = _changed_values(edits)
    edited = excluded | splits.keys() | changes.keys()
    for name, content in manifest.splits.items():
        with SplitReader(folder, content) as reader:
            for number, group in enumerate(reader.groups.tolist()):
                place = cast(RecordId, (name, number))
                if place not in edited:
                    yield _Planned(f"{name}/{number}", name, group)
                    continue
                path, before = _describe(reader, number, manifest.target)
                if place in excluded:
                    made.append(Change(name, number, path, "excluded", before, ""))
                    continue
                target = None
                if place in changes:
                    stored = functools.partial(_stored_target, reader, number, manifest.target)
                    target = manifest.target.edit(stored, changes[place])
                    after = manifest.target.describe(target)
                    made.append(Change(name, number, path, "relabeled", before, after))
                if place in splits:
                    made.append(Change(name, number, path, "moved", name, splits[place]))
                yield _Planned(f"{name}/{number}", splits.get(place, name), group, target)


def _describe(reader: SplitReader, number: int, spec: Target) -> tuple[str, str]:
    """Return the path of a record and its target in words; empty if the record is damaged, since it can be excluded."""
    try:
        record = reader.read(number)
        return record.filename, spec.describe(record.target(spec))
    except DamagedRecords:
        return "", ""


def _stored_target(reader: SplitReader, number: int, target: Target) -> Any:
    return reader.read(number).target(target)


def _changed_values(edits: Edits) -> dict[RecordId, dict[int, float]]:
    """Return the new values of each edited record, by the index of their class, label or number."""
    changes: dict[RecordId, dict[int, float]] = {}
    flags = [(*edit, 1.0) for edit in (*edits.relabel, *edits.add_labels)]
    flags += [(*edit, 0.0) for edit in edits.remove_labels]
    for split, number, index, value in (*flags, *edits.set_numbers):
        changes.setdefault((split, number), {})[index] = value
    return changes


def _regroup(
    manifest: Manifest, target: Target, records: list[_Planned], value: Callable[[_Planned], Any]
) -> list[str]:
    """Assign records to groups by their targets, as the reader of their kind does, and return the groups' names.

    ``value`` returns the target of a record.
    """
    if target.labels:
        for record in records:
            record.group = record.group if record.target is None else record.target
        return target.labels
    group_records = getattr(kind_named(manifest.kind).load("reader"), "group_records", None)
    if group_records is None or not any(record.split == "train" for record in records):
        return manifest.groups
    members: dict[str, list[_Planned]] = {}
    values: dict[str, list[Any]] = {}
    for record in records:
        members.setdefault(record.split, []).append(record)
        values.setdefault(record.split, []).append(target.grouping(value(record)))
    arrays = {split: np.array(numbers, np.float32) for split, numbers in values.items()}
    groups, places = group_records(target.names, arrays)
    for split, numbers in members.items():
        for record, place in zip(numbers, places[split], strict=True):
            record.group = place
    return cast(list[str], groups)


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


def _divided(records: list[_Planned], shares: Shares, seed: int) -> list[_Planned]:
    """Divide the records of each group among new splits."""
    for record in records:
        record.split = "train"
    named = {record.name: record for record in records}
    groups = ([record.name for record in members] for members in _by_group(records))
    for split, names in shares.cut(choose(group, seed, "divide") for group in groups).items():
        for name in names:
            named[name].split = split
    return records


def _remarks(manifest: Manifest, splits: dict[str, SplitPlan]) -> list[str]:
    """Return warnings about groups without remaining training images."""
    present = set(splits["train"].groups)
    before = manifest.splits["train"].counts
    lost = [name for index, name in enumerate(manifest.groups) if before[index] and index not in present]
    return [f"No training image is left in: {', '.join(lost)}."] if lost else []


def is_changed(geometry: Geometry) -> bool:
    """Return whether images are resized."""
    return geometry.size != (geometry.width, geometry.height)


def changes_targets(geometry: Geometry, target: Target) -> bool:
    """Return whether targets change with the size of the images."""
    return target.in_image and is_changed(geometry)


def target_of(record: Record, target: Target, geometry: Geometry) -> Any:
    """Return the ``target`` of a record of the parent, after its image is resized as in ``geometry``."""
    # The stored target has the size of the parent's images.
    value = record.target(target.sized(*geometry.size))
    return target.resize(value, geometry) if is_changed(geometry) else value
