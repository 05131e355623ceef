"""Whether a model can predict the records of a dataset it was not trained on, and how they map.

Classes, labels and numbers are mapped by name, and images are resized.
"""

from __future__ import annotations

from digits.data.manifest import Manifest
from digits.data.targets.target import DatasetFit, UnfitDataset


def fit(own: Manifest, other: Manifest, *, takes_image: bool) -> DatasetFit:
    """Return how the records of ``other`` map to those of ``own``, the dataset that the model was trained on.

    Images are resized if the kind ``takes_image``, rather than two, a text or an array. Raises UnfitDataset.
    """
    if own.kind != other.kind:
        raise UnfitDataset("it is of a different kind")
    if (own.shape, own.dtype) != (other.shape, other.dtype):
        is_image = takes_image and own.dtype == other.dtype == "uint8"
        if not is_image or not {own.channels, other.channels} <= {own.channels, 1, 3}:
            shapes = ("×".join(map(str, each.shape)) for each in (other, own))
            raise UnfitDataset("its records have the shape {}, but the model expects {}".format(*shapes))
    return own.target.fit(other.target)
