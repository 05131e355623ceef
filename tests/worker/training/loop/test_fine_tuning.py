"""Fine-tuning: the head first, then all layers, from pretrained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import PhaseChanged, Warned, WeightsLoaded
from digits.core.resume_point import resume_points
from tests.worker import networks
from tests.worker.conftest import snapshot

NETWORK = networks.classifier(
    """
x = keras.layers.Conv2D(4, 3, strides=2, name='conv')(self.x / 255.0)
x = keras.layers.BatchNormalization(momentum=0.5, name='norm')(x, training=self.is_training)
x = keras.layers.Flatten()(tf.nn.relu(x))
return keras.layers.Dense(self.nclasses, name='{head}')(x)
""",
    head="import keras",
)
OLD, NEW = NETWORK.format(head="old"), NETWORK.format(head="new")
FINE_TUNE = {"head_epochs": 1, "head_rate": 0.01, "trunk_factor": 0.5}
TRUNK = {"model/conv/kernel", "model/conv/bias", "model/norm/gamma", "model/norm/beta"}
AVERAGES = {"model/norm/moving_mean", "model/norm/moving_variance"}


@pytest.fixture
def old(trained: Any) -> Path:
    """The last snapshot of a trained network."""
    return trained(OLD, "old", epochs=1).job_folder / "snapshot_1.ckpt"


def _changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    return {name for name in TRUNK | AVERAGES if not np.array_equal(before[name], after[name])}


def test_the_head_is_trained_first_and_then_all_layers(train: Any, old: Path) -> None:
    outcome = train(NEW, weights=str(old), fine_tune=FINE_TUNE, epochs=2)
    before = snapshot(old.parent, old.name)
    first, second = (snapshot(outcome.job_folder, f"snapshot_{epoch}.ckpt") for epoch in (1, 2))
    assert _changed(before, first) == set()
    assert _changed(before, second) == TRUNK
    assert not np.array_equal(first["model/new/kernel"], second["model/new/kernel"])
    rates = outcome.values("train", "learning_rate")
    assert rates[0] == FINE_TUNE["head_rate"]
    (change,) = outcome.of(PhaseChanged)
    assert (change.step, change.epoch) == (8, 1)
    (loaded,) = outcome.of(WeightsLoaded)
    assert set(loaded.taken) == TRUNK | AVERAGES


def test_a_head_phase_of_all_epochs_leaves_no_step_for_other_layers(train: Any, old: Path) -> None:
    """Epochs of 2.13 steps: three take seven steps, and not six and one that trains all layers."""
    settings = {"fine_tune": {**FINE_TUNE, "head_epochs": 3}, "epochs": 3, "batch_size": 30}
    outcome = train(NEW, weights=str(old), **settings)
    before, after = snapshot(old.parent, old.name), snapshot(outcome.job_folder, "snapshot_3.ckpt")
    assert _changed(before, after) == set() and not outcome.of(PhaseChanged)
    assert len(outcome.values("train", "loss")) == 7
    (remark,) = outcome.of(Warned)
    assert remark.is_remark and remark.message.startswith("Only the head is trained")


def test_a_resumed_fine_tuning_ends_with_the_same_weights(
    model: Any, start: Any, resume: Any, old: Path, often: None
) -> None:
    settings = {"weights": str(old), "fine_tune": FINE_TUNE, "epochs": 2}
    whole = start(model(NEW, "whole", **settings)).wait()
    assert whole.code == 0, whole.output
    task = model(NEW, "parts", **settings)
    running = start(task)
    while not resume_points(task.parent)[0]:
        assert running.poll() is None, running.output()
    running.stop()
    running.wait()
    assert resume(task).wait().code == 0
    one, other = (snapshot(job, "snapshot_2.ckpt") for job in (whole.job_folder, task.parent))
    assert one.keys() == other.keys()
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []


def test_without_a_new_head_all_layers_are_trained_at_once(train: Any, old: Path) -> None:
    outcome = train(OLD, weights=str(old), fine_tune=FINE_TUNE, epochs=1)
    before, after = (snapshot(old.parent, old.name), snapshot(outcome.job_folder, "snapshot_1.ckpt"))
    assert _changed(before, after) == TRUNK


# The compiled steps of the head phase, which are built first, call a kernel that the device lacks.
FAULTY_HEAD = NEW.replace(
    "import keras", "import keras\nfrom tensorflow.compiler.tf2xla.ops import gen_xla_ops\nbuilt = []"
).replace(
    "        x = keras.layers.Flatten()",
    """
        if self.is_training:
            built.append(1)
            if len(built) == 1:
                x = gen_xla_ops.xla_custom_call([x], 'no_such_kernel', '', tf.float32, tf.TensorShape([8, 5, 5, 4]))
        x = keras.layers.Flatten()""",
)


@pytest.mark.nightly  # a step without XLA is reported in tests/worker/training/step/test_device_config.py
def test_a_head_phase_without_xla_is_reported(train: Any, old: Path) -> None:
    outcome = train(FAULTY_HEAD, weights=str(old), fine_tune=FINE_TUNE, epochs=2, xla=True)
    (warning,) = outcome.of(Warned)
    assert "no_such_kernel" in warning.message


def test_weights_of_another_network_are_refused(fail: Any, trained: Any) -> None:
    other = trained(networks.LINEAR, "other").job_folder / "snapshot_1.ckpt"
    outcome = fail(NEW, weights=str(other), fine_tune=FINE_TUNE)
    assert "do not fit this network" in outcome.failure.message


def test_fine_tuning_needs_weights(fail: Any) -> None:
    outcome = fail(NEW, fine_tune=FINE_TUNE)
    assert outcome.failure.message == "Fine-tuning requires pretrained weights."
