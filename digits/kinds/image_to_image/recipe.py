"""The recipe of an image-to-image dataset."""

from __future__ import annotations

from digits.kinds.sources.target_image_recipe import CreateWithTargetImages


class CreateImageToImage(CreateWithTargetImages, kw_only=True):
    """Read images and target images; without the latter, each image is its own target."""

    needs_targets = False
    database_labels = "any image"

    # The name that DIGITS uses for this kind.
    kind: str = "image-processing"


Recipe = CreateImageToImage
