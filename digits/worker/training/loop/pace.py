"""How many steps a call of the step function runs.

Long calls keep Python out of the way of a small network; short ones keep stopping, progress and metrics timely.
"""

from __future__ import annotations

from dataclasses import dataclass

# Target duration of a call, in seconds.
CALL_SECONDS = 0.15
MAX_STEPS_PER_CALL = 1000
# Limits for images that are streamed, because those of all steps of a call are in memory together.
MAX_STREAMED_STEPS = 100
MAX_STREAMED_BYTES = 2**26


@dataclass
class Pace:
    """The number of ``steps`` of the next call, adapted so that calls take about `CALL_SECONDS`."""

    limit: int
    steps: int = 1

    def update(self, steps: int, seconds: float) -> None:
        """Adapt to a call of ``steps`` steps that took ``seconds``."""
        fitting = int(CALL_SECONDS * steps / max(seconds, 1e-6))
        # The first calls include one-time costs, so approach the target gradually.
        self.steps = max(1, min(fitting, 8 * self.steps, self.limit))


def max_steps(is_resident: bool, step_bytes: int) -> int:
    """The most steps that one call may run, for steps that take ``step_bytes`` bytes of images."""
    if is_resident:
        return MAX_STEPS_PER_CALL
    return max(1, min(MAX_STREAMED_STEPS, MAX_STREAMED_BYTES // step_bytes, MAX_STEPS_PER_CALL))
