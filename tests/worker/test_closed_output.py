"""The result of a task is recorded even if its network closes descriptors it did not open."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digits.core import events
from digits.runtime import supervisor
from digits.runtime.executors.executor import Exit
from tests.shared_executor import ON_CPU, SharedExecutor
from tests.worker import networks

CLOSES_OUTPUT = "import os\nos.close(1)\nos.close(2)\n"
CLOSES_ALL = "import os\nos.closerange(0, 256)\n"
RAISES = "raise ValueError('the real reason')\n"


@pytest.fixture
def run(executor: SharedExecutor) -> Callable[[Path], Exit]:
    """Run a task to its end in a fork of a process that has imported TensorFlow."""

    def wait(task: Path) -> Exit:
        handle = executor.start(task, ON_CPU)
        deadline = time.monotonic() + 60
        while (ended := executor.poll(task, handle)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return ended

    return wait


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("does", "code", "words"),
    [
        (CLOSES_OUTPUT + RAISES, 1, "the real reason"),
        (CLOSES_ALL, 1, "Bad file descriptor"),  # including TensorBoard's log
        (CLOSES_OUTPUT, 0, None),
    ],
    ids=["output, and fails", "all files", "output, and finishes"],
)
def test_the_end_is_recorded_without_an_output(
    model: Any, run: Any, does: str, code: int, words: str | None
) -> None:
    task = model(networks.LINEAR.replace("class UserModel", f"{does}\nclass UserModel"), epochs=1)
    assert run(task) == Exit(code=code), (task / supervisor.OUTPUT_FILE).read_text()
    last = events.read(task / "events.jsonl")[0][-1]
    if words is None:
        assert isinstance(last, events.Finished)
    else:
        assert isinstance(last, events.Failed) and words in last.message
        assert words in (task / supervisor.OUTPUT_FILE).read_text()
