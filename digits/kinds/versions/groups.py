"""Groups of records that can contain several classes or labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

# The group of records without a label, for kinds of labels and attributes.
NO_LABEL = "no label"

# The names of the groups, and for each split, the place of each record's group among them.
Groups = tuple[list[str], dict[str, list[int]]]


def group_by_rarest(
    names: list[str],
    contained: Mapping[str, Sequence[Collection[int]]],
    none: str,
    frequencies: Sequence[float] = (),
) -> Groups:
    """Group records by their rarest class: that which the fewest records of ``train`` contain.

    ``contained`` are the places, in ``names``, of the classes of each record by split. Of classes in equally many
    records, the one with the lower number in ``frequencies`` is rarer, or else the first. The group of records without
    a class is called ``none``.
    """
    counts = Counter(place for classes in contained["train"] for place in set(classes))
    order = sorted(range(len(names)), key=lambda place: (counts[place], *frequencies[place : place + 1]))
    rank = dict(zip(order, range(len(names)), strict=True))
    rarest = {
        split: [min(classes, key=rank.__getitem__, default=len(names)) for classes in records]
        for split, records in contained.items()
    }
    used = sorted({place for places in rarest.values() for place in places})
    group_of = {place: group for group, place in enumerate(used)}
    groups = [[*names, none][place] for place in used]
    return groups, {split: [group_of[place] for place in places] for split, places in rarest.items()}


def group_flags(names: list[str], values: Mapping[str, NDArray[np.float32]], none: str) -> Groups:
    """Group records as `group_by_rarest` does; ``values`` are 1 for the classes of each record, [records, names]."""
    contained = {split: [np.flatnonzero(row).tolist() for row in rows] for split, rows in values.items()}
    return group_by_rarest(names, contained, none)
