"""Read images with the boxes of their objects, from annotations in one of several formats."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from digits.core.splits import SPLIT_TITLES
from digits.data.images import images
from digits.data.images.images import Size
from digits.data.images.object_sizes import ObjectSizes
from digits.data.sources.plan import (
    ImageFolder,
    ImageSource,
    Plan,
    Progress,
    Remark,
    SplitPlan,
    UnusableSource,
    count_of,
    first_lines,
    listed,
    show,
    shuffle,
)
from digits.data.sources.shares import group_by_rarest, group_flags, permute
from digits.data.tables.tables import SourceNotes
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import MAX_OBJECTS, BoxArray, Boxes
from digits.kinds.detection.annotations import DONT_CARE, AnnotatedImage, BoxChecks, none_usable
from digits.kinds.detection.formats import box_table
from digits.kinds.detection.formats.formats import find_format, open_annotations
from digits.kinds.detection.placement import measure_images, place_boxes, trust_boxes
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.detection.records import BoxMapping
from digits.kinds.sources.records import read_records
from digits.kinds.sources.split_lists import divide
from digits.kinds.sources.tables import take_declared

MAX_CLASSES = 1000
NO_OBJECTS = "no objects"
_IMAGES_PER_REPORT = 1000


@dataclass
class _Objects:
    """The images of a source with their checked boxes, and the classes that it declares.

    ``names`` are those of the objects of each image, without regions to ignore. ``sizes`` are the width and height of
    each image, None if it cannot be read, and ``splits`` those that the annotations declare, which ``split_note`` says.
    With ``keeps_order``, the images are read fastest in their order. ``source`` is what pages show.
    """

    images: ImageSource
    source: str
    files: list[str] = field(default_factory=list)
    boxes: list[BoxArray] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    sizes: list[Size | None] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    split_note: str = ""
    checks: BoxChecks = field(default_factory=BoxChecks)
    keeps_order: bool = False

    def __len__(self) -> int:
        return len(self.files)

    def describe(self) -> str:
        """Return the numbers of objects and of their classes."""
        counts = Counter(name for names in self.names for name in names)
        return f"{count_of(counts.total(), 'object')} of {count_of(len(counts), 'class')}"

    def take(self, places: Sequence[int]) -> Self:
        """Return the images at ``places``, in their order."""
        lists: dict[str, Any] = {
            name: [getattr(self, name)[place] for place in places]
            for name in ("files", "boxes", "names", "sizes", "splits")
        }
        return replace(self, **lists)


@dataclass(frozen=True)
class ClassChoice:
    """The classes to use, by their names in any case; all if there are none."""

    chosen: list[str]

    def find(self, name: str) -> str | None:
        """Return the name of the class ``name``, or None if it is not used."""
        if not self.chosen:
            return name
        matching = (item for item in self.chosen if item.lower() == name.lower())
        return next(matching, None)


def read(recipe: CreateDetection, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    notes = SourceNotes()
    warnings = notes.warnings
    objects: dict[str, _Objects] = {}
    if recipe.records is not None:
        objects = _read_records(recipe, progress, notes)
    for name, (folder, labels) in sources(recipe).items():
        progress.reading(f"Reading {show(labels)}")
        source = SplitSource(name, Path(folder), Path(labels))
        objects[name] = read_source(recipe, source, progress, notes)
    _share_images(objects, warnings)
    if lists := recipe.lists.but(objects):
        whole = objects["train"]
        places = divide(lists, Path(os.path.realpath(recipe.images)), whole.files, warnings)
        objects |= {split: whole.take(chosen) for split, chosen in places.items()}
    elif len(objects) == 1 and "train" in objects["train"].splits:
        whole = objects["train"]
        warnings.append(Remark(whole.split_note))
        objects = take_declared(objects, whole.splits)
    if recipe.padding:
        _need_padding(objects, recipe.padding)
    train = objects["train"]
    order = permute(len(train), recipe.seed)
    parts = recipe.shares(objects).divide(objects, [order], keeps_order=train.keeps_order)
    if "val" in parts:
        _ignore_small(parts["val"], min_box_size(recipe), warnings)
    classes = _classes(recipe, parts)
    if not classes:
        raise none_usable(sum((source.checks.ignored for source in objects.values()), Counter()))
    splits, groups = _plan_splits(recipe, parts, classes)
    warnings += _class_remarks(classes, parts)
    counts = {
        file: len(boxes)
        for part in parts.values()
        for file, boxes in zip(part.files, part.boxes, strict=True)
    }
    most = max(counts.values(), default=0)
    if most > MAX_OBJECTS:
        crowded = [file for file, count in counts.items() if count > MAX_OBJECTS]
        raise UnusableSource(
            f"An image has {most:,} objects, and more than {MAX_OBJECTS:,} per image are not supported: "
            f"{listed(crowded)}.",
            "Leave these images out, or label groups of objects as one.",
        )
    target = Boxes.of(classes, most)
    plan = Plan(target, splits, groups, warnings, notes.unusable, padding=recipe.padding)
    plan.objects = _object_sizes(parts)
    declared = (name for part in parts.values() for name in part.declared)
    plan.declared = [*dict.fromkeys(declared)] if not recipe.classes else []
    return plan


def _object_sizes(parts: dict[str, _Objects]) -> ObjectSizes:
    return ObjectSizes.of(
        [
            (size, boxes[boxes[:, 4] >= 0, 2:4] - boxes[boxes[:, 4] >= 0, :2])
            for part in parts.values()
            for size, boxes in zip(part.sizes, part.boxes, strict=True)
            if size
        ]
    )


def sources(recipe: CreateDetection) -> dict[str, tuple[str, str]]:
    """Return the folder of images and the annotations of each split that has its own, train first."""
    sources_of = {
        "train": (recipe.images, recipe.labels),
        "val": (recipe.val_images or recipe.images, recipe.val_labels),
        "test": (recipe.test_images or recipe.images, recipe.test_labels),
    }
    return {name: (folder, labels) for name, (folder, labels) in sources_of.items() if labels}


def min_box_size(recipe: CreateDetection) -> int:
    """Return the shortest side of validation objects in pixels; raises UnusableSource."""
    if recipe.val_min_box_size is not None:
        return recipe.val_min_box_size
    return 0 if recipe.records else find_format(Path(recipe.labels), recipe.format).min_val_box_size


class SplitSource(NamedTuple):
    """The folder of images and the annotations of a split."""

    split: str
    folder: Path
    labels: Path


def read_source(
    recipe: CreateDetection, source: SplitSource, progress: Progress, notes: SourceNotes
) -> _Objects:
    """Return the images of a split, and add the skipped ones to ``notes``; raises UnusableSource."""
    split, folder, labels = source
    chosen = find_format(labels, recipe.format)
    if split == "train" and chosen is box_table.FORMAT:
        box_table.show_rows(labels, recipe.table, progress)
    annotations = open_annotations(
        labels, folder, recipe.format, recipe.classes, recipe.table, recipe.class_names
    )
    objects = _Objects(
        annotations.stored or ImageFolder(folder),
        str(labels),
        declared=annotations.classes,
        keeps_order=annotations.stored is not None,
        split_note=annotations.split_note,
    )
    gathering = _Gathering(recipe, objects)
    readable = False
    measured = []
    for item in progress.take(measure_images(annotations, folder)):
        measured.append(item)
        readable |= item.size is not None
        if len(measured) % _IMAGES_PER_REPORT == 0:
            progress.reading(f"Reading {show(labels.name)}: {len(measured):,} images")
    for image, size in (trust_boxes if recipe.frozen else place_boxes)(annotations, measured):
        gathering.add(image, size)
    if missing := [file for file, size in zip(objects.files, objects.sizes, strict=True) if size is None]:
        notes.warnings.append(
            f"{count_of(len(missing), 'image')} not found or unreadable: {first_lines(missing)}."
        )
    for faults in annotations.faults:
        notes.unusable += faults.collect(recipe.max_unusable_percent, split)
        notes.warnings += faults.remarks()
    if not objects.files:
        raise UnusableSource(f"{show(str(labels))} contains no annotated images.")
    if not readable:
        raise UnusableSource(
            f"None of the images listed in {show(labels.name)} can be read from {show(str(folder))}. The first one is "
            f"{show(objects.files[0])}.",
            "Check the image folder.",
        )
    if split == "train":
        images_found = count_of(sum(size is not None for size in objects.sizes), "image")
        found = f"{progress.at_least.lower()}{images_found} with {objects.describe()}"
        progress.say(f"{chosen.title} annotations: {found}.")
    remarks = [*annotations.remarks, *annotations.box_remarks, *gathering.remarks()]
    found_here = [f"{show(labels.name)}: {remark}" for remark in remarks]
    notes.warnings += [remark for remark in found_here if remark not in notes.warnings]
    return objects


def _read_records(recipe: CreateDetection, progress: Progress, notes: SourceNotes) -> dict[str, _Objects]:
    """Return the images of each split of TFRecord files; those skipped are added to ``notes``.

    Raises UnusableSource.
    """
    mapping, splits = read_records(recipe, BoxMapping, progress, notes)
    of_split = {}
    for split, records in splits.items():
        objects = _Objects(records.images, records.source, declared=mapping.classes, keeps_order=True)
        gathering = _Gathering(recipe, objects)
        for name, (size, boxes) in zip(records.files, records.targets, strict=True):
            named = [replace(box, where=f"{show(name)}, {box.where}") for box in boxes]
            gathering.add(AnnotatedImage(name, named), size)
        notes.warnings += [f"{split}: {remark}" for remark in gathering.remarks()]
        of_split[split] = objects
    progress.say(f"{of_split['train'].describe()}.")
    progress.say(f"Boxes: {mapping.boxes.describe()}.")
    return of_split


class _Gathering:
    """Adds the usable objects of the chosen classes to ``objects``; an image that is added again gets more of them."""

    def __init__(self, recipe: CreateDetection, objects: _Objects) -> None:
        self.found = objects
        self._checks = objects.checks
        self._choice = ClassChoice([name for name in recipe.classes if name.lower() != DONT_CARE])
        self._unchosen: Counter[str] = Counter()
        self._places: dict[str, int] = {}

    def add(self, image: AnnotatedImage, size: tuple[int, int] | None) -> None:
        """Add ``image`` with its usable boxes; its ``size`` is None if it cannot be read."""
        rows, names = [], []
        for box in self._checks.usable(image, size) if size else []:
            name = self._choice.find(box.name)
            if name is None and not (box.is_ignored and box.name == DONT_CARE):
                self._unchosen[box.name] += 1
                continue
            edges = box.bounds
            flag = IGNORED_BOX if box.is_ignored else 0
            rows.append((edges.left, edges.top, edges.right, edges.bottom, flag))
            if name is not None and not box.is_ignored:
                names.append(name)
        boxes = np.array(rows, np.float32).reshape(-1, 5)
        place = self._places.setdefault(image.file, len(self.found.files))
        if place < len(self.found.files):
            self._merge(place, boxes, names)
            return
        self.found.files.append(image.file)
        self.found.sizes.append(size)
        self.found.splits.append(image.split)
        self.found.boxes.append(boxes)
        self.found.names.append(names)

    def _merge(self, place: int, boxes: BoxArray, names: list[str]) -> None:
        """Add the objects of another part of the annotations to an image, unless it has equal ones."""
        found = self.found
        known = set(_named(found.boxes[place], found.names[place]))
        is_new = [item not in known for item in _named(boxes, names)]
        are_objects = boxes[:, 4] >= 0
        found.boxes[place] = np.concatenate([found.boxes[place], boxes[is_new]])
        chosen = np.array(is_new, bool)[are_objects]
        found.names[place] += [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]

    def remarks(self) -> list[str]:
        """Return warnings about the objects that were not added."""
        remarks = self._checks.remarks()
        if self._unchosen:
            count = count_of(self._unchosen.total(), "object")
            remarks.append(f"{count} of other classes: {listed(sorted(self._unchosen))}.")
        return remarks


def _named(boxes: BoxArray, names: list[str]) -> list[tuple[float | str, ...]]:
    """Return the edges of objects and the names of their classes, which are empty for ignored ones."""
    left = iter(names)
    return [(*row[:4], next(left) if row[4] >= 0 else "") for row in boxes.tolist()]


def _share_images(objects: dict[str, _Objects], warnings: list[str]) -> None:
    """Take images without objects out of splits, if another split has objects of the same images.

    Raises UnusableSource if an image has other objects in another split.
    """
    labeled: dict[str, tuple[_Objects, list[tuple[float | str, ...]]]] = {}
    for part in objects.values():
        for place, file in enumerate(part.files):
            if isinstance(part.images, ImageFolder) and len(part.boxes[place]):
                path = part.images.describe() + "/" + file
                found = sorted(_named(part.boxes[place], part.names[place]))
                other, known = labeled.setdefault(path, (part, found))
                if known != found:
                    raise UnusableSource(
                        f"{show(file)} has other objects in {show(Path(other.source).name)} than in "
                        f"{show(Path(part.source).name)}, the annotations of another split.",
                        "Keep each image in the annotations of one split.",
                    )
    for split, part in objects.items():
        kept = [
            place
            for place, file in enumerate(part.files)
            if not isinstance(part.images, ImageFolder)
            or len(part.boxes[place])
            or part.images.describe() + "/" + file not in labeled
        ]
        if count := len(part) - len(kept):
            what = count_of(count, "image")
            warnings.append(f"{SPLIT_TITLES[split]}: {what} with objects in another split only: not used.")
            objects[split] = part.take(kept)


def _need_padding(objects: dict[str, _Objects], padding: Size) -> None:
    """Raise UnusableSource if an image is larger than the ``padding``, in width or height."""
    larger = [
        (file, size)
        for part in objects.values()
        for file, size in zip(part.files, part.sizes, strict=True)
        if size and images.padded_size(size, padding) != padding
    ]
    if larger:
        width, height = (max(size[side] for _, size in larger) for side in range(2))
        verb = "is" if len(larger) == 1 else "are"
        named = listed(f"{file} ({size[0]}×{size[1]})" for file, size in larger)
        raise UnusableSource(
            f"{count_of(len(larger), 'image')} {verb} larger than the padding of {padding[0]}×{padding[1]} pixels: "
            f"{named}.",
            f"Pad to at least {max(width, padding[0])}×{max(height, padding[1])} pixels, or do not pad.",
        )


def _ignore_small(part: _Objects, side: int, warnings: list[str]) -> None:
    """Ignore objects with a side shorter than ``side`` pixels."""
    ignored = 0
    for index, boxes in enumerate(part.boxes):
        is_small = np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) < side
        is_object = boxes[:, 4] >= 0
        names = zip(part.names[index], is_small[is_object], strict=True)
        part.names[index] = [name for name, small in names if not small]
        ignored += int((is_small & is_object).sum())
        boxes[is_small & is_object, 4] = IGNORED_BOX
    if ignored:
        warnings.append(f"{count_of(ignored, 'validation object')} smaller than {side} pixels: ignored.")


def _classes(recipe: CreateDetection, parts: dict[str, _Objects]) -> list[str]:
    """Return the classes that have objects, in the order of the recipe, else of the source, then by name."""
    used = {name for part in parts.values() for names in part.names for name in names}
    if len(used) > MAX_CLASSES:
        raise UnusableSource(f"{len(used):,} classes are too many.", f"Use at most {MAX_CLASSES:,}.")
    declared = [name for part in parts.values() for name in part.declared]
    ordered = dict.fromkeys([*recipe.classes, *declared, *sorted(used)])
    return [name for name in ordered if name in used]


def _class_remarks(classes: list[str], parts: dict[str, _Objects]) -> list[str]:
    trained = {name for names in parts["train"].names for name in names}
    unused = [name for name in classes if name not in trained]
    what = "the class" if len(unused) == 1 else "the classes"
    return [f"No training image has objects of {what} {listed(unused)}."] if unused else []


def _plan_splits(
    recipe: CreateDetection, parts: dict[str, _Objects], classes: list[str]
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the splits, and the groups of images: the rarest class of each."""
    places = {name: index for index, name in enumerate(classes)}
    objects = {
        split: [[places[name] for name in names] for names in part.names] for split, part in parts.items()
    }
    groups, of_images = group_by_rarest(classes, objects, NO_OBJECTS)
    splits = {}
    for name, part in parts.items():
        for boxes, numbers in zip(part.boxes, objects[name], strict=True):
            boxes[boxes[:, 4] >= 0, 4] = numbers
        split = SplitPlan(part.images, part.files, list(part.boxes), of_images[name], part.source)
        if not part.keeps_order:
            shuffle(split, recipe.seed, name)
        splits[name] = split
    return splits, groups


# Versions group records with new labels.
group_records = partial(group_flags, none=NO_OBJECTS)
