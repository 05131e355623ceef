"""Early stopping and the resume point, as plain values and as files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from digits.core.metrics.best_metric import EarlyStopping, lower_is_better
from digits.core.resume_point import ResumePoint, resume_point, resume_points


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("loss", True),
        ("d_loss", True),
        ("cross_entropy", True),
        ("mse", True),
        ("top_1_error", True),
        ("accuracy", False),
        ("mIoU", False),
        ("psnr", False),
    ],
)
def test_the_direction_depends_on_the_metric_name(metric: str, lower: bool) -> None:
    assert lower_is_better(metric) is lower


def test_the_first_of_equal_values_is_the_best() -> None:
    watch = EarlyStopping("accuracy", 1, lower_is_better=False)
    seen = [
        watch.observe(epoch, {"accuracy": value})
        for epoch, value in enumerate([0.5, float("nan"), 0.7, 0.7, 0.6, float("inf")], 1)
    ]
    assert seen == [True, False, True, False, False, False]
    assert watch.as_json() == {"epoch": 3, "metric": "accuracy", "value": 0.7}


def test_the_head_of_a_pretrained_network_starts_no_patience() -> None:
    watch = EarlyStopping("loss", 2, lower_is_better=True, after=2)
    for epoch, loss in enumerate([1.0, 0.4, 0.3, 0.9, 0.8]):
        watch.observe(epoch, {"loss": loss})
        assert watch.reason(epoch) == ""
    assert (watch.value, watch.epoch) == (0.8, 4)
    watch.observe(6, {"loss": 0.9})
    assert "better than 0.8 since epoch 4" in watch.reason(6)


def test_a_restored_watch_continues() -> None:
    watch = EarlyStopping("loss", 1, lower_is_better=True)
    watch.restore({"metric": "loss", "value": 0.5, "epoch": 2})
    assert not watch.observe(3, {"loss": 0.6})
    assert watch.observe(4, {"loss": 0.4})
    other = EarlyStopping("accuracy", 1, lower_is_better=False)
    other.restore({"metric": "loss", "value": 0.5, "epoch": 2})
    assert other.value is None


def test_a_resume_point_requires_its_snapshot(tmp_path: Path) -> None:
    point = ResumePoint(snapshot="resume_5.ckpt", step=5, epoch=0.5, seed=1, records=10, step_records=1)
    point.save(tmp_path)
    assert resume_point(tmp_path) is None
    (tmp_path / "resume_5.ckpt.index").touch()
    assert resume_point(tmp_path) == point
    assert resume_point(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "damage",
    ["{", "[]", "{}", '{"sha256": "", "point": {"step": 9, "snapshot": "resume_9.ckpt"}}', '{"point": []}'],
)
def test_a_damaged_resume_point_is_ignored(tmp_path: Path, damage: str) -> None:
    for step in (5, 9):
        name = f"resume_{step}.ckpt"
        ResumePoint(snapshot=name, step=step, epoch=0.5, seed=1, records=10, step_records=1).save(tmp_path)
        (tmp_path / f"{name}.index").touch()
    (tmp_path / "resume_9.ckpt.resume.json").write_text(damage)
    point = resume_point(tmp_path)
    assert point and point.step == 5
    points, faults = resume_points(tmp_path)
    assert points == [point] and list(faults) == ["resume_9.ckpt"]


def test_the_order_of_keys_in_a_resume_point_does_not_matter(tmp_path: Path) -> None:
    point = ResumePoint(snapshot="resume_5.ckpt", step=5, epoch=0.5, seed=1, records=10, step_records=1)
    point.save(tmp_path)
    (tmp_path / "resume_5.ckpt.index").touch()
    path = tmp_path / "resume_5.ckpt.resume.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"point": dict(reversed(body["point"].items()))}))
    assert resume_point(tmp_path) == point


def test_every_altered_byte_of_a_resume_point_is_detected(tmp_path: Path) -> None:
    point = ResumePoint(snapshot="resume_5.ckpt", step=5, epoch=0.5, seed=1, records=10, step_records=1)
    point.save(tmp_path)
    path = tmp_path / "resume_5.ckpt.resume.json"
    whole = path.read_bytes()
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        points, faults = resume_points(tmp_path)
        assert points == [point] or faults  # only white space may differ


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_never_the_best(value: float) -> None:
    for metric in ("score", "loss"):
        watch = EarlyStopping(metric, 1, lower_is_better(metric))
        assert not watch.observe(1, {metric: value})
        assert watch.observe(2, {metric: 0.5}) and not watch.observe(3, {metric: value})
        assert watch.as_json() == {"epoch": 2, "metric": metric, "value": 0.5}


def test_training_stops_when_patience_runs_out() -> None:
    stopping = EarlyStopping("accuracy", 2, lower_is_better=False)
    for epoch, value in enumerate([0.5, 0.8, 0.7]):
        stopping.observe(epoch, {"accuracy": value, "loss": 0})
        assert stopping.reason(epoch) == ""
    stopping.observe(3, {"accuracy": 0.8})
    assert "not been better than 0.8 since epoch 1" in stopping.reason(3)


def test_a_smaller_loss_is_an_improvement_and_nan_is_not() -> None:
    stopping = EarlyStopping("loss", 1, lower_is_better=True)
    stopping.observe(1, {"loss": 2.0})
    stopping.observe(2, {"loss": 1.0})
    assert stopping.reason(2) == ""
    stopping.observe(3, {"loss": math.nan})
    assert stopping.reason(3)


def test_early_stopping_continues_from_a_saved_state() -> None:
    first, second = (EarlyStopping("loss", 2, lower_is_better=True) for _ in range(2))
    first.observe(1, {"loss": 1.0})
    second.restore(json.loads(json.dumps(first.as_json())))
    assert second.reason(2) == "" and second.reason(3) == first.reason(3) != ""
    other = EarlyStopping("accuracy", 2, lower_is_better=False)
    other.restore(first.as_json())
    assert other.reason(9) == ""
