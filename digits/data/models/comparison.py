"""Compare two models by their errors and predictions for the same records."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile
from digits.data.models import evaluation

# Above this number of records on which only one of the models is right, the exact sum takes too long and is not needed.
MAX_EXACT = 10_000
# With more differences, the normal approximation of the permutation test is as good.
MAX_FLIPPED = 500
FLIPS = 4000
# Below this p-value, a model counts as better.
SIGNIFICANT = 0.05
# Costs whose ratio is at most this count as equal: measured times vary from run to run.
SAME_COST = 1.1


class Outcomes(NamedTuple):
    """The records that are ``both_right``, ``fixed`` (right only by the second model), ``broken`` or ``both_wrong``.

    Each is an array bool [records].
    """

    both_right: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    both_wrong: NDArray[np.bool_]


class Decision(NamedTuple):
    """Which of two models, 0 or 1, is ``better`` for the same records; None if neither is.

    Each is better for one of the numbers of ``wins``. The ``p_value`` is the probability of a difference at least this
    large by chance, if both were equally good. It ``is_certain`` if this is small, and the metric does not contradict.
    """

    better: int | None
    wins: tuple[int, int]
    p_value: float
    is_certain: bool


# Groups of records by the models' errors, which exist for all kinds.
CHANGES = ("improved", "worsened")
GROUPS = (*Outcomes._fields, *CHANGES)


@dataclass(frozen=True)
class ComparedRecords:
    """Two models' ``errors``, each float32 [records], and ``predictions`` for the same records.

    The predictions, each float32 [records, outputs], and the ``targets``, [records, …], are None for kinds whose
    evaluations do not keep them.
    """

    errors: tuple[NDArray[np.floating], NDArray[np.floating]]
    predictions: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None
    targets: NDArray[Any] | None = None

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """The outcomes of classifiers; None for other models."""
        if self.predictions is None or self.targets is None:
            return None
        if self.targets.ndim != 1 or self.targets.dtype.kind != "i":
            return None
        return compare(self.targets, *self.predictions)

    @cached_property
    def improvement(self) -> NDArray[np.floating]:
        """How much lower the error of the second model is, float [records]; 0 if one of them is unknown."""
        return np.nan_to_num(self.errors[0] - self.errors[1], nan=0.0, posinf=0.0, neginf=0.0)

    def decide(self, lead: float = 0.0) -> Decision:
        """Decide which model is better: the one that is right more often, or has the smaller errors.

        The metric of the second one is better by ``lead``, which need not agree with the errors.
        """
        if self.outcomes is None:
            wins = int((self.improvement < 0).sum()), int((self.improvement > 0).sum())
            difference, p_value = float(self.improvement.sum()), sign_flips(self.improvement)
        else:
            wins = int(self.outcomes.broken.sum()), int(self.outcomes.fixed.sum())
            difference, p_value = wins[1] - wins[0], mcnemar(wins[1], wins[0])
        if not difference:
            return Decision(None, wins, p_value, False)
        return Decision(int(difference > 0), wins, p_value, p_value < SIGNIFICANT and difference * lead >= 0)

    @property
    def groups(self) -> tuple[str, ...]:
        """The `GROUPS` that exist for these models."""
        return CHANGES if self.outcomes is None else GROUPS

    def members(self, group: str) -> NDArray[np.bool_]:
        """Return which records are in one of the ``groups``, bool [records]."""
        if group in CHANGES:
            return self.improvement > 0 if group == "improved" else self.improvement < 0
        return cast(NDArray[np.bool_], getattr(self.outcomes, group))

    def order(self, group: str) -> NDArray[np.intp]:
        """Return the numbers of all records in the order in which ``group`` is shown, int [records].

        The largest change comes first or, if both models are right or wrong, the largest error of the second one.
        """
        if group in ("fixed", "improved"):
            keys = -self.improvement
        elif group in ("broken", "worsened"):
            keys = self.improvement
        else:
            keys = -self.errors[1]
        return np.argsort(keys, kind="stable")


def load_compared(first: tuple[Path, str], second: tuple[Path, str]) -> ComparedRecords:
    """Load the errors and predictions of two evaluations of the same records, by model folder and name.

    Raises UnreadableFile, also if they do not have the same shapes.
    """

    def load(file_name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        left, right = (evaluation.load_array(folder, name, file_name) for folder, name in (first, second))
        if left.shape != right.shape:
            raise UnreadableFile(f"{file_name} has different shapes in the evaluations")
        return left, right

    errors = load(evaluation.ERRORS_FILE)
    if not all(evaluation.has_predictions(folder, name) for folder, name in (first, second)):
        return ComparedRecords(errors)
    targets = evaluation.load_array(*second, evaluation.TARGETS_FILE)
    return ComparedRecords(errors, load(evaluation.PREDICTIONS_FILE), targets)


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
        math.lgamma(total + 1) - math.lgamma(index + 1) - math.lgamma(total - index + 1) - total * math.log(2)
        for index in range(fewer + 1)
    )
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def sign_flips(differences: NDArray[np.floating]) -> float:
    """Return the p-value of the paired permutation test of ``differences`` [records].

    If both models were equally good, each difference would have either sign with a probability of one half (Fisher,
    1935, “The Design of Experiments”). The signs are drawn at random, always the same ones.
    """
    changed = np.asarray(differences[differences != 0], np.float64)
    total = abs(changed.sum())
    if not total:
        return 1.0
    if len(changed) > MAX_FLIPPED:
        return math.erfc(total / math.sqrt(2 * np.square(changed).sum()))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS, len(changed)))
    return float(1 + np.count_nonzero(np.abs(signs @ changed) >= total * (1 - 1e-9))) / (1 + FLIPS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the ``p_values`` of several tests, corrected so that any false finding has the probability of one.

    Holm, 1979, “A simple sequentially rejective multiple test procedure”.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point (quality, cost) whether no other has at least its quality at a lower cost, or a higher
    quality at no higher cost. Costs that differ by a factor of up to `SAME_COST` count as equal.
    """
    by_cost = sorted(points, key=itemgetter(1))
    costs = [cost for _, cost in by_cost]
    # The best quality of the cheapest 0, 1, 2, … points.
    best = [-math.inf, *itertools.accumulate((quality for quality, _ in by_cost), max)]
    return [
        best[bisect_left(costs, cost / SAME_COST)] < quality
        and best[bisect_right(costs, cost * SAME_COST)] <= quality
        for quality, cost in points
    ]
