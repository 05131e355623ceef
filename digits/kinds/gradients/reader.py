"""Plan generated images and their slopes."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from digits.data.sources.plan import Plan, Progress, SplitPlan
from digits.data.targets.numbers import Numbers
from digits.kinds.gradients.ramps import LARGEST_SLOPE, Ramps
from digits.kinds.gradients.recipe import CreateGradients

NAMES = ["gradient_x", "gradient_y"]
# By the signs of both slopes: whether the image gets brighter to the right, and toward the bottom.
DIRECTIONS = ["top left", "top right", "bottom left", "bottom right"]


def read(recipe: CreateGradients, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``, which alone determines the images."""
    counts = {"train": recipe.train_images, "val": recipe.val_images, "test": recipe.test_images}
    slopes = {name: draw_slopes(recipe.seed, name, count) for name, count in counts.items() if count}
    splits = {
        name: SplitPlan(
            Ramps(pairs, recipe.width, recipe.height),
            [str(number) for number in range(len(pairs))],
            pairs.tolist(),
            ((pairs[:, 0] >= 0) + 2 * (pairs[:, 1] >= 0)).tolist(),
        )
        for name, pairs in slopes.items()
    }
    return Plan(Numbers.of(NAMES).with_statistics(slopes["train"]), splits, DIRECTIONS)


def draw_slopes(seed: int, split: str, count: int) -> NDArray[np.float32]:
    """Draw the slopes of ``count`` images, float32 [count, 2], uniform from -0.5 to 0.5."""
    key = hashlib.blake2b(f"{seed} {split}".encode(), digest_size=16).digest()
    generator = np.random.default_rng(int.from_bytes(key, "big"))
    return generator.uniform(-LARGEST_SLOPE, LARGEST_SLOPE, (count, 2)).astype(np.float32)
