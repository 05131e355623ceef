"""Near duplicates among images that have little, and among images that have much in common."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from digits.data.images import images
from digits.data.images.near_duplicates import find_sets
from digits.data.images.statistics import low_frequencies, perceptual_hashes, shapes

COUNT = 60


def photos() -> list[Image.Image]:
    """Return smooth random images, which have little in common."""
    noise = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 6), np.uint8)
    return [Image.fromarray(each).resize((64, 64), Image.Resampling.BICUBIC) for each in noise]


def strokes() -> list[Image.Image]:
    """Return images that look alike: a bent stroke on black, like a handwritten 1."""
    bends = np.random.default_rng(1).uniform(-9, 9, (COUNT, 4))
    drawn = []
    for first, second, third, fourth in bends.tolist():
        image = Image.new("L", (64, 64))
        points = [(32 + first, 8), (32 + second, 24), (32 + third, 40), (32 + fourth, 56)]
        ImageDraw.Draw(image).line(points, fill=255, width=6)
        drawn.append(image)
    return drawn


def copies_of(image: Image.Image) -> list[Image.Image]:
    """Return the image resized, recompressed and brightened."""
    small = image.resize((48, 48), Image.Resampling.BILINEAR).resize((64, 64), Image.Resampling.BILINEAR)
    jpeg = images.as_image(images.load(images.encode_image(image, "jpg"), 1))
    return [small, jpeg, image.point(lambda value: min(255, value * 1.1 + 5))]


def sets_of(pictures: list[Image.Image]) -> NDArray[np.int64]:
    small = [np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), np.float32) for image in pictures]
    frequencies = low_frequencies(np.stack(small))
    return find_sets(perceptual_hashes(frequencies), shapes(frequencies))


def test_copies_are_found_and_images_that_are_only_alike_are_not() -> None:
    pictures = photos()
    sets = sets_of([*pictures, *copies_of(pictures[3]), *copies_of(pictures[8])])
    assert sets.tolist() == [*range(COUNT), 3, 3, 3, 8, 8, 8]
    assert sets_of(strokes()).tolist() == list(range(COUNT))


@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_few_images_are_compared(count: int) -> None:
    pictures = photos()[:count]
    if not count:
        assert find_sets(np.zeros(0, np.uint64), np.zeros((0, 63), np.int8)).tolist() == []
        return
    assert sets_of([*pictures, *copies_of(pictures[0])]).tolist() == [*range(count), 0, 0, 0]
