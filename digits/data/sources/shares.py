"""The groups of the records of a dataset, and the shares of validation and testing in them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import CreateDataset
from digits.core.schema import Percent
from digits.core.splits import SPLITS, Split
from digits.data.sources.plan import UnusableSource

# The group of records without a label, for kinds of labels and attributes.
NO_LABEL = "no label"

# The names of the groups, and for each split, the place of each record's group among them.
Groups = tuple[list[str], dict[str, list[int]]]

Item = TypeVar("Item")


class Records(Protocol):
    """The records of a source, in order."""

    def __len__(self) -> int: ...

    def take(self, places: Sequence[int]) -> Self:
        """Return the records at ``places``, in their order."""


AnyRecords = TypeVar("AnyRecords", bound=Records)


class Shares:
    """The shares, in percent, of the training records that become those of other splits.

    A split that has a source of its ``own`` takes no share: ``taken`` has the shares of the others that are not 0.
    Raises UnusableSource if nothing is left to train on.
    """

    def __init__(self, val: float, test: float, own: Collection[str] = ()) -> None:
        wanted: dict[Split, float] = {"val": val, "test": test}
        self.taken = {split: share for split, share in wanted.items() if share > 0 and split not in own}
        self.train = 100 - sum(self.taken.values())
        if self.train <= 0:
            raise UnusableSource(
                f"Validation and test take {100 - self.train:g}%: nothing is left to train on.",
                "Choose less than 100% for both together.",
            )

    def slices(self, total: int) -> dict[Split, slice]:
        """Divide the places of ``total`` shuffled records; splits that get none are missing.

        Train gets its rounded share and at least one. A split that takes a share gets at least one while train keeps
        one, val before test. Test gets what remains.
        """
        val = test = 0
        if total > 1:
            train = max(1, min(_rounded(total * self.train / 100), total - len(self.taken)))
            rest = total - train if self.taken else 0
            val, test = rest * ("val" in self.taken), rest * ("test" in self.taken)
            if len(self.taken) == 2:
                val = min(max(1, _rounded(total * self.taken["val"] / 100)), max(1, rest - 1))
                test = rest - val
        ends = itertools.accumulate((0, total - val - test, val, test))
        parts = {split: slice(*part) for split, part in zip(SPLITS, itertools.pairwise(ends), strict=True)}
        return {split: part for split, part in parts.items() if part.start < part.stop}

    def cut(self, groups: Iterable[Sequence[Item]]) -> dict[Split, list[Item]]:
        """Divide each of the ``groups`` of shuffled items, so that they have the same proportions in all splits."""
        parts: dict[Split, list[Item]] = {}
        for group in groups:
            for split, part in self.slices(len(group)).items():
                parts.setdefault(split, []).extend(group[part])
        return parts

    def divide(
        self, sources: Mapping[str, AnyRecords], groups: Iterable[Sequence[int]], *, keeps_order: bool = False
    ) -> dict[str, AnyRecords]:
        """Return the records of each split: those of its own source, or its part of the source ``train``.

        ``groups`` are the shuffled places of the latter's records. With ``keeps_order``, the records of a part keep
        their order.
        """
        divided = {**sources}
        for split, places in self.cut(groups).items():
            divided[split] = sources["train"].take(sorted(places) if keeps_order else places)
        return {split: divided[split] for split in SPLITS if split in divided}


def permute(count: int, seed: int) -> list[int]:
    """Return the numbers below ``count`` in the order of ``seed``."""
    order: list[int] = np.random.default_rng(seed).permutation(count).tolist()
    return order


class CreateWithShares(CreateDataset, kw_only=True):
    """Divide the training records: ``pct_val`` and ``pct_test`` percent of them are for validation and testing.

    See `Shares` for splits that have a source of their own.
    """

    pct_val: Percent = 25.0
    pct_test: Percent = 0.0

    def shares(self, own: Collection[str]) -> Shares:
        """Return the shares of the splits other than ``own``, which have sources; raises UnusableSource."""
        return Shares(self.pct_val, self.pct_test, own)


def need_one_source(dataset: str, recipe: CreateDataset, *names: str) -> None:
    """Raise ValueError unless exactly one of the settings ``names`` of a recipe is set."""
    if sum(bool(getattr(recipe, name)) for name in names) != 1:
        raise ValueError(f"{dataset} needs exactly one of {' and '.join(names)}")


def _rounded(value: float) -> int:
    # Halves round up. The tiny addition undoes what 100 - 33.3 - 33.4 loses as a binary fraction.
    return math.floor(value + 0.5 + 1e-9)


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
