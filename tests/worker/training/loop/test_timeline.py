"""The steps at which validations, snapshots and rows of the curves are due; these do not depend on calls."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from digits.worker.training.loop import timeline
from digits.worker.training.loop.timeline import MetricRows, Milestone, Pace, TimeLeft, Timeline, ends_row

NAMES = ["loss", "odd"]


def test_the_steps_of_a_training_are_rounded_up() -> None:
    assert Timeline(2, 8).total_steps == 16
    assert Timeline(0.5, 7.5).total_steps == 4
    assert Timeline(3, 0.1 + 0.2).total_steps == 1


class Clock:
    """Seconds that pass only when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float) -> None:
        self.now += seconds


def test_the_time_left_counts_both_phases_and_the_validations() -> None:
    clock = Clock()
    left = TimeLeft(first_step=0, total_steps=100, head_steps=20, head_share=0.25, clock=clock)
    assert left.seconds(1) is None
    clock.after(50.0)  # to build the graph
    left.begin()
    clock.after(5.0)
    left.stepped(step=10, count=5)
    assert left.seconds(10) == pytest.approx(
        10 * 1 + 80 * 4
    )  # a later step is expected to take four times as long
    clock.after(3.0)
    left.paused(step=10)
    assert left.seconds(10) == pytest.approx(10 * 1 + 80 * 4 + 27)
    clock.after(2.0)
    left.stepped(step=22, count=1)
    assert left.seconds(22) == pytest.approx(78 * 2 + 0.3 * 78)
    resumed = TimeLeft(first_step=60, total_steps=100, head_steps=20, head_share=0.25, clock=clock)
    resumed.begin()
    clock.after(5.0)
    resumed.stepped(step=70, count=5)
    assert resumed.seconds(70) == pytest.approx(30)


def test_the_time_left_before_a_head_phase_on_features_follows_from_their_batches() -> None:
    clock = Clock()
    left = TimeLeft(0, 100, head_steps=20, head_share=0.01, batches=5, batch_share=0.25, clock=clock)
    left.begin()
    clock.after(30.0)  # to build functions
    left.computed(1)
    assert left.seconds(0) is None
    for batch in (2, 3):
        clock.after(2.0)
        left.computed(batch)
    assert left.seconds(0) == pytest.approx(2 * 2 + 20 * 0.08 + 80 * 8)
    for batch in (4, 5):
        clock.after(2.0)
        left.computed(batch)
    clock.after(1.0)
    left.stepped(10, count=10)
    assert left.seconds(10) == pytest.approx(10 * 0.1 + 80 * 8)
    clock.after(30.0)
    left.stepped(30, count=5)
    assert left.seconds(30) == pytest.approx(70 * 6)


def test_no_time_between_steps_is_lost_and_pictures_belong_to_the_pauses() -> None:
    clock = Clock()
    left = TimeLeft(first_step=0, total_steps=100, closing=20.0, clock=clock)
    left.begin()
    for step in range(1, 31):
        clock.after(1.5)  # a step, and then its report
        if step in (11, 21):
            clock.after(6.0)
            left.drew(step)
        else:
            left.stepped(step, count=1)
        if step % 10 == 0:
            clock.after(4.0)
            left.paused(step)
    assert left.seconds(30) == pytest.approx(70 * 1.5 + 7 * (4 + 6) + 20)
    assert left.seconds(100) == pytest.approx(20)


def test_slow_first_steps_and_a_machine_that_becomes_idle_are_forgotten() -> None:
    clock = Clock()
    left = TimeLeft(first_step=0, total_steps=1000, clock=clock)
    left.begin()
    for step in range(1, 101):
        clock.after(10.0 if step <= 10 else 1.0)
        left.stepped(step, count=1)
    assert left.seconds(100) == pytest.approx(900, rel=0.1)  # 1,710 as a mean


def test_milestones_never_exceed_the_epochs_of_the_training() -> None:
    timeline = Timeline(2, 2.5)
    assert timeline.epoch(0) == 0 and timeline.epoch(2) == pytest.approx(0.8)
    assert timeline.total_steps == 5 and timeline.epoch(5) == 2


def test_work_is_due_at_its_interval_and_at_the_end() -> None:
    assert Timeline(2, 8).every(1) == [Milestone(8, 1), Milestone(16, 2)]
    assert Timeline(2.5, 8).every(1) == [Milestone(8, 1), Milestone(16, 2), Milestone(20, 2.5)]
    assert Timeline(2, 8).every(0) == [Milestone(16, 2)]


def test_intervals_shorter_than_a_step_share_a_milestone() -> None:
    assert Timeline(1, 2).every(0.25) == [Milestone(1, 0.5), Milestone(2, 1)]


def test_the_number_of_steps_grows_gradually_to_the_target_duration() -> None:
    made = Pace(limit=1000)
    counts = []
    for _ in range(5):
        made.update(made.steps, made.steps * 0.001)
        counts.append(made.steps)
    assert counts[0] == 8 and counts[1] == 64
    assert abs(counts[-1] - timeline.CALL_SECONDS / 0.001) <= 1


def test_slow_steps_run_one_per_call_and_the_limit_holds() -> None:
    made = Pace(limit=5)
    made.update(1, 10.0)
    assert made.steps == 1
    made.update(1, 1e-9)
    assert made.steps == 5


def test_streamed_images_of_a_call_fit_in_memory() -> None:
    assert timeline.max_steps(True, 10**9) == timeline.MAX_STEPS_PER_CALL
    assert timeline.max_steps(False, 10**9) == 1
    assert timeline.max_steps(False, 1) == timeline.MAX_STREAMED_STEPS


def rows_of(metrics: np.ndarray, calls: list[int], kept: int | None = None) -> list[timeline.Row]:
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
    longest = max(1, 2 * step // timeline.SINGLE_STEPS)
    assert any(ends_row(later) for later in range(step, step + 2 * longest + 1))
    if step >= timeline.SINGLE_STEPS:
        assert sum(ends_row(later) for later in range(step, step + longest // 2)) <= 1


@pytest.mark.parametrize("steps", [1, 999, 1000, 30_000, 200_000])
def test_the_number_of_rows_grows_logarithmically(steps: int) -> None:
    rows = sum(ends_row(step) for step in range(1, steps + 1))
    doublings = max(0.0, math.log2(steps / timeline.SINGLE_STEPS))
    assert min(steps, 999) <= rows <= timeline.SINGLE_STEPS * (1 + math.ceil(doublings) / 2)


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
    before, timeline.SINGLE_STEPS = timeline.SINGLE_STEPS, 16
    try:
        rows = rows_of(metrics, calls, kept)
        assert rows == rows_of(metrics, [1] * count)
    finally:
        timeline.SINGLE_STEPS = before
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
