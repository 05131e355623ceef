"""Early stopping."""

from __future__ import annotations

import json
import math

from digits.worker.training.weights.early_stopping import EarlyStopping


def test_training_stops_when_patience_runs_out() -> None:
    stopping = EarlyStopping("accuracy", 2, is_lower_better=False)
    for epoch, value in enumerate([0.5, 0.8, 0.7]):
        stopping.observe(epoch, {"accuracy": value, "loss": 0})
        assert stopping.reason(epoch) == ""
    stopping.observe(3, {"accuracy": 0.8})
    assert "not been better than 0.8 since epoch 1" in stopping.reason(3)


def test_a_smaller_loss_is_an_improvement_and_nan_is_not() -> None:
    stopping = EarlyStopping("loss", 1, is_lower_better=True)
    stopping.observe(1, {"loss": 2.0})
    stopping.observe(2, {"loss": 1.0})
    assert stopping.reason(2) == ""
    stopping.observe(3, {"loss": math.nan})
    assert stopping.reason(3)


def test_early_stopping_continues_from_a_saved_state() -> None:
    first, second = (EarlyStopping("loss", 2, is_lower_better=True) for _ in range(2))
    first.observe(1, {"loss": 1.0})
    second.restore(json.loads(json.dumps(first.state())))
    assert second.reason(2) == "" and second.reason(3) == first.reason(3) != ""
    other = EarlyStopping("accuracy", 2, is_lower_better=False)
    other.restore(first.state())
    assert other.reason(9) == ""
