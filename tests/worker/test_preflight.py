"""Trying a training before it is started, in a process as the server starts it."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits import events
from digits.model.networks import template
from tests.worker import networks
from tests.worker.conftest import Outcome, write_dataset

pytestmark = pytest.mark.tensorflow


def result(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.output
    return outcome.of(events.Finished)[0].result


def picture(outcome: Outcome) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO((outcome.job_folder / "batch.png").read_bytes())))


def test_what_a_training_would_cost(preflight: Any) -> None:
    outcome = preflight(networks.LINEAR, solver={"type": "ADAM", "learning_rate": 0.01})
    found = result(outcome)
    assert found["parameters"] == 12 * 12 * 4 + 4
    assert found["image_shape"] == found["shape"] == [12, 12, 1]
    assert (found["classes"], found["batch_size"], found["batches_per_step"]) == (4, 8, 1)
    assert (found["steps_per_epoch"], found["steps"]) == (8, 24)
    assert 0 < found["seconds_per_step"] < found["seconds_per_epoch"] < found["seconds_total"]
    assert found["seconds_per_step"] == found["seconds_computing"]  # images in memory
    assert found["images_per_second"] == pytest.approx(8 / found["seconds_per_step"])
    assert found["memory_bytes"] > 50e6 and found["gpu_memory_bytes"] is None
    assert found["resident_bytes"] == (64 + 22) * 144
    assert (found["input"]["how"], found["input"]["bytes"]) == ("resident", 64 * 144)
    assert found["input"]["reason"].startswith("which fits into the ")
    assert found["validation_input"]["records"] == 22
    assert (found["precision"], found["xla"], found["seed"]) == ("float32", False, 1)
    assert outcome.of(events.Built) and len(outcome.of(events.Fed)) == 2
    assert list((outcome.job_folder / "tb").iterdir())
    assert not list(outcome.job_folder.glob("snapshot*"))
    described = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert [name for name in found if f"`{name}`" not in described] == []


def test_the_loss_is_compared_with_chance(preflight: Any) -> None:
    found = result(preflight(networks.LINEAR))
    assert found["chance_loss"] == pytest.approx(math.log(4))
    assert found["loss"] == found["metrics"]["val"]["loss"]
    assert found["verdict_kind"] == "good", found["verdict"]
    assert set(found["metrics"]["train"]) == {"loss", "accuracy"}
    loud = networks.LINEAR.replace("self.x / 100.0", "self.x * 10.0")
    assert result(preflight(loud))["verdict_kind"] == "high"


@pytest.mark.parametrize(
    ("loss", "chance", "has_weights", "kind"),
    [
        (2.3, 2.303, False, "good"),
        (2.3, None, False, "unknown"),
        (0.1, 2.303, False, "low"),
        (0.1, 2.303, True, "unknown"),
        (40.0, 2.303, False, "high"),
        (math.nan, 2.303, True, "bad"),
        (math.inf, None, False, "bad"),
    ],
)
def test_verdicts(tensorflow: None, loss: float, chance: float | None, has_weights: bool, kind: str) -> None:
    from digits.worker import preflight

    assert preflight.verdict(loss, chance, has_weights).kind == kind


def test_a_loss_that_is_no_number_is_no_mistake_of_the_task(preflight: Any) -> None:
    broken = networks.LINEAR.replace("return digits.", "return tf.math.log(-1.0) + digits.")
    found = result(preflight(broken))
    assert found["verdict_kind"] == "bad" and found["loss"] is None


def test_other_losses_have_no_chance(preflight: Any) -> None:
    found = result(preflight(networks.AUTO_ENCODER, val_interval=0))
    assert found["chance_loss"] is None and found["verdict_kind"] == "unknown"
    assert found["metrics"]["val"] is None and found["seconds_per_validation"] is None
    assert found["validation_input"] is None


@pytest.mark.parametrize("mean", ["image", "pixel", "none"])
def test_the_picture_shows_the_first_batch(preflight: Any, gradients: Path, mean: str) -> None:
    from digits.dataset import manifest, records

    outcome = preflight(networks.LINEAR, mean=mean, shuffle=False)
    assert result(outcome)["batch"] == [{"label": label} for label in ["right", "left", "down", "up"] * 2]
    sheet = picture(outcome)
    assert sheet.shape == (48, 8 * 50 - 2)
    with records.SplitReader(gradients, manifest.load(gradients).splits["train"]) as reader:
        expected = reader.read(3).as_array()[..., 0]
    shown = sheet[::4, 150:198:4]
    assert np.abs(shown.astype(int) - expected).max() <= 1


def test_the_picture_shows_what_augmentation_did(preflight: Any) -> None:
    augment = {"pad_crop": 6, "mixup": 1.0, "whitening": True}
    changed = preflight(networks.LINEAR, mean="none", shuffle=False, augment=augment, crop_size=10)
    assert result(changed)["shape"] == [10, 10, 1]
    assert picture(changed).shape == (50, 8 * 52 - 2)
    first, second = result(changed)["batch"][:2]
    assert (first["label"], first["other"], second["other"]) == ("right", "up", "right")
    assert 0 < first["share"] < 1


@pytest.mark.parametrize("xla", [False, True])
def test_the_picture_is_of_the_images_that_the_step_sees(preflight: Any, train: Any, xla: bool) -> None:
    # The curve is the sum of the first batch; so the picture's first image can be told from others.
    network = networks.LINEAR.replace(
        "model = slim.flatten(self.x / 100.0)",
        "self.summaries.append(tf.summary.scalar('sum', tf.reduce_mean(self.x)))\n"
        "        model = slim.flatten(self.x / 100.0)",
    )
    augment = {"contrast": 0.9, "noise": 0.1, "hsv_value": 0.4}
    settings = {"augment": augment, "mean": "none", "xla": xla}
    tried = preflight(network, **settings)
    trained = train(network, epochs=1, **settings)
    sheet = picture(tried).astype(float)
    shown = np.mean([sheet[::4, 50 * place : 50 * place + 48 : 4].mean() for place in range(8)])
    first_of_training = trained.values("train", "sum")[0]
    assert result(tried)["metrics"]["train"]["sum"] == pytest.approx(first_of_training, rel=1e-6)
    assert shown == pytest.approx(first_of_training, abs=0.1)


def test_large_colour_images_are_made_smaller(
    preflight: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("large")
    write_dataset(folder, {"train": 12}, size=200, channels=3, encoding="jpg")
    outcome = preflight(networks.LINEAR, dataset=str(folder), batch_size=12)
    assert picture(outcome).shape == (2 * 162 - 2, 8 * 162 - 2, 3)
    assert len(result(outcome)["batch"]) == 12


def test_mistakes_are_told_as_in_a_training(preflight: Any) -> None:
    outcome = preflight(networks.LINEAR.replace("self.nclasses", "self.classes"))
    assert outcome.code == 1
    assert outcome.failure.message.startswith("AttributeError") and outcome.failure.line == 6
    outcome = preflight(networks.LINEAR, augment={"flip": "over"})
    assert outcome.failure.message == "The augmentation flip cannot be 'over'."


def test_a_mistake_that_only_a_real_step_shows(preflight: Any) -> None:
    network = networks.LINEAR.replace(
        "model = slim.flatten(self.x / 100.0)",
        "model = tf.reshape(self.x / 100.0, [-1, 100])",
    )
    outcome = preflight(network)
    assert outcome.code == 1
    assert "cannot be reshaped" in outcome.failure.message and outcome.failure.line is not None
    assert "Input to reshape" in outcome.failure.detail


def test_the_network_that_the_editor_starts_with_trains(preflight: Any) -> None:
    outcome = preflight(template())
    assert outcome.code == 0, outcome.output
    stages = [event.doing for event in outcome.of(events.Progressed)]
    assert stages == ["Reading the dataset", "Building the network", "Trying a step"]


def test_a_step_of_several_batches(preflight: Any) -> None:
    found = result(preflight(networks.LINEAR, batch_accumulation=2))
    assert (found["batches_per_step"], found["steps"], found["steps_per_epoch"]) == (2, 12, 4)


@pytest.mark.parametrize("val_interval", [0, 1])
def test_the_operation_that_gives_no_number_is_named(preflight: Any, val_interval: int) -> None:
    network = networks.LINEAR.replace(
        "return slim", "model = tf.log(model * 0.0, name='unsound')\n        return slim", 1
    )
    outcome = preflight(network, numerics_checks=True, val_interval=val_interval)
    assert outcome.code == 1
    assert "unsound (Log)" in outcome.failure.message
    assert "tf.log" in network.splitlines()[outcome.failure.line - 1]
