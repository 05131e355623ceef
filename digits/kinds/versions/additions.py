"""Images that a version adds to those of its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from digits.core.recipe import CreateDataset
from digits.core.schema import JsonObject
from digits.core.splits import SPLITS, Split
from digits.data import manifest as manifests
from digits.data.images.lists import without_images
from digits.data.manifest import Manifest
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    count_of,
    listed,
    show,
)
from digits.data.sources.shares import Shares
from digits.data.targets.palette import distinct_colors
from digits.data.targets.target import Target
from digits.kinds.classification.reader import label_of, need_classes, remarks, scan

Item = TypeVar("Item")

MAX_ENTRIES_IN_FORM = 20_000


class Additions(Struct, kw_only=True, frozen=True):
    """The images of ``source``, the recipe of a dataset of the same kind, or those in ``folder``.

    The latter are all of the class or label ``label``, or that of the folder in it that contains them. Classes that the
    parent lacks become the last ones of the version if ``new_classes`` are allowed. All images go to
    ``split``; without one, to those that the source declares, or else those of each class are divided as its images in
    the parent are. ``records`` is the folder of their records, which the task fills in.
    """

    folder: str = ""
    label: str = ""
    source: JsonObject | None = None
    new_classes: bool = False
    split: Split | None = None
    records: str = ""


class CreateAddition(CreateDataset, kw_only=True):
    """Make records of the images in a folder that are ``added`` to the dataset in the folder ``parent``."""

    parent: str
    added: Additions


class NewImages(NamedTuple):
    """The names of images by their label, which is empty for images without one, and the classes that are new."""

    files: dict[str, list[str]]
    new_classes: list[str]
    warnings: list[str]

    def describe(self) -> str:
        """Return what is added in words."""
        labels = [label for label in self.files if label]
        words = f"{count_of(sum(map(len, self.files.values())), 'image')} added"
        if len(labels) == 1:
            words += f" to {labels[0]}"
        elif labels:
            words += f" to {len(labels):,} classes"
        return words + (f", new: {listed(self.new_classes)}" if self.new_classes else "")

    def extend(self, target: Target) -> Target:
        """Return ``target`` with the new classes."""
        return target.renamed([*target.names, *self.new_classes]) if self.new_classes else target


class Beginning(Progress):
    """Reads the first entries of folders, for a form."""

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        items = iter(items)
        yield from islice(items, MAX_ENTRIES_IN_FORM)
        self.is_partial = next(items, None) is not None


def takes_images(manifest: Manifest) -> bool:
    """Return whether images can be added to a dataset: those with nothing but a class or labels."""
    target = manifest.target
    return (
        bool({"relabel", "add_labels"}.intersection(target.edited_by))
        and manifest.groups[: len(target.labels)] == target.labels
        and manifest.dtype == "uint8"
        and manifest.channels in (1, 3)
        and manifest.padding is None
    )


def find(additions: Additions, target: Target, progress: Progress) -> NewImages:
    """List the images to add to a dataset with ``target``; raises UnusableSource."""
    root = Path(additions.folder)
    found = scan(root, progress)
    loose, files = found.rest.files, {item.label: item.files for item in found.classes if item.files}
    own = label_of(root.name)
    # A folder that is uploaded alone may be that of a class.
    label = additions.label or (own if not files and own in target.names else "")
    if label:
        files = {label: [*loose, *(file for some in files.values() for file in some)]}
    elif not target.labels and loose:
        files[""] = loose
    elif loose and not files:
        raise UnusableSource(
            f"{count_of(len(loose), 'image')} in {show(str(root))}, but no folders of classes.",
            "Choose the class of the images.",
        )
    if label or not target.labels:
        found.rest.files = []  # nothing is ignored
    if not any(files.values()):
        raise without_images(root, found.unreadable, found.unread, found.links)
    need_classes(found, list(files))
    new = [label for label in files if label and label not in target.names]
    if new and not target.labels:
        raise UnusableSource(
            f"Folders that are not named like a label of the dataset: {listed(new)}.",
            f"The labels are {listed(target.names)}.",
        )
    if new and not additions.new_classes:
        raise _without_consent(new, target)
    return NewImages(files, new, remarks(found))


def value_of(label: str, target: Target) -> Any:
    """Return the target of an image with a label."""
    names = target.names
    return target.edit(lambda: np.zeros(len(names)), {names.index(label): 1.0} if label else {})


def read(recipe: CreateAddition, progress: Progress) -> Plan:
    """Plan the records of the images to add; raises UnusableSource and UnreadableFile."""
    parent = manifests.load(Path(recipe.parent))
    if not takes_images(parent):
        raise UnusableSource("Images can be added only to datasets whose images have classes or labels.")
    before = parent.target
    new = find(recipe.added, before, progress)
    target = new.extend(before)
    files = [(file, value_of(label, target)) for label, some in new.files.items() for file in some]
    names, values = ([*items] for items in zip(*files, strict=True))
    split = SplitPlan(ImageFolder(Path(recipe.added.folder)), names, values, values if target.labels else [])
    return Plan(target, {"train": split}, target.labels, new.warnings)


def unite(target: Target, found: Target, *, takes_new: bool = False) -> Target:
    """Return ``target`` for its records and those with the target ``found``, whose new classes are its last ones.

    Raises UnusableSource if they have other numbers, or new classes unless it ``takes_new`` ones: this is the remedy.
    """
    new = [name for name in found.names if name not in target.names]
    shape = [*map(max, target.shape, found.shape)]
    if target.noun != "class" and sorted(found.names) != sorted(target.names):
        noun = f"{target.noun}s"
        raise UnusableSource(
            f"The new images have the {noun} {listed(found.names)}, those of the dataset {listed(target.names)}.",
            f"Use a source with the {noun} {listed(target.names)}, or choose its columns.",
        )
    if not new:
        return replace(target, shape=shape)
    if not takes_new:
        raise _without_consent(new, target)
    names = [*target.names, *new]
    colors = [*target.colors, *distinct_colors(names)[len(target.names) :]] if target.colors else []
    return replace(target.renamed(names), shape=shape, colors=colors)


def _without_consent(new: Sequence[str], target: Target) -> UnusableSource:
    return UnusableSource(
        f"The dataset does not have {count_of(len(new), 'class')} of the new images: {listed(new)}.",
        f"Name them like its classes ({listed(target.names)}), or add new classes (new_classes=y).",
        remedy={"new_classes": "y"},
    )


def divide(files: Sequence[Any], before: Mapping[str, int], all_before: Mapping[str, int]) -> Iterator[Split]:
    """Yield the split of each of the shuffled ``files`` of a class, whose splits contain ``before`` images.

    The class keeps its proportions; a class without training images gets those of ``all_before``, the whole dataset.
    """
    counts = Counter(before if before.get("train") else {})
    usual = counts or Counter(all_before)
    total = max(1, usual.total())
    shares = Shares(100 * usual["val"] / total, 100 * usual["test"] / total)
    wanted = shares.slices(counts.total() + len(files))
    left = len(files)
    for split in SPLITS[1:]:
        part = wanted.get(split, slice(0, 0))
        count = min(left, max(0, part.stop - part.start - counts[split]))
        left -= count
        yield from repeat(split, count)
    yield from repeat(SPLITS[0], left)
