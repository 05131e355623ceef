"""Preview augmentation on a few dataset records, prepared with the training code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from msgspec import structs
from numpy.typing import NDArray

from digits.core import augmentation_preview
from digits.core import recipe as recipes
from digits.core.augmentation_preview import AugmentationPreview, Augmented, Box, Picture
from digits.core.events import EventLog
from digits.data import images
from digits.data.records import SplitReader
from digits.data.targets.boxes import Boxes
from digits.data.targets.mask import Mask, draw_mask
from digits.data.targets.target import Size, Target
from digits.data.targets.target_image import TargetImage
from digits.worker.failure import UserFault
from digits.worker.input import display, feeds
from digits.worker.input.damage import reporting_damage
from digits.worker.tasks import background

# Pixels of the longer side: larger pictures are scaled down, and only those of photos are compressed.
LARGEST_SIDE = 192
LARGEST_LOSSLESS_SIDE = 64


def run(recipe: recipes.PreviewAugmentation, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Augment records of the dataset of ``recipe``, and save the pictures in the task's parent folder.

    Raises UserFault if the dataset cannot be read, or if its images cannot be augmented with these settings.
    """
    background.hide_gpus()  # creating a GPU context takes longer than the augmentation
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    prepare = feeds.preparation(manifest, dataset, recipe.mean, recipe.crop_size, recipe.augment)
    with reporting_damage(dataset), SplitReader(dataset, manifest.splits["train"]) as reader:
        if not len(reader):
            raise UserFault("The dataset has no training records.")
        numbers = np.linspace(0, len(reader) - 1, min(recipe.records, len(reader))).astype(int).tolist()
        payloads = [reader.payload(number) for number in numbers]
    pixels, targets = feeds.Decoder(manifest).decode(tf.constant(payloads))
    # All variants are one batch, in which MixUp and CutMix blend neighbors: different records.
    repeats = [recipe.variants] + [1] * (len(pixels.shape) - 1)
    batch, given = prepare.for_training(
        tf.tile(pixels, repeats),
        tf.tile(targets, [recipe.variants] + [1] * (len(targets.shape) - 1)),
        tf.constant([recipe.seed, 0], tf.int32),
    )
    seen = display.as_pixels(batch.numpy(), prepare)
    labels = {name: values.numpy() for name, values in given.items()}
    target = manifest.target

    def variant(place: int) -> Picture:
        note = display.describe({name: values[place] for name, values in labels.items()}, target)
        return _picture(seen[place], labels["y"][place], target, _in_words(note))

    stored = pixels.numpy() if manifest.dtype == "uint8" else images.scale_to_pixels(pixels.numpy())
    records = []
    for place, number in enumerate(numbers):
        value = targets[place].numpy()
        original = _picture(stored[place], value, target, target.describe(value))
        variants = [variant(turn * len(numbers) + place) for turn in range(recipe.variants)]
        records.append(Augmented(number=number, original=original, variants=variants))
    low, high = float(tf.reduce_min(batch)), float(tf.reduce_max(batch))
    augmentation_preview.save(
        task_folder.parent, AugmentationPreview(shape=prepare.shape, low=low, high=high, records=records)
    )
    return {"records": len(numbers)}


def _in_words(note: dict[str, Any]) -> str:
    if "other" not in note:
        return str(note["label"])
    share = round(100 * note["share"])
    return f"{share}% {note['label']}, {100 - share}% {note['other']}"


def _picture(pixels: NDArray[np.uint8], value: Any, target: Target, label: str) -> Picture:
    height, width = pixels.shape[:2]
    picture = Picture(url=_uri(pixels), width=width, height=height, label=label)
    if pixels.shape[2] not in (1, 3):
        picture = structs.replace(picture, width=images.side_by_side(pixels).shape[1])
    draw = _DRAWINGS.get(type(target))
    return structs.replace(picture, **draw(target, np.asarray(value), (width, height))) if draw else picture


def _draw_mask(target: Target, mask: NDArray[Any], size: Size) -> dict[str, Any]:
    rows, columns = (_sampled(side, _scale(mask.shape)) for side in mask.shape)
    return {"mask": images.data_uri(draw_mask(mask[np.ix_(rows, columns)], target.palette))}


def _draw_image(target: Target, image: NDArray[Any], size: Size) -> dict[str, Any]:
    return {"target": _uri(image.clip(0, 255).round().astype(np.uint8))}


def _draw_boxes(target: Target, rows: NDArray[Any], size: Size) -> dict[str, Any]:
    outlines = target.drawings("", "", lambda: rows, size)["boxes"]
    return {"boxes": [Box(**asdict(outline)) for outline in outlines]}


_DRAWINGS = {Boxes: _draw_boxes, Mask: _draw_mask, TargetImage: _draw_image}


def _uri(pixels: NDArray[np.uint8]) -> str:
    """Return a file of an image [H, W, C] as a data URI; images stacked along the channels are side by side."""
    if pixels.shape[2] not in (1, 3):
        pixels = images.side_by_side(pixels)
    height, width = pixels.shape[:2]
    scale = _scale((height, width))
    if scale < 1:
        pixels = images.resize(pixels, max(1, round(width * scale)), max(1, round(height * scale)), "squash")
    if max(height, width) <= LARGEST_LOSSLESS_SIDE:
        return images.data_uri(images.encode(pixels, "png"))
    return images.data_uri(images.encode(pixels, "jpg"), "image/jpeg")


def _scale(sides: Sequence[int]) -> float:
    return min(1.0, LARGEST_SIDE / max(sides))


def _sampled(side: int, scale: float) -> NDArray[np.intp]:
    count = max(1, round(side * scale))
    return ((np.arange(count) + 0.5) * side / count).astype(np.intp)
