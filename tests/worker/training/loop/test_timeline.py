"""The steps at which validations and snapshots are due."""

from __future__ import annotations

import pytest

from digits.worker.training.loop import timeline
from digits.worker.training.loop.timeline import Milestone, Pace, Timeline


def test_the_steps_of_a_training_are_rounded_up() -> None:
    assert Timeline(2, 8).total_steps == 16
    assert Timeline(0.5, 7.5).total_steps == 4
    assert Timeline(3, 0.1 + 0.2).total_steps == 1


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
