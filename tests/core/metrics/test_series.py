"""Curves: columns of bounded size that keep their extremes."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.core.events import MAX_METRICS, Measured, Resumed
from digits.core.metrics import series as metrics_module
from digits.core.metrics.series import Metrics, Series

NUMBERS = st.floats(-1e6, 1e6)
ROWS = st.dictionaries(st.sampled_from("abc"), st.floats(-1e6, 1e6) | st.just(math.nan), max_size=3)


@pytest.fixture(scope="module")
def few_points() -> Iterator[int]:
    """Lower the limit so that short curves are thinned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metrics_module, "MAX_CHART_POINTS", 40)
        yield 40


def series_of(rows: list[dict[str, float]]) -> Series:
    metrics = Metrics()
    for step, values in enumerate(rows):
        metrics.add(Measured("train", step, step / 10, values))
    return metrics.train


def cells(series: Series) -> dict[tuple[int, str], float]:
    columns = series.as_json()["values"]
    return {
        (step, name): column[row]
        for name, column in columns.items()
        for row, step in enumerate(series.steps)
        if column[row] is not None
    }


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=3000), st.integers(50, 400))
def test_thinned_curves_keep_their_extremes(values: list[float], points: int) -> None:
    thin = series_of([{"loss": value} for value in values]).downsample(points)
    kept = [value for value in thin.values["loss"] if value is not None]
    assert max(kept) == max(values)
    assert min(kept) == min(values)
    assert thin.steps == sorted(set(thin.steps))
    assert thin.steps[-1] == len(values) - 1
    assert len(thin.steps) <= points + 3


@settings(deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=400))
def test_long_curves_in_memory_are_thinned_as_well(few_points: int, rows: list[dict[str, float]]) -> None:
    series = series_of(rows)
    assert series.is_valid()
    assert len(series.steps) <= 2 * few_points
    assert series.steps[0] == 0 and series.steps[-1] == len(rows) - 1
    whole = {
        (step, name): value
        for step, values in enumerate(rows)
        for name, value in values.items()
        if not math.isnan(value)
    }
    kept = cells(series)
    assert kept.items() <= whole.items()
    for name in {name for _, name in whole}:
        column = [value for (_, other), value in whole.items() if other == name]
        thin = [value for (_, other), value in kept.items() if other == name]
        assert (min(thin), max(thin)) == (min(column), max(column))


@settings(deadline=None)
@given(data=st.data(), before=st.integers(1, 300), after=st.integers(0, 300))
def test_a_resumed_training_invalidates_repeated_rows_of_long_curves(
    few_points: int, data: st.DataObject, before: int, after: int
) -> None:
    resumed = data.draw(st.integers(0, before))
    metrics = Metrics()
    for step in range(before):
        metrics.add(Measured("train", step, step, {"a": 1.0, "void": 1.0} if step > resumed else {"a": 1.0}))
    metrics.add(Resumed(resumed, resumed))
    for step in range(resumed + 1, resumed + 1 + after):
        metrics.add(Measured("train", step, step, {"a": 2.0}))
    series = metrics.train
    assert series.is_valid() and set(series.values) == {"a"}
    assert series.steps == sorted(set(series.steps))
    for (step, _), value in cells(series).items():
        assert value == (1.0 if step <= resumed else 2.0)
    assert after == 0 or series.steps[-1] == resumed + after


def test_the_training_time_excludes_interruptions_and_never_decreases() -> None:
    metrics = Metrics()
    for event in (
        Measured("val", 0, 0.0, {"loss": 3.0}, at=1000.0),
        Measured("train", 1, 0.5, {"loss": 2.0}, at=1010.0),
        Measured("train", 2, 1.0, {"loss": 1.0}, at=1030.0),
        Resumed(1, 0.5, at=5000.0),
        Measured("train", 2, 1.0, {"loss": 1.0}, at=5015.0),
        Measured("val", 2, 1.0, {"loss": 1.0}, at=5020.0),
        Measured("train", 3, 1.5, {"loss": 1.0}, at=4000.0),  # the clock of the machine was set back
        Measured("train", 4, 2.0, {"loss": 1.0}, at=4005.0),
    ):
        metrics.add(event)
    found = metrics.as_json()
    assert found["train"]["seconds"] == [10.0, 25.0, 30.0, 35.0]
    assert found["val"]["seconds"] == [0.0, 30.0]
    assert found["clock"] == 4005.0 - 35.0


