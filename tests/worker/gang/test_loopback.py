"""Workers of this machine, whose sums are measured."""

from __future__ import annotations

import time

from digits.worker.gang import loopback


def test_a_sum_takes_a_part_of_the_measurement() -> None:
    began = time.perf_counter()
    seconds = loopback.measure_sum(4000)
    assert 0 < seconds < time.perf_counter() - began
