"""Trainings that start together share the free memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.core.events import InputPrepared
from digits.worker.input import memory
from tests.worker import networks

ROOT = Path(memory.__file__).parents[3]

# Claims 300 of 1000 bytes if that is at most 40% of those that are free, when a line arrives; then waits for another.
TRAINING = """
import sys
from digits.worker.input import memory
memory.NAMESPACE = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
claim = memory.Claim(300)
fits = 300 <= 0.4 * (1000 - memory.claimed_by_others())
if not fits:
    claim.end()
print(fits, flush=True)
sys.stdin.readline()
claim.end()
print("ended", flush=True)
sys.stdin.readline()
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start_other() -> Iterator[Start]:
    """Return a function that starts another training."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TRAINING, memory.NAMESPACE]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, text=True, cwd=ROOT)
        started.append(process)
        assert answer(process) == "ready"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_of_trainings_that_start_together_only_those_that_fit_claim_memory(start_other: Start) -> None:
    fits = []
    for training in [start_other() for _ in range(3)]:
        tell(training)
        fits.append(answer(training))
    assert fits == ["True", "False", "False"]
    assert memory.claimed_by_others() == 300


def test_a_claim_ends_with_its_process_or_when_the_memory_is_used(start_other: Start) -> None:
    for kills in (False, True):
        training = start_other()
        tell(training)
        assert answer(training) == "True"
        if kills:
            training.kill()
            training.wait()
        else:
            tell(training)
            assert answer(training) == "ended"
        assert memory.claimed_by_others() == 0


def test_a_process_does_not_count_its_own_claims(start_other: Start) -> None:
    claim = memory.Claim(500)
    assert memory.claimed_by_others() == 0
    training = start_other()
    tell(training)
    assert answer(training) == "False"
    claim.end()


def test_memory_claimed_by_another_training_is_not_free(
    start_other: Start, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start_other()
    tell(other)
    assert answer(other) == "True"
    monkeypatch.setattr(memory, "free_bytes", lambda: 30_300)
    outcome = train(networks.LINEAR, epochs=1)
    (prepared,) = [event for event in outcome.of(InputPrepared) if event.split == "train"]
    assert (prepared.free_bytes, prepared.budget_bytes, prepared.how) == (30_000, 12_000, "resident")
    assert memory.claimed_by_others() == 300
