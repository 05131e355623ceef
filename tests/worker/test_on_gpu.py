"""Trainings on a real GPU; these tests are skipped on machines without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import InputPrepared, Progressed, Warned
from digits.runtime.devices import Driver, DriverError
from digits.runtime.executors.local import devices_environment
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot, write_dataset
from tests.worker.lazily import memory


def _is_there() -> bool:
    try:
        return bool(Driver().ask())
    except DriverError:
        return False


pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not _is_there(), reason="this machine has no NVIDIA GPU"),
]

MOMENTUM = {"type": "MOMENTUM", "learning_rate": 0.02, "momentum": 0.9}
EVERYTHING = {
    "flip": "fliplrud",
    "rotation": 10.0,
    "noise": 0.05,
    "hsv_value": 0.1,
    "cutmix": 0.2,
    "mixup": 0.2,
}
PICTURES = networks.KERAS_LENET.replace(
    "accuracy = ",
    "self.summaries.append(tf.summary.histogram('logits', self.inference))\n        accuracy = ",
)


@pytest.fixture
def train_on_gpu(train: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def train_on_gpu(network: str, **settings: Any) -> Outcome:
        for name, value in devices_environment(["0"]).items():
            monkeypatch.setenv(name, value)
        outcome = train(network, devices=["0"], **settings)
        assert outcome.code == 0, outcome.output
        assert [event.message for event in outcome.of(Warned)] == []
        return outcome

    return train_on_gpu


@pytest.mark.parametrize("xla", [True, False])
@pytest.mark.parametrize("precision", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_networks_learn_on_a_gpu(train_on_gpu: Any, precision: str, xla: bool) -> None:
    outcome = train_on_gpu(PICTURES, epochs=15, solver=MOMENTUM, precision=precision, xla=xla)
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert ("Compiling a step" in [event.doing for event in outcome.of(Progressed)]) is xla


def test_xla_is_enabled_by_default(train_on_gpu: Any) -> None:
    outcome = train_on_gpu(networks.LENET.replace("[5, 5]", "[3, 3]"), batch_accumulation=2)
    assert "Compiling a step" in [event.doing for event in outcome.of(Progressed)]


@pytest.mark.parametrize("xla", [True, False])
def test_images_are_augmented_on_a_gpu(train_on_gpu: Any, xla: bool) -> None:
    outcome = train_on_gpu(networks.LINEAR, augment=EVERYTHING, crop_size=10, xla=xla, histograms=True)
    assert np.isfinite(outcome.values("train", "loss")).all()


@pytest.mark.parametrize("size", [12, 13], ids=["even", "odd"])
def test_streamed_images_give_the_same_result(
    train_on_gpu: Any, tmp_path: Path, monkeypatch: Any, size: int
) -> None:
    dataset = write_dataset(tmp_path / "pictures", {"train": 64, "val": 22}, size=size, channels=1)
    kept = train_on_gpu(networks.LINEAR, name="kept", dataset=str(dataset), solver=MOMENTUM)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    read = train_on_gpu(networks.LINEAR, name="read", dataset=str(dataset), solver=MOMENTUM)
    assert {event.how for event in read.of(InputPrepared)} == {"streamed"}
    first, second = (snapshot(outcome.job_folder, "snapshot_2.ckpt") for outcome in (kept, read))
    for name, value in first.items():
        assert second[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_a_gpu_matches_a_cpu(train: Any, train_on_gpu: Any) -> None:
    here = train(networks.LINEAR, name="here", solver=MOMENTUM)
    there = train_on_gpu(networks.LINEAR, name="there", solver=MOMENTUM, xla=False)
    first, second = (snapshot(outcome.job_folder, "snapshot_2.ckpt") for outcome in (here, there))
    for name, value in first.items():
        # GPUs multiply with reduced precision where allowed.
        assert second[name] == pytest.approx(value, rel=2e-2, abs=2e-3), name


def test_a_training_respects_its_memory_limit(train_on_gpu: Any) -> None:
    outcome = train_on_gpu(networks.LINEAR, gpu_memory_mb=512)
    assert {event.place for event in outcome.of(InputPrepared)} == {"GPU memory"}
    assert all(event.budget_bytes <= 0.4 * 512 * 2**20 for event in outcome.of(InputPrepared))
