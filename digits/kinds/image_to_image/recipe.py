"""The recipe of an image-to-image dataset."""

from __future__ import annotations

from digits.kinds.pair_source import CreateFromPairs


class CreateImageToImage(CreateFromPairs, kw_only=True):
    """Read images and target images; without the latter, each image is its own target."""

    needs_targets = False

    # The name that DIGITS uses for this kind.
    kind: str = "image-processing"


Recipe = CreateImageToImage
