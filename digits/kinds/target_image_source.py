"""Datasets whose source is images with a target image each: the recipe, and the plan of the splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from digits.core.schema import Percent
from digits.data.databases import is_database, open_arrays
from digits.data.image_lists import ImageList, list_images
from digits.data.shares import CreateWithShares
from digits.data.sources import (
    ImageFolder,
    ImageSource,
    Progress,
    Unusable,
    UnusableSource,
    choose,
    show,
    shuffle,
)
from digits.data.tables import Faults
from digits.data.target_images import Matches, TargetImageSplit, match
from digits.kinds.target_image_records import TargetImageRecords, plan_records
from digits.kinds.target_image_tables import TargetImageTable, plan_table


class TargetImageFolders(Struct, kw_only=True, frozen=True):
    """The folders of the ``images`` and of the ``targets`` with the same names.

    Without the latter, or if both are the same, images are their own targets. Either can also be an LMDB or HDF5
    database, whose keys or numbers of records are the names. For some kinds, ``targets`` can also be a file.
    """

    images: str
    targets: str = ""

    @property
    def has_targets(self) -> bool:
        """Whether the targets are other images."""
        return self.targets not in ("", self.images)

    def each(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the folder of the images, then that of the targets if there is one, each with the other one."""
        images, targets = Path(self.images), Path(self.targets) if self.has_targets else None
        yield images, targets
        if targets:
            yield targets, images


class CreateWithTargetImages(CreateWithShares, kw_only=True):
    """Read images and target images from the folders ``train``, from ``records``, or from a ``table``.

    ``val`` and ``test`` are separate folders. Records and rows of a class that ``needs_targets`` must have target
    images.
    """

    needs_targets: ClassVar[bool] = True

    train: TargetImageFolders | None = None
    val: TargetImageFolders | None = None
    test: TargetImageFolders | None = None
    pct_val: Percent = 10.0
    records: TargetImageRecords | None = None
    table: TargetImageTable | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        if [self.train, self.records, self.table].count(None) != 2:
            raise ValueError("a dataset with target images needs exactly one of train, records and table")

    def folders(self) -> Iterator[tuple[str, TargetImageFolders]]:
        """Yield the splits that have folders, train first, and their folders."""
        for name, folders in (("train", self.train), ("val", self.val), ("test", self.test)):
            if folders is not None:
                yield name, folders


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
        return _open_source(Path(self.folders.images))

    @cached_property
    def target_images(self) -> ImageSource:
        """The source of the target images, which may be the images themselves."""
        return _open_source(Path(self.folders.targets)) if self.folders.has_targets else self.images

    def remarks(self, target: str) -> list[str]:
        """Return warnings; ``target`` is the word for a target image."""
        return [*(remark for item in self.lists for remark in item.remarks()), *self.matches.remarks(target)]

    def need(self, target: str) -> None:
        """Raise UnusableSource unless an image has a target."""
        images, *targets = self.lists
        for item in self.lists:
            item.need_images()
        if not self.matches.names:
            raise UnusableSource(
                f"No {target} has the same name as an image.",
                f"The first image is {show(images.files[0])}, the first {target} {show(targets[0].files[0])}: "
                "their names must be the same except for the ending.",
            )


def list_database(path: Path) -> ImageList:
    """Return the names of the images of a database; raises UnusableSource."""
    database = open_arrays(path)
    try:
        return ImageList(path, database.names())
    finally:
        database.close()


def _open_source(path: Path) -> ImageSource:
    return open_arrays(path) if is_database(path) else ImageFolder(path)


def find_target_images(folders: TargetImageFolders, progress: Progress) -> FoundTargetImages:
    """List the folders of a split, and pair their files; raises UnusableSource."""
    lists = []
    for path, other in folders.each():
        name = show(str(path))
        progress.reading(f"Reading {name}")
        report = _reporter(progress, name)
        lists.append(list_database(path) if is_database(path) else list_images(path, report, other))
    return FoundTargetImages(folders, match_lists(lists), lists)


def plan_splits(
    recipe: CreateWithTargetImages,
    progress: Progress,
    target: str,
    unusable: list[Unusable],
    find: Callable[[TargetImageFolders, Progress], FoundTargetImages] = find_target_images,
) -> tuple[dict[str, TargetImageSplit], list[str]]:
    """Return the splits of ``recipe``, with the names of the target images as targets, and warnings.

    ``target`` is the word for a target image, and ``find`` returns the images and targets of the folders of a split.
    Skipped rows, records and annotations are added to ``unusable``. Raises UnusableSource.
    """
    checks: dict[str, Any] = {"word": target, "is_required": recipe.needs_targets, "unusable": unusable}
    if recipe.records is not None:
        return plan_records(recipe, recipe.records, progress, **checks), []
    if recipe.table is not None:
        return plan_table(recipe, recipe.table, progress, **checks), []
    shares = recipe.shares(dict(recipe.folders()))
    splits: dict[str, TargetImageSplit] = {}
    warnings: list[str] = []
    for name, folders in recipe.folders():
        found = find(folders, progress)
        for faults in found.faults:
            unusable += faults.collect(recipe.max_unusable_percent, name)
        found.need(target)
        warnings += found.remarks(target)
        target_of = dict(found.matches.names)
        files = choose(target_of, recipe.seed, "pairs", name)
        targets = [target_of[file] for file in files]
        splits[name] = TargetImageSplit(found.images, files, targets, target_images=found.target_images)
    splits = shares.divide(splits, [range(len(splits["train"]))])
    for name, split in splits.items():
        shuffle(split, recipe.seed, name)
    return splits, warnings


def match_lists(lists: list[ImageList]) -> Matches:
    """Pair the files of a list of images and one of targets; without the latter, images with themselves."""
    images, *targets = lists
    if targets:
        return match(images.files, targets[0].files)
    return Matches([(name, name) for name in images.files], [], [], [])


def _reporter(progress: Progress, name: str) -> Callable[[int], None]:
    return lambda files: progress.reading(f"Reading {name}: {files:,} images")
