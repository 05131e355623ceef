"""The steps at which validations and snapshots are due."""

from __future__ import annotations

import pytest

from digits.worker.training.loop.timeline import Milestone, Timeline


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
