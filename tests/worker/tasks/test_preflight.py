"""The pre-training check, in a process as started by the server."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import events
from digits.data import manifest
from digits.data.records import records
from digits.data.targets.class_index import ClassIndex
from digits.kinds.standard_networks import template
from tests.worker import networks
from tests.worker.conftest import Outcome, write_dataset
from tests.worker.lazily import label_flow, network_loader, tf, tower, variables


def result(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.output
    return outcome.of(events.Finished)[0].result


def image(outcome: Outcome) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO((outcome.job_folder / "batch.png").read_bytes())))


def test_the_cost_of_a_training_is_estimated_and_its_loss_compared_with_chance(preflight: Any) -> None:
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
    assert found["input"]["reason"].startswith("limit ")
    assert found["validation_input"]["records"] == 22
    assert (found["precision"], found["xla"], found["seed"]) == ("float32", False, 1)
    assert found["chance_loss"] == pytest.approx(math.log(4))
    assert found["loss"] == found["cross_entropy"] == found["metrics"]["train"]["loss"]
    assert found["parameters_per_image"] == (12 * 12 * 4 + 4) / 64
    assert found["verdict_level"] == "good", found["verdict"]
    assert set(found["metrics"]["train"]) == set(found["metrics"]["val"]) == {"loss", "accuracy"}
    assert outcome.of(events.Built) and len(outcome.of(events.InputPrepared)) == 2
    assert list((outcome.job_folder / "tb").iterdir())
    assert not list(outcome.job_folder.glob("snapshot*"))
    described = (Path(__file__).resolve().parents[3] / "docs" / "training.md").read_text()
    assert [name for name in found if f"`{name}`" not in described] == []


# The picture is computed only by the steps that write it, and reads behind the last record.
BROKEN_PICTURE = networks.LINEAR.replace(
    "accuracy = ",
    """self.summaries.append(tf.summary.image('broken', tf.gather(self.x, [tf.shape(self.x)[0]])))
        accuracy = """,
)


def test_a_step_with_pictures_is_checked(preflight: Any) -> None:
    outcome = preflight(BROKEN_PICTURE)
    assert outcome.code == 1
    assert "is not in [0, 8)" in outcome.failure.message and "summary.image" in outcome.failure.hint
    # Without a validation, no step writes pictures.
    assert preflight(BROKEN_PICTURE, val_interval=0).code == 0


def test_a_loss_far_above_chance_is_reported(preflight: Any) -> None:
    loud = networks.LINEAR.replace("self.x / 100.0", "self.x * 10.0")
    assert result(preflight(loud))["verdict_level"] == "high"


def test_the_verdict_is_based_on_the_training_loss(preflight: Any) -> None:
    """Initial moving averages distort validation, and weight decay is not an error."""
    network = networks.classifier(
        """
with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(10.0)):
    x = slim.batch_norm(slim.flatten(self.x) * 100.0, is_training=self.is_training)
    return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc') * 0.1
"""
    )
    found = result(preflight(network, mean="none"))
    assert found["metrics"]["val"]["loss"] > 100
    assert found["loss"] > 10 > found["cross_entropy"]
    assert (found["verdict_level"], found["chance_loss"]) == ("good", pytest.approx(math.log(4)))


ENTROPY_BY_HAND = "tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels={}, logits=self.inference))"
LOSS = "digits.classification_loss(self.inference, self.y)"


@pytest.mark.parametrize(
    ("loss", "has_chance"),
    [
        (ENTROPY_BY_HAND.format("tf.one_hot(self.y, self.nclasses)"), True),
        (f"{LOSS} + 3 * {LOSS} + tf.nn.l2_loss(self.inference)", True),
        # Comments and function names do not matter.
        ("digits.mse_loss(self.inference, 0.0)  # not digits.classification_loss", False),
        (ENTROPY_BY_HAND.format("tf.nn.softmax(self.inference)"), False),
        (LOSS.replace("self.inference", "tf.pad(self.inference, [[0, 0], [0, 3]])"), False),
        (f"[{{'loss': {LOSS}}}, {{'loss': tf.reduce_sum(self.inference)}}]", False),
    ],
)
def test_only_classification_has_a_chance_level(
    in_child: Any, tmp_path: Path, loss: str, has_chance: bool
) -> None:
    path = tmp_path / "network.py"
    path.write_text(networks.LINEAR.replace(LOSS, loss))
    assert bool(in_child(_label_flow, path)[0]) == has_chance


def _label_flow(path: Path, batch: int | None = None) -> tuple[int, list[str]]:
    """Return the number of cross-entropies over classes in a network's loss, and the warnings."""
    from digits.kinds.network.targets import in_order

    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [batch, 12, 12, 1])
        y = tf.compat.v1.placeholder(tf.int64, [batch])
        built = network_loader.load(path, (12, 12, 1), ClassIndex.of(list("abcd"))).build(
            variables.VariableStore(), tower.TRAIN, x, y
        )
        losses = [item.loss for item in built.objectives]
        classes, outputs = built.tower.nclasses, in_order(built.output)
        flow = label_flow.follow(x, y, losses, built.metrics.values(), classes, outputs)
    return len(flow.cross_entropies), flow.warnings


