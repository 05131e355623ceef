"""Read a folder of images and one of target images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from digits.data.images import images
from digits.data.images.images import Geometry, UnusableImage, reason_of
from digits.data.records.records import Features
from digits.data.sources.plan import Plan, Progress, SplitPlan, show
from digits.data.sources.target_images import TargetImageSplit
from digits.data.tables.tables import SourceNotes
from digits.data.targets.target_image import TargetImage
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.sources.target_images import plan_splits

TARGET = CreateImageToImage.target_word
# Aspect ratios that differ by less than this count as equal: sides are whole numbers of pixels.
_TOLERANCE = 0.02


@dataclass
class ImagePlan(Plan):
    """A plan whose targets are the names of target images."""

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        name = split.targets[place]
        size = (geometry.width, geometry.height)
        try:
            data = cast(TargetImageSplit, split).target_images.read(name)
            picture = self.open(data, self.target.shape[2], size)
            _check_proportions(picture.size, geometry.size)
        except (UnusableImage, OSError) as error:
            raise UnusableImage(f"{TARGET} {show(name)}: {reason_of(error)}") from error
        resized = _resize(picture, Geometry(picture.size, *size, geometry.mode))
        return {self.target.feature: [images.encode(resized, "png")]}


def read(recipe: CreateImageToImage, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    notes = SourceNotes()
    splits = plan_splits(recipe, progress, notes)
    if not _has_targets(splits["train"]):
        progress.say("Without target images, each image is its own target.")
    target = TargetImage.of(recipe.height, recipe.width, recipe.channels)
    return ImagePlan(target, dict(splits), [], notes.warnings, notes.unusable)


def _has_targets(split: TargetImageSplit) -> bool:
    return split.target_images != split.images or split.files != split.targets


def _check_proportions(target: tuple[int, int], image: tuple[int, int]) -> None:
    """Raise UnusableImage unless both sizes have the same aspect ratio: a target may be larger or smaller."""
    if abs(target[0] * image[1] / (target[1] * image[0]) - 1) > _TOLERANCE:
        sizes = [f"{width}×{height}" for width, height in (target, image)]
        raise UnusableImage(f"its aspect ratio ({sizes[0]}) differs from that of the image ({sizes[1]})")


def _resize(picture: images.Picture, geometry: Geometry) -> images.Pixels:
    """Resize a target like an image, but pad it with black."""
    if geometry.size == (geometry.width, geometry.height):
        return picture.pixels
    scaled = picture.scale(geometry)
    height, width, channels = scaled.shape
    left, top = geometry.offset
    padded = np.zeros((geometry.height, geometry.width, channels), np.uint8)
    padded[top : top + height, left : left + width] = scaled
    return padded
