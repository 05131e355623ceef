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
    ComparedRecords,
    compare,
    in_words,
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


@pytest.mark.parametrize(
    ("fixed", "broken", "words"),
    [
        (0, 0, "right about the same images"),
        (4, 4, "Neither model is better"),
        (30, 5, "The second model is better"),
        (5, 30, "The first model is better"),
        (3, 1, "may be due to chance"),
        (500, 5, "less than 0.1%"),
    ],
)
def test_the_result_is_described_in_words(fixed: int, broken: int, words: str) -> None:
    assert words in in_words(fixed, broken)


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
