"""Groups of records that can contain several classes or labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray


def group_by_rarest(
    names: list[str], values: Mapping[str, NDArray[np.float32]], none: str
) -> tuple[list[str], dict[str, list[int]]]:
    """Group records by their rarest class in ``train``: the names of the groups, and the place of each record's group.

    ``values`` are the zeros and ones of the records of each split for the classes ``names``, [records, names]. The
    group of records without a class is called ``none``.
    """
    rarest = _rarest_first(names, values["train"])
    groups = _groups(names, rarest, values.values(), none)
    places = {name: place for place, name in enumerate(groups)}
    named = {split: _group_names(names, rarest, found, none) for split, found in values.items()}
    return groups, {split: [places[name] for name in found] for split, found in named.items()}


def _rarest_first(names: list[str], train: NDArray[np.float32]) -> list[int]:
    """Return the places of the classes, the one with the fewest training images first."""
    counts = train.sum(axis=0, dtype=np.int64)
    return sorted(range(len(names)), key=lambda place: (counts[place], names[place]))


def _group_names(names: list[str], rarest: list[int], values: NDArray[np.float32], none: str) -> list[str]:
    """Return the name of each image's group: its rarest class."""
    ordered = values[:, rarest]
    first, counts = ordered.argmax(axis=1), ordered.sum(axis=1)
    return [names[rarest[place]] if count else none for place, count in zip(first, counts, strict=True)]


def _groups(
    names: list[str], rarest: list[int], parts: Iterable[NDArray[np.float32]], none: str
) -> list[str]:
    """Return the names of the groups that have images, in the order of the classes."""
    used = {name for part in parts for name in _group_names(names, rarest, part, none)}
    return [name for name in dict.fromkeys([*names, none]) if name in used]
