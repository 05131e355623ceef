"""The confusion matrix on pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# More classes do not fit on a page: the most confused ones are shown.
MAX_MATRIX = 40
MAX_CONFUSED = 10


@dataclass(frozen=True)
class Confusion:
    """The ``counts`` of some classes, the numbers ``classes`` among all ``names``, and the ``totals`` of true classes.

    ``confused`` are the pairs of true and predicted class with the most errors, and their counts. ``explore`` is the
    URL of all records, "" for no links.
    """

    names: Sequence[str]
    classes: list[int]
    counts: list[list[int]]
    totals: list[int]
    confused: list[tuple[int, int, int]]
    order: str
    unit: str
    explore: str


def confusion(
    matrix: NDArray[np.int64],
    names: Sequence[str],
    options: Mapping[str, str] | None = None,
    explore: str = "",
) -> Confusion:
    """Return what a page shows of ``matrix``, in the ``order`` and the ``unit`` of the ``options`` of its request."""
    options = options or {}
    order = "errors" if options.get("order") == "errors" else "classes"
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    classes = np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")[:MAX_MATRIX]
    if order == "classes":
        classes = np.sort(classes)
    pairs = np.argsort(-wrong, axis=None, kind="stable")[:MAX_CONFUSED]
    return Confusion(
        names=names,
        classes=classes.tolist(),
        counts=matrix[np.ix_(classes, classes)].tolist(),
        totals=matrix.sum(axis=1)[classes].tolist(),
        confused=[
            (*divmod(pair, len(names)), int(wrong.flat[pair])) for pair in pairs.tolist() if wrong.flat[pair]
        ],
        order=order,
        unit="percent" if options.get("unit") == "percent" else "counts",
        explore=explore,
    )