def test_a_repeated_step_replaces_later_rows() -> None:
    series = Series()
    for number, step in enumerate((1, 2, 3, 2, 2, 4)):
        series.add(Measured("train", step, step, {"a": float(number)}))
    assert (series.steps, series.values) == ([1, 2, 4], {"a": [0.0, 4.0, 5.0]})


@settings(max_examples=10, deadline=None)
@given(names=st.integers(1, 2 * MAX_METRICS))
def test_curves_of_many_metrics_share_the_limit(names: int) -> None:
    series = Series()
    for step in range(600):
        row = {f"metric {name}": float(step) for name in range(step % 7, names, 7)}
        series.add(Measured("train", step, step, row))
    assert series.is_valid()
    assert len(series.values) == min(names, MAX_METRICS)
    limit = max(8, metrics_module.MAX_CHART_CELLS // len(series.values))
    assert len(series.steps) <= 2 * limit
    assert len(series.downsample(4000).steps) <= 1.5 * limit + 3


def test_a_metric_that_first_appears_later_is_aligned() -> None:
    metrics = Metrics()
    metrics.add(Measured("train", 1, 0.1, {"loss": 1.0}))
    metrics.add(Measured("train", 2, 0.2, {"loss": 0.5, "accuracy": 0.25}))
    metrics.add(Measured("val", 2, 0.2, {"accuracy": float("nan")}))
    assert metrics.train.values == {"loss": [1.0, 0.5], "accuracy": [None, 0.25]}
    assert metrics.last_accuracy() == 25.0
    assert metrics.as_json()["val"]["values"] == {"accuracy": [None]}


def test_the_latest_values_do_not_include_those_before_the_training() -> None:
    metrics = Metrics()
    metrics.add(Measured("val", 0, 0.0, {"accuracy": 0.1}))
    metrics.add(Measured("train", 1, 0.1, {"accuracy": 0.9}))
    assert (metrics.last_accuracy(), metrics.last_values()) == (None, {})
    metrics.add(Measured("val", 2, 0.2, {"accuracy": 0.8}))
    assert (metrics.last_accuracy(), metrics.last_values()) == (80.0, {"accuracy": 0.8})


def test_a_metric_missing_from_the_last_rows_is_padded_for_charts() -> None:
    metrics = Metrics()
    metrics.add(Measured("train", 1, 0.1, {"loss": 1.0, "accuracy": 0.5}))
    metrics.add(Measured("train", 2, 0.2, {"loss": math.inf}))
    assert metrics.as_json()["train"]["values"] == {"loss": [1.0, None], "accuracy": [0.5, None]}
    json.dumps(metrics.as_json(), allow_nan=False)


def test_a_resumed_training_invalidates_later_rows() -> None:
    metrics = Metrics()
    for step in (1, 5, 9):
        metrics.add(Measured("train", step, step / 10, {"loss": float(step)}))
    metrics.add(Measured("val", 5, 0.5, {"accuracy": 0.5}))
    metrics.add(Measured("val", 9, 0.9, {"accuracy": 0.9, "late": 1.0}))
    metrics.add(Resumed(step=5, epoch=0.5))
    metrics.add(Measured("train", 7, 0.7, {"loss": 7.0}))
    metrics.add(Measured("val", 5, 0.5, {"accuracy": 0.25}))  # measured again
    assert metrics.train.steps == [1, 5, 7]
    assert metrics.train.values == {"loss": [1.0, 5.0, 7.0]}
    assert metrics.val.steps == [5]
    assert metrics.val.values == {"accuracy": [0.25]}


@pytest.mark.parametrize("jump", [-86400.0, 86400.0], ids=["set back", "set forward"])
def test_the_training_time_ignores_changes_of_the_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    metrics = Metrics()
    metrics.add(Measured("train", 1, 0.5, {"loss": 2.0}))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    metrics.add(Measured("train", 2, 1.0, {"loss": 1.0}))
    first, second = metrics.as_json()["train"]["seconds"]
    assert first == 0 <= second < 60
