"""The steps at which metric rows end, which do not depend on how steps are grouped into calls."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.worker.training.loop import metric_rows
from digits.worker.training.loop.metric_rows import MetricRows, ends_row

NAMES = ["loss", "odd"]


def rows_of(metrics: np.ndarray, calls: list[int], kept: int | None = None) -> list[metric_rows.Row]:
    """Return the rows of steps that arrive in ``calls``; the state is saved and restored after call ``kept``."""
    found, step, made = [], 0, MetricRows()
    for number, count in enumerate(calls):
        found += made.add(metrics[step : step + count], None)
        step = min(step + count, len(metrics))
        if number == kept:
            state = json.loads(json.dumps(made.state(NAMES), allow_nan=False))
            made = MetricRows()
            made.restore(step, NAMES, state)
    return found + made.add(metrics[step:], None) + made.cut()


@settings(deadline=None)
@given(step=st.integers(1, 10**6))
def test_rows_are_frequent_at_first_and_limited_later(step: int) -> None:
    longest = max(1, 2 * step // metric_rows.SINGLE_STEPS)
    assert any(ends_row(later) for later in range(step, step + 2 * longest + 1))
    if step >= metric_rows.SINGLE_STEPS:
        assert sum(ends_row(later) for later in range(step, step + longest // 2)) <= 1


@pytest.mark.parametrize("steps", [1, 999, 1000, 30_000, 200_000])
def test_the_number_of_rows_grows_logarithmically(steps: int) -> None:
    rows = sum(ends_row(step) for step in range(1, steps + 1))
    doublings = max(0.0, math.log2(steps / metric_rows.SINGLE_STEPS))
    assert min(steps, 999) <= rows <= metric_rows.SINGLE_STEPS * (1 + math.ceil(doublings) / 2)


@settings(deadline=None)
@given(
    calls=st.lists(st.integers(1, 40), max_size=30),
    more=st.integers(0, 50),
    kept=st.integers(0, 30),
    seed=st.integers(0, 100),
)
def test_rows_do_not_depend_on_calls_and_interruptions(
    calls: list[int], more: int, kept: int, seed: int
) -> None:
    count = sum(calls) + more
    metrics = np.random.default_rng(seed).normal(0, 1e3, (count, 2)).astype(np.float32)
    metrics[count // 2 :, 1] = np.inf
    before, metric_rows.SINGLE_STEPS = metric_rows.SINGLE_STEPS, 16
    try:
        rows = rows_of(metrics, calls, kept)
        assert rows == rows_of(metrics, [1] * count)
    finally:
        metric_rows.SINGLE_STEPS = before
    assert sum(row.count for row in rows) == count
    for row in rows:
        steps = metrics[row.step - row.count : row.step].astype(np.float64)
        assert row.means == pytest.approx(steps.mean(axis=0).tolist(), rel=1e-9, abs=1e-9)


def test_nan_survives_an_interruption() -> None:
    metrics = np.array([[1.0, math.nan]] * 5, np.float32)
    made = MetricRows()
    made.restore(5000, NAMES, None)
    made.add(metrics[:2], 1.0)
    state = json.loads(json.dumps(made.state(NAMES), allow_nan=False))
    again = MetricRows()
    again.restore(5002, NAMES, state)
    (row,) = again.add(metrics, 1.0) + again.cut()
    assert row.count == 7 and row.means[0] == 1.0 and math.isnan(row.means[1])


def test_a_row_with_other_metric_names_is_not_continued() -> None:
    made = MetricRows()
    made.restore(5000, NAMES, None)
    made.add(np.ones((2, 2), np.float32), None)
    again = MetricRows()
    again.restore(5002, ["loss"], made.state(NAMES))
    again.add(np.full((1, 1), 3.0, np.float32), None)
    assert again.cut()[0].means == [3.0]


def test_steps_without_a_duration_have_no_speed() -> None:
    made = MetricRows()
    (first,) = made.add(np.ones((1, 1), np.float32), None)
    rows = made.add(np.ones((4, 1), np.float32), 2.0)
    assert first.steps_per_second is None
    assert [row.steps_per_second for row in rows] == [pytest.approx(2.0)] * 4
