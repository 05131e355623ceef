"""A disk that fills up during training."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import recipe
from digits.core.events import BestSnapshotChanged, Failed, Saved, Warned
from digits.core.resume_point import resume_point
from tests.worker import networks
from tests.worker.conftest import snapshot
from tests.worker.lazily import checkpoints, snapshots, tensorboard_log, tf
from tests.worker.training.weights.test_resume import fails_at

SETTINGS: dict[str, Any] = {"epochs": 4, "best_metric": "loss", "solver": {"type": "MOMENTUM"}}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, tensorflow: None) -> Callable[[Callable[[Path], bool]], None]:
    """Return a function that makes the disk full halfway through each snapshot that it selects."""
    original = snapshots.save

    def make(is_full: Callable[[Path], bool]) -> None:
        def save(target: Path, variables: Any, step: int) -> None:
            if is_full(target):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            original(target, variables, step)

        monkeypatch.setattr(snapshots, "save", save)
        monkeypatch.setattr(checkpoints, "RESUME_SECONDS", 0.0)
        monkeypatch.setattr(checkpoints, "MAX_TIME_FRACTION", 1.0)

    return make


def test_training_continues_without_snapshots_that_do_not_fit(train: Any, trained: Any, full: Any) -> None:
    whole = trained(networks.LINEAR, name="whole", **SETTINGS)
    between = {f"resume_{step}.ckpt" for step in range(17, 24)}
    full(lambda target: target.name in {"snapshot_2.ckpt", "snapshot_3.ckpt", *between})
    outcome = train(networks.LINEAR, name="full", **SETTINGS)
    # One warning per shortage, regardless of the number of attempts.
    (warned,) = outcome.of(Warned)
    assert f"snapshot_2.ckpt could not be written to {outcome.job_folder}, where " in warned.message
    assert "B are free" in warned.message and "training continues" in warned.message
    assert [saved.epoch for saved in outcome.of(Saved)] == [1, 4]
    # A snapshot that was not saved is never the best one.
    assert [best.epoch for best in outcome.of(BestSnapshotChanged)] == [1, 4]
    one, two = (snapshot(item.job_folder, "snapshot_4.ckpt") for item in (whole, outcome))
    assert all(np.array_equal(value, two[name]) for name, value in one.items())


def test_a_snapshot_that_was_skipped_is_not_retried_when_the_training_resumes(
    fail: Any, resume: Any, often: None, full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resume point is later than the snapshot, whose weights are gone."""
    full(lambda target: target.name == "snapshot_2.ckpt")
    with monkeypatch.context() as patched:
        fails_at(patched, 20)
        failed = fail(networks.LINEAR, **SETTINGS)
    point = resume_point(failed.job_folder)
    assert point and point.step > 16 and point.saved == 8
    again = resume(failed.job_folder / "train").wait()
    assert again.code == 0, again.output
    assert [saved.epoch for saved in again.of(Saved)] == [1, 3, 4]


def test_a_resume_point_that_does_not_fit_keeps_the_previous_one(train: Any, start: Any, full: Any) -> None:
    full(lambda target: target.name.startswith("resume_"))
    outcome = train(networks.LINEAR, **SETTINGS)
    assert len(outcome.of(Saved)) == 4
    assert any("resume_" in event.message for event in outcome.of(Warned))


def test_only_the_last_snapshot_must_be_saved(fail: Any, start: Any, full: Any) -> None:
    full(lambda target: not (target.parent / "room").exists() and target.name != "snapshot_1.ckpt")
    outcome = fail(networks.LINEAR, **SETTINGS)
    (failed,) = outcome.of(Failed)
    assert failed.message.startswith("The disk is full: snapshot_4.ckpt could not be written to ")
    assert "Free up space" in failed.hint
    point = resume_point(outcome.job_folder)
    assert point and point.step == 8
    (outcome.job_folder / "room").touch()
    training = recipe.load(outcome.job_folder / "train", recipe.Train)
    training.resume = True
    training.save(outcome.job_folder / "train")
    again = start(outcome.job_folder / "train").wait()
    assert again.code == 0, again.output
    assert again.of(Saved)[-1].epoch == 4


def test_a_training_resumes_while_the_disk_is_still_full(
    trained: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from digits.core import resume_point as resume_points

    first = trained(networks.LINEAR, **SETTINGS)
    plan = recipe.load(first.job_folder / "train", recipe.Train)
    plan.resume = True
    plan.save(first.job_folder / "train")

    def write(path: Path, value: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(resume_points, "write_json", write)
    again = start(first.job_folder / "train").wait()
    assert again.code == 0, again.output


def test_other_write_errors_end_the_training(fail: Any, monkeypatch: Any, tensorflow: None) -> None:
    def save(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(snapshots, "save", save)
    outcome = fail(networks.LINEAR, **SETTINGS)
    assert "not yours" in outcome.failure.message


def test_the_tensorboard_log_continues_in_a_new_file(in_child: Any, tmp_path: Path) -> None:
    steps = in_child(_written, tmp_path)
    assert steps == [3, 4]


def _written(folder: Path) -> list[int]:
    from tensorflow.compat.v1.train import summary_iterator

    original, tensorboard_log.FULL_SECONDS = tf.io.TFRecordWriter, 0.0
    tf.io.TFRecordWriter = lambda path: original("/dev/full")
    with tensorboard_log.TensorBoardLog(folder) as board:
        board.scalars([(1, {"loss": 1.0})])
        board.scalars([(2, {"loss": 1.0})])
        tf.io.TFRecordWriter = original
        board.scalars([(3, {"loss": 1.0})])
        board.scalars([(4, {"loss": 1.0})])
    events = [event for file in sorted(folder.iterdir()) for event in summary_iterator(str(file))]
    return [event.step for event in events if event.summary.value]
