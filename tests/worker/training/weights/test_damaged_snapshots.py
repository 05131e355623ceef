"""Damaged snapshots and resume points are not used, and the error names an intact one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digits.core.events import Measured, Resumed, Warned
from digits.core.resume_point import resume_point
from digits.worker.failure import UserFault
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot
from tests.worker.lazily import predictor
from tests.worker.training.weights.test_resume import same

DATA, INDEX, POINT = ".data-00000-of-00001", ".index", ".resume.json"


@pytest.fixture
def training(trained: Any) -> Outcome:
    """A training of three epochs with a snapshot after each one."""
    return trained(networks.LINEAR, epochs=3)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01
    path.write_bytes(data)


def test_the_newest_intact_resume_point_is_used(training: Outcome, resume: Any) -> None:
    job, rows = training.job_folder, training.of(Measured)
    weights = snapshot(job, "snapshot_3.ckpt")
    damage(job / f"snapshot_3.ckpt{POINT}")
    damage(job / f"snapshot_2.ckpt{DATA}")
    again = resume(job / "train").wait()
    assert again.code == 0, again.output
    assert [event.step for event in again.of(Resumed)] == [8]
    (warned,) = again.of(Warned)
    assert "snapshot_3.ckpt.resume.json" in warned.message
    assert "The snapshot snapshot_2.ckpt is damaged" in warned.message
    assert "resumes from snapshot_1.ckpt instead, after step 8 (epoch 1)" in warned.message
    assert warned.message in again.output
    # All files exist again and are intact.
    same(training, again, "snapshot_3.ckpt")
    assert {name: value.tobytes() for name, value in weights.items()} == {
        name: value.tobytes() for name, value in snapshot(job, "snapshot_3.ckpt").items()
    }
    assert [row.step for row in again.of(Measured)[len(rows) :] if row.stage == "train"] == list(range(9, 25))
    assert resume(job / "train").wait().of(Warned) == [warned]


@pytest.mark.parametrize("damaged", [(POINT, DATA), (INDEX,)])
def test_no_file_is_lost_if_all_resume_points_are_damaged(
    training: Outcome, resume: Any, damaged: tuple[str, ...]
) -> None:
    job = training.job_folder
    for epoch in (1, 2, 3):
        for suffix in damaged[: 1 if epoch == 2 and POINT in damaged else 2]:
            damage(job / f"snapshot_{epoch}.ckpt{suffix}")
    again = resume(job / "train").wait()
    assert again.code == 1
    assert "all of its resume points are damaged" in again.failure.message
    assert ("snapshot_2.ckpt, which is intact" in again.failure.hint) is (POINT in damaged)
    assert not again.of(Resumed) and again.of(Measured) == training.of(Measured)
    assert len(list(job.glob("snapshot_*.index"))) == 3


def test_without_a_resume_point_it_reports_a_restart(training: Outcome, resume: Any) -> None:
    for path in training.job_folder.glob(f"*{POINT}"):
        path.unlink()
    again = resume(training.job_folder / "train").wait()
    assert [event.step for event in again.of(Resumed)] == [0]
    assert "restarts from the first step" in again.of(Warned)[0].message


def test_a_damaged_snapshot_is_refused_and_an_intact_one_named(
    training: Outcome, fail: Any, in_child: Callable[..., Any]
) -> None:
    job = training.job_folder
    damage(job / f"snapshot_3.ckpt{DATA}")
    damage(job / f"snapshot_1.ckpt{INDEX}")
    for name in ("snapshot_3.ckpt", "snapshot_1.ckpt"):
        message, hint = in_child(_refusal, job, name)
        assert name in message and hint == "Choose snapshot_2.ckpt, which is intact."
    further = fail(networks.LINEAR, name="further", weights=str(job / "snapshot_3.ckpt"))
    assert "snapshot_3.ckpt cannot be read" in further.failure.message
    assert further.failure.hint == "Choose snapshot_2.ckpt, which is intact."


def _refusal(job: Path, name: str) -> tuple[str, str]:
    try:
        predictor.Predictor(job, name)
    except UserFault as refused:
        return refused.message, refused.hint
    return "", ""


def test_the_previous_resume_point_is_kept(often: None, model: Any, start: Any) -> None:
    """It is kept while the training runs, because the newest one may be damaged later."""
    task = start(model(networks.LINEAR, epochs=5000, snapshot_interval=0, val_interval=0))
    task.wait_for(Measured)
    while (point := resume_point(task.task_folder.parent)) is None or point.step < 10:
        assert task.poll() is None
    task.stop()
    assert task.wait().code == 143
    assert len(list(task.task_folder.parent.glob(f"resume_*{POINT}"))) == 2
