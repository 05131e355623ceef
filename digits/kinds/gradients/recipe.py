"""The recipe of a dataset of gradients."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from digits.core.recipe import CreateDataset, Pixels

MAX_IMAGES = 1_000_000

TrainImages = Annotated[int, Meta(ge=1, le=MAX_IMAGES)]
OtherImages = Annotated[int, Meta(ge=0, le=MAX_IMAGES)]


class CreateGradients(CreateDataset, kw_only=True):
    """Generate images that get brighter in a random direction; the numbers are those of the images of each split."""

    kind: str = "image-gradients"
    width: Pixels = 32
    height: Pixels = 32
    train_images: TrainImages = 1000
    val_images: OtherImages = 250
    test_images: OtherImages = 0


Recipe = CreateGradients
