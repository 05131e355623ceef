"""What a training reports of its first step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import events
from digits.kinds.standard_networks import network
from tests.worker import networks
from tests.worker.conftest import Outcome, write_dataset
from tests.worker.lazily import tf


def warnings_of(outcome: Outcome) -> list[str]:
    return [event.message for event in outcome.of(events.Warned)]


@pytest.mark.parametrize(
    ("start", "cost", "kind", "words"),
    [
        ({"cross_entropy": 2.3}, {}, "good", "near the chance level."),
        ({}, {}, "unknown", "finite"),
        ({"cross_entropy": 0.1}, {}, "low", "far below"),
        ({"cross_entropy": 0.1, "has_weights": True}, {}, "unknown", "earlier training"),
        ({"cross_entropy": 40.0}, {}, "high", "Scale the input down"),
        ({"cross_entropy": 40.0, "has_normalization": True}, {}, "high", "last layer"),
        ({"cross_entropy": 5.8, "has_normalization": True}, {}, "good", "as is usual with normalized"),
        ({"loss": math.nan, "cross_entropy": math.nan, "has_weights": True}, {}, "bad", "NaN"),
        ({"loss": math.inf}, {}, "bad", "infinite"),
        ({"cross_entropy": 2.3}, {"seconds": 3300.0}, "long", "about 55 minutes."),
        (
            {"cross_entropy": 2.3},
            {
                "seconds": 3300.0,
                "images": 675,
                "parameters": 70_250_000,
                "largest": ("model/fc1/weights", 70_000_000),
            },
            "large",
            "70,000,000 of them in model/fc1/weights, but only 675 training images (104,074 per image)",
        ),
        (
            {"cross_entropy": 2.3, "has_weights": True},
            {"images": 675, "parameters": 70_250_000},
            "unknown",
            "earlier",
        ),
        ({"has_places": True}, {"images": 21, "parameters": 282_037}, "unknown", "The loss is finite."),
        (
            {"cross_entropy": 40.0},
            {"images": 675, "parameters": 70_250_000},
            "high",
            "too large. The network",
        ),
    ],
)
def test_verdicts(
    tensorflow: None, start: dict[str, Any], cost: dict[str, Any], kind: str, words: str
) -> None:
    from digits.worker.training.loop import assessment

    judged = assessment.verdict(
        assessment.Start(**{"loss": 2.3, "classes": 10, **start}),
        assessment.Cost(**{"seconds": 1700.0, "images": 1000, "parameters": 431_080, **cost}),
    )
    assert judged.level == kind and words in f"{judged.message} {judged.advice}", judged


RANDOM = networks.classifier(
    """
x = tf.keras.layers.Conv2D(4, 3)(self.x / 100.0)
x = tf.keras.layers.BatchNormalization(momentum=0.999)(x, training=self.is_training)
x = tf.keras.layers.Dropout(0.5)(tf.keras.layers.Flatten()(x), training=self.is_training)
return tf.keras.layers.Dense(self.nclasses)(x)
"""
)


def test_a_network_is_measured_without_a_trace(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving averages, random numbers and the state of the optimizer continue as if nothing had been measured."""
    from digits.worker.training.loop import network_checks

    settings = {"solver": {"type": "ADAM", "learning_rate": 0.01}, "augment": {"noise": 0.1}}
    measured = train(RANDOM, name="measured", **settings)
    assert any("moving averages such as" in message for message in warnings_of(measured))
    monkeypatch.setattr(network_checks, "findings", lambda *given: [])
    plain = train(RANDOM, name="plain", **settings)
    assert not warnings_of(plain)
    for stage in ("train", "val"):
        assert measured.values(stage, "loss") == plain.values(stage, "loss")
    ours, others = (
        tf.train.load_checkpoint(str(each.job_folder / "snapshot_2.ckpt")) for each in (measured, plain)
    )
    names = ours.get_variable_to_shape_map()
    assert names == others.get_variable_to_shape_map()
    for name in names:
        assert np.array_equal(ours.get_tensor(name), others.get_tensor(name)), name


def test_warnings_name_what_to_change_and_come_once(train: Any) -> None:
    loud = networks.LINEAR.replace("self.x / 100.0", "self.x * 10.0")
    outcome = train(loud)
    (message,) = warnings_of(outcome)
    assert "far above the chance level" in message and "Scale the input down" in message
    rows = [event for event in outcome.of(events.Measured) if event.stage == "train"]
    assert set(rows[0].values) == {"loss", "accuracy", "learning_rate"}


def test_only_the_size_of_a_standard_network_is_judged(train: Any, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "dataset", {"train": 24}, size=28, channels=1)
    outcome = train(network("lenet").text, dataset=str(dataset), epochs=1)
    (message,) = warnings_of(outcome)
    assert "it will memorize the images. Choose a smaller one, or add images." in message
    assert (outcome.job_folder / "batch.png").read_bytes().startswith(b"\x89PNG")


def test_a_loss_without_value_at_the_first_step_is_no_question_of_the_rate(fail: Any) -> None:
    outcome = fail(networks.LINEAR.replace("return digits.", "return tf.math.log(-1.0) + digits."))
    assert outcome.failure.message.startswith("The loss is not a number (NaN) at the first step")
    assert "Detect NaN/Inf" in outcome.failure.hint
    assert outcome.failure.remedy == {"numerics_checks": "true"}


def test_a_lack_of_memory_suggests_half_of_the_batch(fail: Any) -> None:
    huge = networks.LINEAR.replace(
        "return digits.", "return tf.reduce_mean(tf.fill([2**24, 2**24], self.x[0, 0, 0, 0])) + digits."
    )
    outcome = fail(huge)
    assert "memory" in outcome.failure.hint, outcome.failure
    assert outcome.failure.remedy == {"batch_factor": "0.5"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (600.0, ""),
        (4 * 3600.0, "Training will take about 4 hours. With 3 epochs, it would take half an hour."),
        (96 * 3600.0, "Training will take about 4 days."),
    ],
)
def test_a_long_training_says_how_long_it_takes(tensorflow: None, seconds: float, words: str) -> None:
    from digits.core.recipe import Train
    from digits.worker.training.loop import assessment

    assert assessment.remark_on_time(Train(dataset="", epochs=24), seconds) == words
