"""Comparing the predictions of two models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.models.comparison import (
    CHANGES,
    GROUPS,
    MAX_EXACT,
    MAX_FLIPPED,
    ComparedRecords,
    compare,
    mcnemar,
    pareto_front,
)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_p_value_is_that_of_the_binomial_distribution(fixed: int, broken: int) -> None:
    total, fewer = fixed + broken, min(fixed, broken)
    tail = sum(math.comb(total, place) for place in range(fewer + 1)) / 2**total
    expected = 1.0 if fixed == broken else min(1.0, 2 * tail)
    assert mcnemar(fixed, broken) == pytest.approx(expected)
    assert mcnemar(fixed, broken) == mcnemar(broken, fixed)


def test_the_approximation_continues_the_exact_value() -> None:
    half = MAX_EXACT // 2
    assert mcnemar(half + 60, half - 60) == pytest.approx(mcnemar(half + 61, half - 60), rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40))
def test_every_record_has_one_outcome(rows: list[tuple[int, int, int]]) -> None:
    targets, first, second = map(np.array, zip(*rows, strict=True))
    outcomes = compare(targets, np.eye(3)[first], np.eye(3)[second])
    assert np.sum(outcomes, axis=0).tolist() == [1] * len(rows)
    assert outcomes.fixed.tolist() == [(a != t) and (b == t) for t, a, b in rows]
    assert outcomes.broken.tolist() == [(a == t) and (b != t) for t, a, b in rows]


def classifiers(fixed: int, broken: int, both: int = 4) -> ComparedRecords:
    right = np.repeat([[0, 1], [1, 0], [1, 1]], [fixed, broken, both], axis=0).astype(np.float32)
    scores = [np.stack([each, 1 - each], axis=1) for each in right.T]
    return ComparedRecords(
        (1 - right[:, 0], 1 - right[:, 1]), (scores[0], scores[1]), np.zeros(len(right), np.int64)
    )


@pytest.mark.parametrize(
    ("fixed", "broken", "better", "is_certain"),
    [(0, 0, None, False), (4, 4, None, False), (30, 5, 1, True), (5, 30, 0, True), (3, 1, 1, False)],
)
def test_the_better_model_is_right_more_often(
    fixed: int, broken: int, better: int | None, is_certain: bool
) -> None:
    decision = classifiers(fixed, broken).decide()
    assert (decision.better, decision.is_certain, decision.wins) == (better, is_certain, (broken, fixed))
    assert decision.p_value == mcnemar(fixed, broken)


@pytest.mark.parametrize("count", [MAX_FLIPPED, MAX_FLIPPED + 1])
def test_the_better_model_has_the_smaller_errors(count: int) -> None:
    errors = np.random.default_rng(1).normal(1, 0.1, (2, count)).astype(np.float32)
    by_chance = ComparedRecords((errors[0], errors[1])).decide()
    assert by_chance.p_value > 0.05 and not by_chance.is_certain
    pair = ComparedRecords((errors[0], errors[1] - np.float32(0.05)))
    assert pair.decide().better == 1 and pair.decide(0.1).is_certain
    assert not pair.decide(-0.1).is_certain  # the metric contradicts
    same = ComparedRecords((errors[0], errors[0])).decide()
    assert (same.better, same.wins, same.p_value) == (None, (0, 0), 1.0)


def test_records_are_grouped_by_outcome_and_by_change() -> None:
    errors = [
        np.array(values, np.float32) for values in ([0.9, 0.2, 0.7, np.nan, 0.4], [0.1, 0.8, 0.7, 0.0, 0.3])
    ]
    pair = ComparedRecords((errors[0], errors[1]))
    assert pair.outcomes is None and pair.groups == CHANGES
    assert pair.members("improved").tolist() == [True, False, False, False, True]
    assert pair.members("worsened").tolist() == [False, True, False, False, False]
    assert pair.order("improved").tolist()[:2] == [0, 4] and pair.order("worsened")[0] == 1

    scores = [np.stack([1 - each, each], axis=1) for each in errors]
    pair = ComparedRecords((errors[0], errors[1]), (scores[0], scores[1]), np.zeros(5, np.int64))
    assert pair.groups == GROUPS
    assert np.flatnonzero(pair.members("fixed")).tolist() == [0]
    assert np.flatnonzero(pair.members("broken")).tolist() == [1]
    assert np.flatnonzero(pair.members("both_wrong")).tolist() == [2]
    assert pair.order("both_wrong").tolist() == [1, 2, 4, 0, 3]


def test_near_equal_costs_are_ties_of_the_pareto_front() -> None:
    assert pareto_front([(0.9, 1.0), (0.8, 0.95)]) == [True, False]
    assert pareto_front([(0.9, 1.0), (0.9, 0.95), (0.8, 0.8)]) == [True, True, True]
    assert pareto_front([(0.9, 1.0), (0.9, 0.8)]) == [False, True]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_the_pareto_front_has_no_better_and_cheaper_points(points):
    for (quality, cost), is_on_front in zip(points, pareto_front(points), strict=True):
        dominating = [
            other for other in points if other[0] >= quality and other[1] <= cost and other != (quality, cost)
        ]
        assert is_on_front == (not dominating)
