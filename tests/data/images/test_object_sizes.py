"""Objects that almost vanish in resized images, and the size that keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from digits.core.recipe import CreateDataset
from digits.data.images.object_sizes import ObjectSizes


def recipe(width: int, height: int, mode: str = "squash") -> CreateDataset:
    return CreateDataset(kind="image-object-detection", width=width, height=height, resize_mode=mode)  # type: ignore[arg-type]


def sizes(*objects: tuple[int, int], image: tuple[int, int] = (1000, 500)) -> ObjectSizes:
    return ObjectSizes.of([(image, np.array(objects, np.float32).reshape(-1, 2))])


@pytest.mark.parametrize(
    ("found", "into", "padding", "words"),
    [
        (
            sizes((12, 12)),
            (64, 64, "squash"),
            None,
            "Objects smaller than 4 pixels in images of 64×64: 1 of 1, such as 0.8×1.5. 336×336 keeps them all.",
        ),
        (
            sizes((12, 12), (400, 400), (300, 300)),
            (100, 100, "squash"),
            None,
            "Objects smaller than 2 pixels in images of 100×100: 1 of 3, such as 1.2×2.4. 176×176 keeps them all.",
        ),
        (sizes((12, 12), (400, 400), (300, 300)), (100, 100, "fill"), None, "such as 1.2×1.2. 176×176 keeps"),
        (sizes((12, 12), (400, 400), (300, 300)), (100, 100, "crop"), None, ""),
        (sizes((12, 12), (400, 400), (300, 300)), (200, 200, "squash"), None, ""),
        (sizes((12, 12), (400, 400), (300, 300)), (200, 200, "squash"), (2000, 2000), "1.2×1.2. 336×336"),
        (
            sizes((3, 3), (3, 3)),
            (200, 200, "squash"),
            None,
            "smaller than 2 pixels in images of 200×200: 2 of 2",
        ),
        # In their own images, they are not larger either.
        (sizes((1, 9), (400, 400)), (500, 250, "squash"), None, ""),
        (
            sizes((5, 5), (400, 400), (300, 300), image=(19_000, 19_000)),
            (100, 100, "squash"),
            None,
            "No size up to 4096 pixels keeps them: cut the images into parts.",
        ),
        (sizes(), (10, 10, "squash"), None, ""),
    ],
)
def test_lost_objects_are_named_with_the_size_that_keeps_them(
    found: ObjectSizes, into: tuple[int, int, str], padding: tuple[int, int] | None, words: str
) -> None:
    lost = found.lost(recipe(*into), padding)
    assert (words in lost.words) if words and lost else not words and lost is None
    if lost and max(lost.size) <= 4096:
        assert found.lost(recipe(*lost.size, into[2]), padding) is None
