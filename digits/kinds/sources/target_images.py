"""Datasets whose source is images with a target image each: the plan of the splits."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from digits.data.images.lists import ImageList, list_images
from digits.data.sources.plan import (
    ImageFolder,
    ImageSource,
    Progress,
    Remark,
    UnusableSource,
    choose,
    count_of,
    listed,
    show,
    shuffle,
)
from digits.data.sources.target_images import Matches, TargetImageSplit, match
from digits.data.tables.tables import Faults, SourceNotes, open_lines
from digits.kinds.sources.split_lists import divide
from digits.kinds.sources.target_image_recipe import CreateWithTargetImages, TargetImageFolders
from digits.kinds.sources.target_image_records import plan_records
from digits.kinds.sources.target_image_tables import plan_table


@dataclass(frozen=True)
class FoundTargetImages:
    """The images with targets in the ``folders`` of a split. ``faults`` are annotations that are skipped."""

    folders: TargetImageFolders
    matches: Matches
    lists: list[ImageList]
    faults: list[Faults] = field(default_factory=list, kw_only=True)

    @cached_property
    def images(self) -> ImageSource:
        """The source of the images."""
        return ImageFolder(Path(self.folders.images))

    @cached_property
    def target_images(self) -> ImageSource:
        """The source of the target images, which may be the images themselves."""
        return ImageFolder(Path(self.folders.targets)) if self.folders.has_targets else self.images

    def remarks(self, target: str) -> list[str]:
        """Return warnings about files that are not used; ``target`` is the word for a target image."""
        return [*(remark for item in self.lists for remark in item.remarks()), *self.matches.remarks(target)]

    def describe(self, target: str) -> str:
        """Return the number of images; ``target`` is the word for a target image."""
        count = len(self.matches.names)
        targets = f" with a {target}" if count == 1 else f" with {target}s"
        return count_of(count, "image") + (targets if len(self.lists) > 1 else "")

    def need(self, target: str) -> None:
        """Raise UnusableSource unless an image has a target."""
        images, *targets = self.lists
        for item in self.lists:
            item.need_images()
        if self.matches.unclear:
            raise UnusableSource(
                f"Each image has several {target}s: {listed(self.matches.unclear)}.",
                "Keep one of them. Masks of classes can be in a folder for each class.",
            )
        if not self.matches.names:
            raise UnusableSource(
                f"No {target} has the same name as an image.",
                f"The first image is {show(images.files[0])}, the first {target} {show(targets[0].files[0])}: "
                "their names must be the same except for the ending, and for a prefix or suffix such as _mask that is "
                "the same for all.",
            )


Pair = Callable[[TargetImageFolders, list[ImageList]], FoundTargetImages]


def pair_lists(folders: TargetImageFolders, lists: list[ImageList]) -> FoundTargetImages:
    """Pair the files of a list of images and one of targets; without the latter, images with themselves."""
    images, *targets = lists
    if targets:
        matches = match(images.files, targets[0].files)
    else:
        matches = Matches([(name, name) for name in images.files], [], [], [])
    return FoundTargetImages(folders, matches, lists)


def find_target_images(
    folders: TargetImageFolders, progress: Progress, pair: Pair = pair_lists
) -> FoundTargetImages:
    """List the folders of a split, and ``pair`` their files; raises UnusableSource."""
    if folders.pairs:
        return _listed_pairs(folders, folders.pairs)
    lists = [list_images(path, progress, other) for path, other in folders.each()]
    return pair(folders, lists)


def _listed_pairs(folders: TargetImageFolders, file: str) -> FoundTargetImages:
    """Return the pairs in a ``file``; raises UnusableSource."""
    lines, _ = open_lines(Path(file))
    try:
        _, *names = ((image, target) for image, target in csv.reader(lines, strict=True))
    except (csv.Error, ValueError) as error:
        raise UnusableSource(f"{show(file)} is not a table of pairs: {error}.") from error
    images, targets = (ImageList(Path(path)) for path in (folders.images, folders.targets))
    images.files, targets.files = [image for image, _ in names], [target for _, target in names]
    return FoundTargetImages(folders, Matches(names, [], [], []), [images, targets])


def plan_splits(
    recipe: CreateWithTargetImages,
    progress: Progress,
    notes: SourceNotes,
    find: Callable[[TargetImageFolders, Progress], FoundTargetImages] = find_target_images,
) -> dict[str, TargetImageSplit]:
    """Return the splits of ``recipe``, with the names of the target images as targets.

    ``find`` returns the images and targets of the folders of a split. Skipped rows, records and annotations are added
    to ``notes``. Raises UnusableSource.
    """
    if recipe.records is not None:
        return plan_records(recipe, progress, notes)
    if recipe.table is not None:
        return plan_table(recipe, progress, notes)
    lists = recipe.lists.but(recipe.folders())
    shares = recipe.shares([*recipe.folders(), *lists])
    splits: dict[str, TargetImageSplit] = {}
    for name, folders in recipe.folders().items():
        images = find(folders, progress)
        for faults in images.faults:
            notes.unusable += faults.collect(recipe.max_unusable_percent, name)
            notes.warnings += faults.remarks()
        images.need(recipe.target_word)
        notes.warnings += [
            *map(Remark, filter(None, [images.matches.note])),
            *images.remarks(recipe.target_word),
        ]
        if name == "train":
            progress.say(f"{progress.at_least}{images.describe(recipe.target_word)}.")
        target_of = dict(images.matches.names)
        files = choose(target_of, recipe.seed, "pairs", name)
        targets = [target_of[file] for file in files]
        splits[name] = TargetImageSplit(images.images, files, targets, target_images=images.target_images)
    if lists and recipe.train is not None:
        whole, root = splits["train"], Path(os.path.realpath(recipe.train.images))
        places = divide(lists, root, whole.files, notes.warnings)
        splits |= {name: whole.take(chosen) for name, chosen in places.items()}
    splits = shares.divide(splits, [range(len(splits["train"]))])
    for name, split in splits.items():
        shuffle(split, recipe.seed, name)
    return splits
