"""The accuracy of a linear classifier on pretrained features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events, recipe


def _leave_one_out(share: float) -> float:
    """Return the accuracy for classes that ``share`` of the records show in their features."""
    from digits.worker.tasks.probe_accuracy import leave_one_out

    chance = np.random.default_rng(0)
    labels = np.arange(60) % 3
    shown = np.where(np.arange(60) < 60 * share, labels, (labels + 1) % 3)
    features = np.eye(8)[shown] + 0.01 * chance.normal(size=(60, 8))
    return leave_one_out(features.astype(np.float32), labels)


def _save_weights(path: str) -> None:
    import keras

    keras.applications.MobileNetV3Large(
        weights=None, include_top=False, input_shape=(32, 32, 3), pooling="avg"
    ).save_weights(path)


def test_each_record_is_classified_by_all_others(in_child: Any) -> None:
    assert in_child(_leave_one_out, 1.0) == 1.0
    assert in_child(_leave_one_out, 0.8) == pytest.approx(0.8)


def test_the_accuracy_of_a_dataset_is_estimated(
    in_child: Any, gradients: Path, tmp_path: Path, perform: Any
) -> None:
    weights = tmp_path / "mobilenetv3.weights.h5"
    in_child(_save_weights, str(weights))
    task = tmp_path / "scratch" / "probe-accuracy"
    task.mkdir(parents=True)
    recipe.ProbeAccuracy(
        dataset=str(gradients), network="mobilenetv3", weights=str(weights), records=20
    ).save(task)
    outcome = perform(task)
    assert outcome.code == 0, outcome.output
    result = outcome.of(events.Finished)[0].result
    assert result["images"] == 20
    assert 0 <= result["low"] <= result["accuracy"] <= result["high"] <= 1
