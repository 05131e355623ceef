"""Ending a task on SIGTERM."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from digits.core.resume_point import resume_point
from digits.core.task import STOP_SECONDS_FILE
from digits.runtime import supervisor
from tests.worker import networks
from tests.worker.lazily import snapshots, stopping


def test_a_stopping_training_has_the_time_of_its_saves(
    often: None, model: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = snapshots.save

    def save_slowly(target: Any, variables: Any, step: int) -> None:
        if target.name == "snapshot_1.ckpt":
            os.kill(os.getpid(), signal.SIGTERM)  # this save, the next steps and another save follow
        time.sleep(0.7)
        save(target, variables, step)

    monkeypatch.setattr(snapshots, "save", save_slowly)
    monkeypatch.setattr(stopping, "SAVING_GRACE_SECONDS", 0.1)
    task_folder = model(networks.LINEAR, epochs=2)  # of 8 steps
    outcome = start(task_folder).wait()
    assert outcome.code == 128 + signal.SIGTERM, outcome.output
    point = resume_point(outcome.job_folder)
    assert point and point.step > 8
    assert float((task_folder / STOP_SECONDS_FILE).read_text()) > 0.6
    assert supervisor.STOP_SECONDS_FILE == STOP_SECONDS_FILE