PAIRS = "tf.reduce_sum(self.inference, 1, keepdims={})"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            f"digits.mse_loss({PAIRS.format(True)}, self.y)",
            "shape [N] are broadcast with values of shape [N, 1]",
        ),
        (
            f"digits.mse_loss(tf.expand_dims(self.y, 1), {PAIRS.format(False)})",
            "shape [N, 1] are broadcast with values of shape [N]",
        ),
        ("digits.mse_loss(self.inference, self.y)", "values of shape [N, 4]"),
        ("digits.contrastive_loss(self.inference, self.inference * 2.0, self.y)", "0 to 3"),
        (
            "tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.to_float(tf.expand_dims(self.y, 1)), "
            f"logits={PAIRS.format(True)}))",
            "0 to 3",
        ),
        (f"digits.mse_loss({PAIRS.format(False)}, self.y)", ""),
        (f"tf.reduce_mean(tf.where_v2(tf.cast(self.y, tf.bool), {PAIRS.format(False)}, 1.0))", "0 to 3"),
        (f"tf.reduce_mean(tf.boolean_mask({PAIRS.format(False)}, tf.cast(self.y, tf.bool)))", "0 to 3"),
        (f"tf.reduce_mean(tf.where_v2(self.y > 0, {PAIRS.format(False)}, 1.0))", ""),
        ("digits.contrastive_loss(self.inference, self.inference * 2.0, tf.equal(self.y, 1))", ""),
        # Deliberately combines all pairs of labels.
        (
            "tf.reduce_mean(tf.to_float(tf.equal(self.y, tf.expand_dims(self.y, 1))) * "
            "tf.matmul(self.inference, self.inference, transpose_b=True))",
            "",
        ),
        ("digits.mse_loss(self.inference, tf.one_hot(self.y, self.nclasses))", ""),
        (LOSS, ""),
    ],
)
def test_labels_that_broadcast_cause_a_warning(in_child: Any, tmp_path: Path, loss: str, words: str) -> None:
    path = tmp_path / "network.py"
    path.write_text(networks.LINEAR.replace(LOSS, loss))
    warnings = in_child(_label_flow, path)[1]
    if "N, 1" in words:  # with XLA, the batch size is static
        assert in_child(_label_flow, path, 8)[1] == [re.sub(r"\bN\b", "8", text) for text in warnings]
    assert [words in warning for warning in warnings] == [True] * bool(words), warnings
    line = networks.LINEAR.splitlines().index(f"        return {LOSS}") + 1
    assert all(warning.startswith(f"Line {line}: ") for warning in warnings)


SOFTMAX = "tf.nn.softmax(self.inference)"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (LOSS.replace("self.inference", SOFTMAX), "the result of softmax already"),
        (LOSS.replace("self.inference", "tf.nn.sigmoid(self.inference)"), "the result of sigmoid already"),
        (
            ENTROPY_BY_HAND.format("tf.one_hot(self.y, 4)").replace(
                "logits=self.inference", f"logits={SOFTMAX}"
            ),
            "Remove the softmax from the last layer",
        ),
        (
            "tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, "
            f"logits=tf.reshape({SOFTMAX}, [-1, self.nclasses])))",
            "the result of softmax already",
        ),
        (
            "tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(self.y, "
            f"tf.identity({SOFTMAX}), from_logits=True))",
            "the result of softmax already",
        ),
        # Probabilities where they are expected, and a cross-entropy of log-probabilities, which does no harm.
        (f"tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(self.y, {SOFTMAX}))", ""),
        (LOSS.replace("self.inference", "tf.nn.log_softmax(self.inference)"), ""),
        (ENTROPY_BY_HAND.format(SOFTMAX), ""),
    ],
)
def test_softmax_before_a_loss_of_logits_causes_a_warning(
    in_child: Any, tmp_path: Path, loss: str, words: str
) -> None:
    path = tmp_path / "network.py"
    path.write_text(networks.LINEAR.replace(LOSS, loss))
    warnings = in_child(_label_flow, path)[1]
    assert [words in warning for warning in warnings] == [True] * bool(words), warnings
    line = networks.LINEAR.splitlines().index(f"        return {LOSS}") + 1
    assert all(warning.startswith(f"Line {line}: ") for warning in warnings)


