"""The best value of a metric, and early stopping."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from digits.core.metrics.best_metric import EarlyStopping, lower_is_better


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


@pytest.mark.parametrize(
    ("metric", "values", "best_so_far"),
    [
        ("accuracy", [0.5, nan, 0.7, 0.7, 0.6, inf], [True, False, True, False, False, False]),
        ("score", [-inf, 0.5, inf, nan], [False, True, False, False]),
        ("loss", [nan, inf, 2.0, 1.0, -inf, 1.0], [False, False, True, True, False, False]),
    ],
)
def test_the_first_of_the_best_finite_values_is_the_best(
    metric: str, values: list[float], best_so_far: list[bool]
) -> None:
    watch = EarlyStopping(metric, 1, lower_is_better(metric))
    assert [watch.observe(epoch, {metric: value}) for epoch, value in enumerate(values)] == best_so_far
    best = max(epoch for epoch, is_best in enumerate(best_so_far) if is_best)
    assert watch.as_json() == {"epoch": best, "metric": metric, "value": values[best]}


def test_training_stops_when_patience_runs_out() -> None:
    stopping = EarlyStopping("accuracy", 2, lower_is_better=False)
    for epoch, value in enumerate([0.5, 0.8, 0.7]):
        stopping.observe(epoch, {"accuracy": value, "loss": 0})
        assert stopping.reason(epoch) == ""
    stopping.observe(3, {"accuracy": 0.8})
    assert "not been better than 0.8 since epoch 1" in stopping.reason(3)


def test_the_head_of_a_pretrained_network_starts_no_patience() -> None:
    watch = EarlyStopping("loss", 2, lower_is_better=True, after=2)
    for epoch, loss in enumerate([1.0, 0.4, 0.3, 0.9, 0.8]):
        watch.observe(epoch, {"loss": loss})
        assert watch.reason(epoch) == ""
    assert (watch.value, watch.epoch) == (0.8, 4)
    watch.observe(6, {"loss": 0.9})
    assert "better than 0.8 since epoch 4" in watch.reason(6)


def test_early_stopping_continues_from_a_saved_state() -> None:
    first, second = (EarlyStopping("loss", 2, lower_is_better=True) for _ in range(2))
    first.observe(1, {"loss": 1.0})
    second.restore(json.loads(json.dumps(first.as_json())))
    assert second.reason(2) == "" and second.reason(3) == first.reason(3) != ""
    assert not second.observe(3, {"loss": 1.1}) and second.observe(4, {"loss": 0.9})
    other = EarlyStopping("accuracy", 2, lower_is_better=False)
    other.restore(first.as_json())
    assert other.value is None and other.reason(9) == ""
