"""Pair images with label images: in two folders, in one folder, or with a folder of masks for each class."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.images.lists import ImageList
from digits.data.images.mask_values import THRESHOLD
from digits.data.images.masks import FIRST_SHADE, MaskSurvey, open_mask, pixels_of
from digits.data.sources.declared_splits import split_named
from digits.data.sources.plan import ImageSource, Located, UnusableSource, listed, show
from digits.data.sources.target_images import Matches, divide, match
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import BACKGROUND
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.sources.target_images import FoundTargetImages, pair_lists


@dataclass(frozen=True)
class CombinedMasks(Located):
    """Label images from black and white masks below ``root``: ``files`` are those of an image, with their classes.

    Pixels in the masks of several classes have no class.
    """

    root: Path
    files: dict[str, list[tuple[int, str]]]

    def read(self, name: str) -> bytes:
        """Combine the masks of the image ``name``; raises UnusableImage and OSError."""
        combined = None
        for index, file in self.files[name]:
            is_white = _white(f"{self.root}/{file}")
            if combined is None:
                combined = np.zeros(is_white.shape, np.uint8)
            if is_white.shape != combined.shape:
                raise UnusableImage(f"{show(file)} has another size than {show(self.files[name][0][1])}")
            combined[is_white & (combined > 0)] = IGNORED
            combined[is_white & (combined == 0)] = index
        assert combined is not None
        return images.encode(combined[..., None], "png")


@dataclass(frozen=True)
class ClassFolders(FoundTargetImages):
    """Images with masks in a folder for each class. ``indexes`` are those of the classes by name."""

    masks: CombinedMasks
    indexes: dict[str, int]

    @cached_property
    def target_images(self) -> ImageSource:
        return self.masks


def pair_masks(
    folders: TargetImageFolders, lists: list[ImageList], indexes: dict[str, int] | None = None
) -> FoundTargetImages:
    """Pair images with label images; raises UnusableSource.

    Classes that are folders are added to ``indexes``, which are those of other splits.
    """
    if len(lists) == 1:
        return pair_lists(folders, _divide(lists[0]))
    paired = pair_lists(folders, lists)
    are_moved = all(os.path.dirname(image) != os.path.dirname(mask) for image, mask in paired.matches.names)
    if not are_moved:
        return paired
    classes = _match_class_folders(*(item.files for item in lists))
    if not classes or (paired.matches.names and _are_parts(classes)):
        return paired
    return _combine(folders, lists, classes, {} if indexes is None else indexes)


def describe_overlap(surveys: Sequence[MaskSurvey]) -> str:
    """Return a remark about pixels in several of the combined masks, if there are any.

    Raises UnusableSource if these are most pixels of objects.
    """
    total = sum((survey.histogram() for survey in surveys), np.zeros(256, np.int64))
    objects, several = int(total[1:].sum()), int(total[IGNORED])
    percent = f"{100 * several / max(1, objects):.0f}%"
    if 2 * several > objects:
        raise UnusableSource(
            f"{percent} of the white pixels are white in the masks of several classes.",
            "In semantic segmentation, a pixel has one class: draw masks that do not overlap, or use one label image "
            "per image.",
        )
    return (
        f"{percent} of the white pixels are white in the masks of several classes: they have no class."
        if several
        else ""
    )


def _divide(both: ImageList) -> list[ImageList]:
    halves = divide(both.files)
    if halves is None:
        raise UnusableSource(
            f"{show(str(both.root))} does not contain images with label images.",
            "Enter the folder of label images, or name each as its image with the suffix _mask.",
        )
    names, targets = halves
    return [ImageList(both.root, names, both.links, both.unreadable), ImageList(both.root, targets)]


def _match_class_folders(photos: list[str], masks: list[str]) -> dict[str, Matches]:
    """Return the matches of the images with the masks in each folder; none if most masks in one have no image."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for name in masks:
        folder, slash, rest = name.partition("/")
        if not slash:
            return {}
        of_class[folder].append(rest)
    if not 1 < len(of_class) < MAX_PIXEL_CLASSES:
        return {}
    paired = {folder: match(photos, names) for folder, names in sorted(of_class.items())}
    are_most = all(2 * len(matches.names) >= len(of_class[folder]) for folder, matches in paired.items())
    return paired if are_most else {}


def _are_parts(classes: Mapping[str, Matches]) -> bool:
    """Return whether the folders of masks are splits instead of classes; raises UnusableSource if it is unclear."""
    names = [name for matches in classes.values() for name, _ in matches.names]
    if len(set(names)) < len(names):
        return False
    if not all(map(split_named, classes)):
        raise UnusableSource(
            f"Each image has a mask in one of the folders {listed(classes)}: these may be classes or parts of the set.",
            "If they are classes, add a mask, even a black one, of an image to several of them. If not, put the "
            "images into folders with the same names.",
        )
    return True


def _combine(
    folders: TargetImageFolders,
    lists: list[ImageList],
    classes: Mapping[str, Matches],
    indexes: dict[str, int],
) -> ClassFolders:
    indexes.setdefault(BACKGROUND, 0)
    files: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for folder, of_folder in classes.items():
        name = BACKGROUND if folder.lower() == BACKGROUND else show(folder)
        index = indexes.setdefault(name, len(indexes))
        for photo, mask in of_folder.names:
            files[photo].append((index, f"{folder}/{mask}"))
    matches = Matches(
        [(name, name) for name in lists[0].files if name in files],
        [name for name in lists[0].files if name not in files],
        [f"{folder}/{name}" for folder, of_folder in classes.items() for name in of_folder.without_image],
        [],
        f"There is a folder of masks for each class: {listed(classes)}.",
    )
    masks = CombinedMasks(Path(folders.targets), dict(files))
    return ClassFolders(folders, matches, lists, masks=masks, indexes=indexes)


def _white(path: str) -> NDArray[np.bool_]:
    """Return which pixels of a black and white mask are white, or have an index other than 0."""
    image = open_mask(path)
    pixels = pixels_of(image)
    if pixels.ndim == 3:
        pixels = pixels.max(axis=2)
    has_indexes = image.mode in ("1", "P") or (image.format != "JPEG" and pixels.max() < FIRST_SHADE)
    return pixels > 0 if has_indexes else pixels >= THRESHOLD