ONE_SIGMOID = """
class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.keras.layers.Flatten()(self.x / 255.0)
        return tf.keras.layers.Dense(1, activation="sigmoid")(flat)

    @model_property
    def loss(self):
        wanted = tf.reshape(tf.cast(self.y, tf.float32), [-1, 1])
        return tf.reduce_mean(tf.keras.losses.binary_crossentropy(wanted, self.inference))
"""


def test_probabilities_as_outputs_cause_a_warning(in_child: Any, tmp_path: Path) -> None:
    path = tmp_path / "network.py"
    by_keras = "tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(self.y, self.inference))"
    network = ONE_SIGMOID.replace('Dense(1, activation="sigmoid")', 'Dense(4, activation="softmax")')
    path.write_text(re.sub("return tf.reduce_mean.*", f"return {by_keras}", network))
    count, warnings = in_child(_label_flow, path)
    assert count == 1 and len(warnings) == 1
    assert warnings[0].startswith(
        "Line 6: the network returns the result of softmax, and predictions apply softmax"
    )


def test_a_single_output_for_several_classes_causes_a_warning(preflight: Any) -> None:
    messages = [event.message for event in preflight(ONE_SIGMOID).of(events.Warned)]
    (message,) = [text for text in messages if "make predictions" in text]
    assert message.startswith(
        "Line 6: the network returns 1 value for each image, but there are 4 classes: it can be trained, but not make "
        "predictions. Return a value for each class, for example with Dense(4)"
    )


def test_label_warnings_are_part_of_the_result_and_accumulation_of_the_cost(preflight: Any) -> None:
    summed = networks.LINEAR.replace(LOSS, f"digits.mse_loss({PAIRS.format(True)}, self.y)")
    outcome = preflight(summed, batch_accumulation=2)
    found = result(outcome)
    assert found["chance_loss"] is None
    assert (found["batches_per_step"], found["steps"], found["steps_per_epoch"]) == (2, 12, 4)
    (warning,) = outcome.of(events.Warned)
    assert "labels meet values of other images" in warning.message


def test_the_smaller_last_validation_batch_is_checked(preflight: Any) -> None:
    halves = networks.LINEAR.replace("self.x / 100.0", "tf.concat(tf.split(self.x, 2), 0)")
    assert preflight(halves, batch_size=10).code == 0  # the last batch has 2 of 22
    outcome = preflight(halves, batch_size=9)
    assert outcome.code == 1 and "tf.split" in halves.splitlines()[outcome.failure.line - 1]


def test_a_nan_loss_is_a_verdict_not_an_error(preflight: Any) -> None:
    broken = networks.LINEAR.replace("return digits.", "return tf.math.log(-1.0) + digits.")
    found = result(preflight(broken))
    assert found["verdict_level"] == "bad" and found["loss"] is None


def test_other_losses_have_no_chance_level(preflight: Any) -> None:
    found = result(preflight(networks.AUTO_ENCODER, val_interval=0))
    assert found["chance_loss"] is None and found["verdict_level"] == "unknown"
    assert found["metrics"]["val"] is None and found["seconds_per_validation"] is None
    assert found["validation_input"] is None


@pytest.mark.parametrize(
    "mean",
    [
        "image",
        pytest.param("pixel", marks=pytest.mark.nightly),
        pytest.param("none", marks=pytest.mark.nightly),
    ],
)
def test_the_image_shows_the_first_batch(preflight: Any, gradients: Path, mean: str) -> None:
    outcome = preflight(networks.LINEAR, mean=mean, shuffle=False)
    assert result(outcome)["batch"] == [{"label": label} for label in ["right", "left", "down", "up"] * 2]
    sheet = image(outcome)
    assert sheet.shape == (48, 8 * 50 - 2)
    with records.SplitReader(gradients, manifest.load(gradients).splits["train"]) as reader:
        expected = reader.read(3).as_array()[..., 0]
    shown = sheet[::4, 150:198:4]
    assert np.abs(shown.astype(int) - expected).max() <= 1


