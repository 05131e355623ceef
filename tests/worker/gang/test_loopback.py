"""Workers of this machine, whose sums are measured."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from digits.worker.gang import loopback


def test_a_sum_takes_a_part_of_the_measurement() -> None:
    began = time.perf_counter()
    seconds = loopback.measure_sum(4000)
    assert 0 < seconds < time.perf_counter() - began


def test_workers_end_if_a_step_of_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = "import pathlib, sys; from digits.worker.gang import loopback as l; l.ask_parent(pathlib.Path(sys.argv[-1]))()"
    program, ends = tmp_path / "asks", threading.Event()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{asks}' \"$@\"\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))

    def hang() -> float:
        ends.wait()
        return 0.0

    before = set(threading.enumerate())
    problem = loopback.run_workers(tmp_path / "task", 1, 60, hang, longest_step=1.0)
    assert problem == "a step of one worker did not end within 1 seconds"
    ends.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()
