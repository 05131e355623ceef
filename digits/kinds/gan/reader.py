"""Plan images for GANs: those of a folder, or those of an attributes file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from digits.data.images import images
from digits.data.images.lists import list_images
from digits.data.sources.plan import ImageFolder, Plan, Progress, SplitPlan, show, shuffle
from digits.data.sources.shares import NO_LABEL, group_flags
from digits.data.tables.tables import Faults
from digits.data.targets.label_set import LabelSet
from digits.data.targets.target import Target
from digits.kinds.gan.attributes import read_attributes
from digits.kinds.gan.recipe import CreateGan

# Records without attributes have a single 0 as their target.
NO_TARGET = Target(feature="target/numbers", dtype="float32")


@dataclass
class GanPlan(Plan):
    """A plan whose images are the central ``center_crop`` × ``center_crop`` pixels of the files; 0 for whole images."""

    channels: int = 3
    center_crop: int = 0

    def read(self, split: SplitPlan, place: int) -> list[bytes]:
        (data,) = super().read(split, place)
        return [crop_center(self.open(data, self.channels), self.center_crop)] if self.center_crop else [data]


def read(recipe: CreateGan, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    root = Path(recipe.folder)
    if recipe.file_list:
        progress.reading(f"Reading {show(recipe.file_list)}")
        faults = Faults(Path(recipe.file_list), recipe.max_unusable_percent, "train")
        names, files, values = read_attributes(Path(recipe.file_list), root, faults)
        groups, places = group_flags(names, {"train": values}, NO_LABEL)
        split = SplitPlan(ImageFolder(root), files, list(values), places["train"], recipe.file_list)
        target: Target = LabelSet.of(names).with_statistics(values)
        warnings, unusable = faults.remarks(), faults.unusable
    else:
        images = list_images(root, progress)
        images.need_images()
        split = SplitPlan(ImageFolder(root), images.files, [0.0] * len(images.files))
        target, groups, warnings, unusable = NO_TARGET, [], images.remarks(), []
    shuffle(split, recipe.seed, "train")
    return GanPlan(
        target,
        {"train": split},
        groups,
        warnings,
        unusable,
        channels=recipe.channels,
        center_crop=recipe.center_crop,
    )


def crop_center(picture: images.Picture, side: int) -> bytes:
    """Return the central ``side`` × ``side`` pixels of an image as PNG; a shorter side is not cropped.

    Raises UnusableImage if it was decoded at a reduced size.
    """
    if picture.is_reduced:
        raise images.UnusableImage("{}×{} pixels are too many to crop".format(*picture.size))
    pixels = picture.pixels
    height, width = (min(side, length) for length in pixels.shape[:2])
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return images.encode(pixels[top : top + height, left : left + width], "png")
