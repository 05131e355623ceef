"""The number of steps per call."""

from __future__ import annotations

from digits.worker.training.loop import pace
from digits.worker.training.loop.pace import Pace


def test_the_number_of_steps_grows_gradually_to_the_target_duration() -> None:
    made = Pace(limit=1000)
    counts = []
    for _ in range(5):
        made.update(made.steps, made.steps * 0.001)
        counts.append(made.steps)
    assert counts[0] == 8 and counts[1] == 64
    assert abs(counts[-1] - pace.CALL_SECONDS / 0.001) <= 1


def test_slow_steps_run_one_per_call_and_the_limit_holds() -> None:
    made = Pace(limit=5)
    made.update(1, 10.0)
    assert made.steps == 1
    made.update(1, 1e-9)
    assert made.steps == 5


def test_streamed_images_of_a_call_fit_in_memory() -> None:
    assert pace.max_steps(True, 10**9) == pace.MAX_STEPS_PER_CALL
    assert pace.max_steps(False, 10**9) == 1
    assert pace.max_steps(False, 1) == pace.MAX_STREAMED_STEPS
