"""Comparing two classifiers by their predictions for the same records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Above this number of records on which only one of the models is right, the exact sum takes too long and is not needed.
MAX_EXACT = 10_000


class Outcomes(NamedTuple):
    """The records that are ``both_right``, ``fixed`` (right only by the second model), ``broken`` or ``both_wrong``.

    Each is an array bool [records].
    """

    both_right: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    both_wrong: NDArray[np.bool_]


def compare(
    targets: NDArray[np.integer], first: NDArray[np.floating], second: NDArray[np.floating]
) -> Outcomes:
    """Compare the probabilities [records, classes] of two models for ``targets`` [records]."""
    right, now_right = (scores.argmax(axis=1) == targets for scores in (first, second))
    return Outcomes(right & now_right, ~right & now_right, right & ~now_right, ~right & ~now_right)


def mcnemar(fixed: int, broken: int) -> float:
    """Return the p-value of McNemar's test: the probability of a difference at least this large by chance.

    The test is exact and two-sided: if both models were equally good, each of the ``fixed`` and ``broken`` records
    would be either with a probability of one half (McNemar, 1947, “Note on the sampling error of the difference between
    correlated proportions or percentages”). For large numbers, it is the normal approximation with continuity
    correction.
    """
    total, fewer = fixed + broken, min(fixed, broken)
    if not total or fixed == broken:
        return 1.0
    if total > MAX_EXACT:
        return math.erfc((abs(fixed - broken) - 1) / math.sqrt(2 * total))
    logs = (
        math.lgamma(total + 1) - math.lgamma(place + 1) - math.lgamma(total - place + 1) - total * math.log(2)
        for place in range(fewer + 1)
    )
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def in_words(fixed: int, broken: int) -> str:
    """Describe the result of `mcnemar` in one sentence."""
    if not fixed and not broken:
        return "Both models are right about the same images."
    p = mcnemar(fixed, broken)
    better = "second" if fixed > broken else "first"
    if fixed == broken:
        return "Neither model is better: each is right about as many images that the other gets wrong."
    chance = f"{100 * p:.1f}%" if p >= 0.001 else "less than 0.1%"
    if p < 0.05:
        start = f"The {better} model is better"
    else:
        start = "The difference may be due to chance"
    return f"{start}: if both were equally good, a difference at least this large would have a probability of {chance}."


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point (quality, cost) whether no other has at least its quality at a lower cost, or a higher
    quality at no higher cost.
    """
    order = sorted(range(len(points)), key=lambda place: (points[place][1], -points[place][0]))
    front, best = [False] * len(points), -math.inf
    best_cost = math.inf
    for place in order:
        quality, cost = points[place]
        if quality > best or (quality == best and cost == best_cost):
            front[place] = True
            best, best_cost = quality, cost
    return front