def test_the_image_shows_augmentations(preflight: Any) -> None:
    augment = {"pad_crop": 6, "mixup": 1.0, "whitening": True}
    changed = preflight(networks.LINEAR, mean="none", shuffle=False, augment=augment, crop_size=10)
    assert result(changed)["shape"] == [10, 10, 1]
    assert image(changed).shape == (50, 8 * 52 - 2)
    first, second = result(changed)["batch"][:2]
    assert (first["label"], first["other"], second["other"]) == ("right", "up", "right")
    assert 0 < first["share"] < 1


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_image_shows_the_batch_of_the_step(preflight: Any, train: Any, xla: bool) -> None:
    # The metric is the mean of the first batch, which identifies the batch that the image shows.
    network = networks.LINEAR.replace(
        "model = slim.flatten(self.x / 100.0)",
        "self.summaries.append(tf.summary.scalar('sum', tf.reduce_mean(self.x)))\n"
        "        model = slim.flatten(self.x / 100.0)",
    )
    augment = {"contrast": 0.9, "noise": 0.1, "hsv_value": 0.4}
    settings = {"augment": augment, "mean": "none", "xla": xla}
    tried = preflight(network, **settings)
    trained = train(network, epochs=1, **settings)
    sheet = image(tried).astype(float)
    shown = np.mean([sheet[::4, 50 * place : 50 * place + 48 : 4].mean() for place in range(8)])
    first_of_training = trained.values("train", "sum")[0]
    assert result(tried)["metrics"]["train"]["sum"] == pytest.approx(first_of_training, rel=1e-6)
    assert shown == pytest.approx(first_of_training, abs=0.1)


def test_large_color_images_are_downscaled(preflight: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_dataset(
        tmp_path_factory.mktemp("large"), {"train": 12}, size=200, channels=3, encoding="jpg"
    )
    outcome = preflight(networks.LINEAR, dataset=str(folder), batch_size=12)
    assert image(outcome).shape == (2 * 162 - 2, 8 * 162 - 2, 3)
    assert len(result(outcome)["batch"]) == 12


def test_errors_are_reported_as_in_a_training(preflight: Any) -> None:
    outcome = preflight(networks.LINEAR.replace("self.nclasses", "self.classes"))
    assert outcome.code == 1
    assert outcome.failure.message.startswith("AttributeError") and outcome.failure.line == 6
    outcome = preflight(networks.LINEAR, augment={"flip": "over"})
    assert "Invalid enum value 'over' - at `$.augment.flip`" in outcome.failure.message


def test_an_error_that_occurs_only_in_a_real_step_is_reported(preflight: Any) -> None:
    network = networks.LINEAR.replace(
        "model = slim.flatten(self.x / 100.0)", "model = tf.reshape(self.x / 100.0, [-1, 100])"
    )
    outcome = preflight(network)
    assert outcome.code == 1
    assert "cannot be reshaped" in outcome.failure.message and outcome.failure.line is not None
    assert "Input to reshape" in outcome.failure.detail


def test_the_initial_network_in_the_editor_trains(preflight: Any) -> None:
    outcome = preflight(template())
    assert outcome.code == 0, outcome.output
    stages = [event.doing for event in outcome.of(events.Progressed)]
    assert stages == ["Reading the dataset", "Building the network", "Running one step"]


@pytest.mark.parametrize("val_interval", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_the_operation_that_produces_nan_is_named(preflight: Any, val_interval: int) -> None:
    network = networks.LINEAR.replace(
        "return slim", "model = tf.log(model * 0.0, name='unsound')\n        return slim", 1
    )
    outcome = preflight(network, numerics_checks=True, val_interval=val_interval)
    assert outcome.code == 1
    assert "unsound (Log)" in outcome.failure.message
    assert "tf.log" in network.splitlines()[outcome.failure.line - 1]


def test_a_batch_smaller_than_the_number_of_workers_is_refused(preflight: Any) -> None:
    outcome = preflight(networks.LINEAR, workers=9)
    assert outcome.failure.message == "A batch of 8 records cannot be divided among 9 workers."
