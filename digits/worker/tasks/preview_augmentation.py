"""Preview augmentation on a few dataset records, prepared with the training code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.core.results import augmentation_preview
from digits.core.results.augmentation_preview import AugmentationPreview, Augmented, Picture
from digits.data.images import images
from digits.data.records.pictures import picture_of
from digits.worker.input import display, feeds
from digits.worker.tasks import background


def run(recipe: recipes.PreviewAugmentation, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Augment records of the dataset of ``recipe``, and save the pictures in the task's parent folder.

    Raises UserFault if the dataset cannot be read, or if its images cannot be augmented with these settings.
    """
    background.hide_gpus()  # creating a GPU context takes longer than the augmentation
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    prepare = feeds.preparation(manifest, dataset, recipe.mean, recipe.crop_size, recipe.augment)
    numbers, pixels, targets = feeds.read_some(dataset, manifest, recipe.records)
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
        return picture_of(seen[place], labels["y"][place], target, _in_words(note))

    stored = pixels.numpy() if manifest.dtype == "uint8" else images.scale_to_pixels(pixels.numpy())
    records = []
    for place, number in enumerate(numbers):
        value = targets[place].numpy()
        original = picture_of(stored[place], value, target, target.describe(value))
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
