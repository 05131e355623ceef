"""Images that a version adds to those of its parent."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS, Split
from digits.data.images.images import UnusableImage
from digits.data.images.lists import without_images
from digits.data.manifest import Manifest
from digits.data.records.maker import RecordMaker, UnusablePart
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    WiderValues,
    count_of,
    listed,
    show,
)
from digits.data.sources.shares import Shares
from digits.data.targets.target import Target
from digits.kinds.classification.reader import label_of, need_classes, remarks, scan

Item = TypeVar("Item")

PROGRESS_EVERY_IMAGES = 500
MAX_ENTRIES_IN_FORM = 20_000


class Additions(Struct, kw_only=True, frozen=True):
    """The images in ``folder``: all of the class or label ``label``, or that of the folder in it that contains them.

    They go to ``split``; without one, those of each class are divided as its images in the parent are.
    """

    folder: str
    label: str = ""
    split: Split | None = None


class NewImages(NamedTuple):
    """The paths of images by their label, which is empty for images without one, and the classes that are new."""

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
    paths = {label: [f"{root}/{file}" for file in some] for label, some in files.items()}
    return NewImages(paths, new, remarks(found))


def value_of(label: str, target: Target) -> Any:
    """Return the target of an image with a label."""
    names = target.names
    return target.edit(lambda: np.zeros(len(names)), {names.index(label): 1.0} if label else {})


def without_known(
    new: NewImages, target: Target, manifest: Manifest, stored: Iterable[bytes], seed: int, progress: Progress
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the files of ``new``, without those whose record would equal one of ``stored``, and these.

    Records are made as those of the parent, whose recipe had this ``seed``.
    """
    inherited = ("kind", "width", "height", "channels", "resize_mode", "encoding")
    recipe = CreateDataset(**{name: getattr(manifest, name) for name in inherited}, seed=seed)
    pairs = [(file, label) for label, files in new.files.items() for file in files]
    values = [value_of(label, target) for _, label in pairs]
    split = SplitPlan(ImageFolder(Path("/")), [file for file, _ in pairs], values)
    maker = RecordMaker(recipe, Plan(target, {"train": split}, bits=manifest.bits))
    known = {hashlib.sha256(data).digest() for data in stored}
    kept: dict[str, list[str]] = {}
    left_out: list[str] = []
    for place, (file, label) in enumerate(pairs):
        if place % PROGRESS_EVERY_IMAGES == 0:
            progress.reading(f"Comparing the new images: {place:,} of {len(pairs):,}")
        # An image that cannot be used is skipped when its record is made.
        with suppress(UnusableImage, UnusablePart, WiderValues, OSError):
            digest = hashlib.sha256(maker.make(split, place)[0].data).digest()
            if digest in known:
                left_out.append(file)
                continue
            known.add(digest)
        kept.setdefault(label, []).append(file)
    return kept, left_out


def divide(files: Sequence[str], before: Mapping[str, int], all_before: Mapping[str, int]) -> Iterator[Split]:
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
