"""Whether a model can predict the records of another dataset than the one it was trained on, and how they map.

Classes, labels and numbers are mapped by name, and images are resized.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from digits.data.manifest import Manifest
from digits.data.target import TargetSpec

_SHOWN = 3


class UnfitDataset(ValueError):
    """The records do not fit the model; the text is the reason, a clause for users."""


@dataclass(frozen=True)
class DatasetFit:
    """How the records of a dataset map to those that a model was trained on.

    ``target`` is that of the mapped records: the names are the model's. Where targets contain classes, ``places[i]`` is
    the model's index of class i of the dataset, -1 if the model lacks it. Otherwise, ``places[i]`` is the dataset's
    index of number or label i of the model. ``lacking`` are the names in the dataset that the model lacks.
    """

    target: TargetSpec
    places: list[int]
    lacking: list[str]

    @property
    def maps_names(self) -> bool:
        """Whether the names of the dataset and the model differ, at least in their order."""
        return bool(self.lacking) or self.places != list(range(len(self.target.names)))


def fit(own: Manifest, other: Manifest, *, takes_image: bool) -> DatasetFit:
    """Return how the records of ``other`` map to those of ``own``, the dataset that the model was trained on.

    Images are resized if the kind ``takes_image``, rather than two, a text or an array. Raises UnfitDataset.
    """
    if own.kind != other.kind:
        raise UnfitDataset("it is of another kind")
    if (own.shape, own.dtype) != (other.shape, other.dtype):
        is_image = takes_image and own.dtype == other.dtype == "uint8"
        if not is_image or not {own.channels, other.channels} <= {own.channels, 1, 3}:
            shapes = ("×".join(map(str, each.shape)) for each in (other, own))
            raise UnfitDataset("its records have the shape {}, and the model expects {}".format(*shapes))
    return _match(own.target, other.target)


def _match(own: TargetSpec, other: TargetSpec) -> DatasetFit:
    if _form(own) != _form(other):
        raise UnfitDataset("its targets are of another type")
    if own.spatial == "image" and own.shape[2] != other.shape[2]:
        raise UnfitDataset("its target images have another number of channels")
    lacking = [name for name in other.names if name not in own.names]
    if own.classes or own.spatial in ("mask", "boxes"):
        places = [own.names.index(name) if name in own.names else -1 for name in other.names]
        if all(place < 0 for place in places):
            raise UnfitDataset(f"it has none of the model's classes ({_listed(own.names)})")
        # The number of boxes in a record is that of the dataset.
        return DatasetFit(
            msgspec.structs.replace(own, shape=other.shape) if own.spatial == "boxes" else own,
            places,
            lacking,
        )
    missing = [name for name in own.names if name not in other.names]
    if missing:
        raise UnfitDataset(f"it lacks the {'labels' if own.multi_hot else 'targets'} {_listed(missing)}")
    if own.names != other.names and (own.shape, other.shape) != ([len(own.names)], [len(other.names)]):
        raise UnfitDataset("its targets have another shape")
    return DatasetFit(own, [other.names.index(name) for name in own.names], lacking)


def _form(target: TargetSpec) -> tuple[object, ...]:
    """Return the properties of targets that no mapping changes."""
    shape = target.shape if not target.names and not target.spatial else len(target.shape)
    return target.feature, target.dtype, target.classes, target.multi_hot, target.spatial, shape


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
