"""Trainings of small networks, from the recipe to the last event."""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core import snapshot_list
from digits.core.events import Built, Failed, Finished, Measured, Progressed, Saved, UsageSampled, Warned
from digits.core.machine import file_systems
from digits.core.model_job import trace_name, traced_steps
from digits.core.resume_point import resume_points
from tests.worker import networks
from tests.worker.conftest import gradient, snapshot, write_dataset
from tests.worker.lazily import feeds, memory, predictor
from tests.worker.training.loop.test_activations import WITH_HISTOGRAMS


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 28×28 gradients, the size LeNet requires."""
    return write_dataset(tmp_path_factory.mktemp("wide"), {"train": 48, "val": 20}, size=28, channels=1)


def test_lenet_in_the_user_guide_learns(train: Any, wide: Path) -> None:
    outcome = train(networks.LENET, dataset=str(wide), epochs=6, solver={"type": "MOMENTUM"})
    assert outcome.values("val", "accuracy")[-1] == 1.0
    assert outcome.of(Finished)[0].result["parameters"] == 428074
    built = outcome.of(Built)[0]
    assert [layer["name"] for layer in built.layers if layer["parameters"]] == [
        "conv1",
        "conv2",
        "fc1",
        "fc2",
    ]


def test_event_order(trained: Any) -> None:
    outcome = trained(networks.LINEAR)
    rows = outcome.of(Measured)
    assert [(row.stage, row.step) for row in rows[:2]] == [("val", 0), ("train", 1)]
    assert [row.epoch for row in rows if row.stage == "val"] == [0, 1, 2]
    assert [row.step for row in rows if row.stage == "val"] == [0, 8, 16]
    assert rows[-2].stage == "train" and rows[-2].step == 16
    assert set(rows[1].values) == {"loss", "accuracy", "learning_rate"}
    assert set(rows[2].values) == {"loss", "accuracy", "learning_rate", "images_per_second"}
    assert set(rows[0].values) == {"loss", "accuracy"}
    assert [saved.path for saved in outcome.of(Saved)] == ["snapshot_1.ckpt", "snapshot_2.ckpt"]
    fractions = [event.fraction for event in outcome.of(Progressed)]
    assert fractions == sorted(fractions) and fractions[-1] == 1
    assert isinstance(outcome.events[-1], Finished)
    assert "Validation (epoch 2): loss = " in outcome.output


def test_fractional_intervals_and_a_last_snapshot(train: Any) -> None:
    outcome = train(networks.LINEAR, epochs=2, snapshot_interval=0.75, val_interval=0.5)
    assert [saved.epoch for saved in outcome.of(Saved)] == [0.75, 1.5, 2]
    assert [row.epoch for row in outcome.of(Measured) if row.stage == "val"] == [0, 0.5, 1, 1.5, 2]
    for name in ("snapshot_0.75.ckpt", "snapshot_1.5.ckpt", "snapshot_2.ckpt"):
        assert (outcome.job_folder / f"{name}.index").is_file()
        assert (outcome.job_folder / f"{name}.data-00000-of-00001").is_file()
    assert not list(outcome.job_folder.glob(".*tmp*"))


def test_interval_zero_means_never_and_the_snapshot_holds_the_variables_by_name(train: Any) -> None:
    solver = {"type": "ADAM", "learning_rate": 0.001}
    outcome = train(networks.LINEAR, epochs=1, snapshot_interval=0, val_interval=0, solver=solver)
    assert [saved.epoch for saved in outcome.of(Saved)] == [1]
    assert {row.stage for row in outcome.of(Measured)} == {"train"}
    tensors = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    weights = {"model/fc/weights": (144, 4), "model/fc/biases": (4,)}
    state = {f"optimizer/{slot}/{name}": shape for slot in "mv" for name, shape in weights.items()}
    assert {name: value.shape for name, value in tensors.items()} == {**weights, **state, "global_step": ()}
    assert tensors["global_step"] == 8


def test_streamed_records_train_like_cached_ones(train: Any, trained: Any, monkeypatch: Any) -> None:
    kept = trained(networks.LINEAR, name="kept")
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    streamed = train(networks.LINEAR, name="streamed", epochs=2)
    first, second = (snapshot(outcome.job_folder, "snapshot_2.ckpt") for outcome in (kept, streamed))
    assert np.allclose(first["model/fc/weights"], second["model/fc/weights"], atol=1e-6)
    assert kept.values("val", "loss") == pytest.approx(streamed.values("val", "loss"), rel=1e-5)


def test_a_network_file_system_that_fails_is_reported_and_the_training_resumes_with_the_same_bits(
    fail: Any, resume: Any, train: Any, gradients: Path, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    monkeypatch.setattr(feeds, "_AHEAD_BYTES", 0)  # reading keeps pace with the steps
    expected = train(networks.LINEAR, name="local")
    monkeypatch.setattr(file_systems, "is_network", lambda path: path == gradients)
    pread, reads = os.pread, itertools.count()

    def fail_later(descriptor: int, *arguments: Any) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{gradients}/") and next(reads) >= 120:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", fail_later)
        failed = fail(networks.LINEAR, name="remote")
    assert "Input/output error" in failed.of(Failed)[0].message
    assert resume_points(failed.job_folder)[0]
    assert resume(failed.job_folder / "train").wait().code == 0
    weights, same = (snapshot(job, "snapshot_2.ckpt") for job in (failed.job_folder, expected.job_folder))
    assert weights.keys() == same.keys()
    assert all(np.array_equal(weights[name], same[name]) for name in weights)


@pytest.mark.parametrize("encoding", ["jpg", pytest.param("none", marks=pytest.mark.nightly)])
def test_every_encoding_is_read(train: Any, tmp_path: Path, encoding: str) -> None:
    write_dataset(tmp_path, {"train": 16, "val": 5}, size=12, channels=3, encoding=encoding)
    outcome = train(networks.LINEAR, dataset=str(tmp_path), epochs=12, mean="pixel")
    assert outcome.values("val", "accuracy")[-1] == 1.0


def test_metrics_of_a_network(train: Any) -> None:
    """Every record has the same weight in validation: in batches of 8, the last of 22 records are 6.

    The variables of tf.metrics are not weights, and each stage counts separately. NaN does not stop the training.
    Images are cropped after the mean image is subtracted. A validation changes no variables, and the global step is
    the number of completed steps.
    """
    network = networks.LINEAR.replace(
        "accuracy = ",
        """labels = tf.to_float(self.y)
        counted = tf.metrics.mean(labels if self.is_training else tf.ones([2]))[1]
        seen = tf.get_variable('seen', [], initializer=tf.zeros_initializer(), trainable=False)
        seen = tf.assign_add(seen, tf.to_float(tf.shape(self.x)[0]))
        step = tf.to_float(tf.train.get_or_create_global_step())
        assert self.input_shape == [8, 8, 1], self.input_shape
        for name, value in (('y', tf.reduce_mean(labels)), ('counted', counted), ('odd', tf.zeros([]) / 0.0),
                            ('mean', tf.reduce_mean(self.x)), ('seen', seen), ('step', step)):
            self.summaries.append(tf.summary.scalar(name, value))
        accuracy = """,
    )
    outcome = train(network, epochs=2, crop_size=8, mean="image")
    assert abs(outcome.values("val", "mean")[0]) < 5
    assert outcome.values("train", "step")[0] == 0 and outcome.values("val", "step") == [0, 8, 16]
    assert outcome.values("train", "seen") == [8.0 * step for step in range(1, 17)]
    assert outcome.values("val", "y") == pytest.approx([np.mean([number % 4 for number in range(22)])] * 3)
    assert np.isnan(outcome.values("train", "odd")).all()
    assert outcome.values("val", "counted") == [1, 1, 1]
    assert 0 < outcome.values("train", "counted")[-1] < 3
    tensors = snapshot(outcome.job_folder, "snapshot_2.ckpt")
    names = {name for name in tensors if name.startswith(("model/", "loss/"))}
    assert names == {"model/fc/weights", "model/fc/biases", "model/seen"}
    assert tensors["model/seen"] == 128


def test_a_batch_can_exceed_the_dataset(train: Any) -> None:
    outcome = train(networks.LINEAR, epochs=3, batch_size=100)
    assert [row.step for row in outcome.of(Measured) if row.stage == "val"] == [0, 1, 2]
    assert outcome.of(Saved)[-1].epoch == 3


def test_regularization_affects_the_weights_and_counts_once_for_shared_ones(train: Any) -> None:
    """Weights that do not depend on data shrink only because of their regularizer."""
    network = networks.classifier(
        """
def branch(x):
    return slim.fully_connected(slim.flatten(x) * 0.0, self.nclasses, activation_fn=None, scope='fc',
                                weights_initializer=tf.ones_initializer(), reuse=tf.AUTO_REUSE,
                                weights_regularizer=slim.l2_regularizer(1.0))
found = branch(self.x) + branch(self.x)
total = tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
self.summaries.append(tf.summary.scalar('total', total))
return found
"""
    )
    outcome = train(network, epochs=1, solver={"type": "SGD", "learning_rate": 0.1})
    weights = snapshot(outcome.job_folder, "snapshot_1.ckpt")["model/fc/weights"]
    assert weights == pytest.approx(np.full((144, 4), 0.9**8), rel=1e-4)
    # Displayed: the data loss and half the sum of the squared weights.
    assert outcome.values("val", "loss")[0] == pytest.approx(np.log(4) + 144 * 4 / 2, rel=1e-5)
    assert outcome.values("val", "total")[0] == 144 * 4 / 2


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        ", updates_collections=None, fused=False",
        *(
            pytest.param(f", {text}", marks=pytest.mark.nightly)
            for text in ("updates_collections=None", "fused=False")
        ),
    ],
)
def test_batch_norm_moving_averages_are_updated(trained: Any, arguments: str) -> None:
    outcome = trained(networks.BATCH_NORM.replace("{arguments}", arguments), **WITH_HISTOGRAMS)
    tensors = snapshot(outcome.job_folder, "snapshot_8.ckpt")
    moving = [name for name in tensors if "moving_" in name and not name.startswith("optimizer")]
    assert sorted(moving) == [
        "model/bn/moving_mean",
        "model/bn/moving_variance",
        "model/conv/BatchNorm/moving_mean",
        "model/conv/BatchNorm/moving_variance",
    ]
    for name in moving:
        assert not np.allclose(tensors[name], 0 if name.endswith("mean") else 1), name
    assert outcome.values("val", "accuracy")[-1] > 0.9


def test_keras_layers(trained: Any) -> None:
    outcome = trained(networks.KERAS_LENET, **WITH_HISTOGRAMS)
    tensors = snapshot(outcome.job_folder, "snapshot_8.ckpt")
    names = {name for name in tensors if name.startswith("model/")}
    assert {"model/conv2d/kernel", "model/conv2d_1/bias", "model/dense_1/kernel"} <= names
    assert not np.allclose(tensors["model/batch_normalization/moving_mean"], 0)
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert outcome.values("val", "loss")[0] > np.log(4)


def test_custom_keras_models(train: Any) -> None:
    outcome = train(networks.KERAS_BLOCKS, epochs=1)
    tensors = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert {"model/net/block/conv2d/kernel", "model/net/block_1/scale", "model/net/dense/bias"} <= set(
        tensors
    )
    assert not np.allclose(tensors["model/net/block/batch_normalization/moving_mean"], 0)
    assert not np.allclose(tensors["model/net/block_1/scale"], 1)


# Modern networks create their models there; TensorFlow 1 networks create tensors and variables there.
# Both have layers with repeated names, data classes, and statistics named after their tensors.
AT_THE_TOP = networks.classifier(
    """
x = tf.reshape(self.x * SCALE, [-1, 144])
mean = tf.nn.moments(x, [0], name='moments')[0]
ema = tf.train.ExponentialMovingAverage(SETTINGS.decay)
if self.is_training:
    with tf.control_dependencies([ema.apply([mean])]):
        x = tf.identity(x)
x = keras.layers.Dense(8, activation='relu')(x) + tf.matmul(x, W) + built(x) + later(x)
self.summaries.append(tf.summary.histogram('x', x))
trained = [variable.name for variable in tf.trainable_variables()]
assert len(trained) == 5 and W in tf.trainable_variables(), trained
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
""",
    head="""from __future__ import annotations
from dataclasses import dataclass, field
@dataclass
class Settings:
    decay: float = field(default=0.9)
SETTINGS = Settings()
SCALE = tf.constant(0.01)
W = tf.Variable(tf.truncated_normal([144, 8], stddev=0.1), name='w_global')
built = keras.Sequential([keras.Input((144,)), keras.layers.Dense(8, use_bias=False)])
later = keras.layers.Dense(8, use_bias=False)
""",
)


def test_variables_and_layers_outside_the_class(train: Any, in_child: Any) -> None:
    outcome = train(AT_THE_TOP, epochs=4, snapshot_interval=2, histograms=True)
    before, after = (snapshot(outcome.job_folder, f"snapshot_{number}.ckpt") for number in (2, 4))
    names = {"w_global", "sequential/dense/kernel", "model/dense_1/kernel", "model/dense_2/kernel"}
    assert names < set(after), sorted(after)
    assert "model/moments/Squeeze/ExponentialMovingAverage" in after
    assert not any((before[name] == after[name]).all() for name in names)
    assert in_child(_right_answers, outcome.job_folder, "snapshot_4.ckpt") > 0.9


def test_tf_layers(train: Any) -> None:
    outcome = train(networks.TF_LAYERS, epochs=8, solver={"type": "ADAM", "learning_rate": 0.01})
    tensors = snapshot(outcome.job_folder, "snapshot_8.ckpt")
    assert {"model/first/kernel", "model/norm/moving_mean", "model/last/bias"} <= set(tensors)
    assert not np.allclose(tensors["model/norm/moving_mean"], 0)
    assert outcome.values("val", "accuracy")[-1] > 0.9


def test_raw_variables(trained: Any, in_child: Any) -> None:
    outcome = trained(networks.RAW, **WITH_HISTOGRAMS)
    tensors = snapshot(outcome.job_folder, "snapshot_8.ckpt")
    names = {name for name in tensors if not name.startswith("optimizer/")}
    assert names == {"model/conv/w", "model/conv/b", "model/out", "model/out_1", "global_step"}
    assert outcome.values("val", "accuracy")[-1] > 0.9
    assert in_child(_right_answers, outcome.job_folder, "snapshot_8.ckpt") > 0.9


def _right_answers(job_folder: Path, name: str) -> float:
    """Return the fraction of gradients that the trained model recognizes."""
    from PIL import Image

    classifier = predictor.Predictor(job_folder, name)
    labels = ["right", "left", "down", "up"]
    right = []
    for number in range(12):
        pixels = gradient(number % 4, 12, 1, np.random.default_rng(number))
        Image.fromarray(pixels[:, :, 0]).save(job_folder / "picture.png")
        right.append(classifier.predict(job_folder / "picture.png")[0][0] == labels[number % 4])
    return sum(right) / len(right)


def test_autoencoder(trained: Any) -> None:
    outcome = trained(networks.AUTO_ENCODER, **networks.AUTO_ENCODER_SETTINGS)
    losses = outcome.values("val", "loss")
    assert losses[-1] < losses[0] / 2
    assert snapshot_list.read(outcome.job_folder).metric == "loss"  # there is no accuracy


def test_two_losses_with_their_own_variables(trained: Any) -> None:
    outcome = trained(networks.GAN, epochs=2, solver={"type": "ADAM", "learning_rate": 0.01})
    row = outcome.of(Measured)[1]
    assert row.values["loss"] == pytest.approx(row.values["d_loss"] + row.values["g_loss"], rel=1e-5)
    tensors = snapshot(outcome.job_folder, "snapshot_2.ckpt")
    assert {"g/g_w", "d/d_w1", "d/d_w2", "optimizer/m/g/g_w", "optimizer/m/d/d_w1"} <= set(tensors)


def test_images_and_charts_for_tensorboard(trained: Any, in_child: Any) -> None:
    outcome = trained(networks.GAN, epochs=2, solver={"type": "ADAM", "learning_rate": 0.01})
    tags = _tensorboard(outcome.job_folder / "tb" / "train")
    assert {
        "loss",
        "d_loss",
        "learning_rate",
        "noise",
        "g/g_w",
        "fakes/image/0",
        "fakes/image/1",
        "graph",
    } <= tags
    assert {"loss", "g_loss"} <= _tensorboard(outcome.job_folder / "tb" / "val")
    assert in_child(_texts, outcome.job_folder / "tb" / "train") == {"note": [b"fakes of 144"]}


def test_the_time_left_expects_the_pictures_after_each_validation_and_the_work_after_the_last_step(
    train: Any, tensorflow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from digits.worker.training.loop import trainer
    from digits.worker.training.loop.validation import Validation
    from digits.worker.training.step.step_function import StepFunction

    now = [0.0]

    def slow_down(owner: type, name: str, seconds: float) -> None:
        run = getattr(owner, name)

        def slow(*arguments: Any) -> Any:
            result = run(*arguments)
            now[0] += seconds * (len(result) if name == "steps" else 1)
            return result

        monkeypatch.setattr(owner, name, slow)

    slow_down(StepFunction, "steps", 1.0)
    slow_down(StepFunction, "extended_step", 9.0)
    slow_down(Validation, "run", 4.0)
    time_left = functools.partial(trainer.setup.TimeLeft, clock=lambda: now[0])
    monkeypatch.setattr(trainer.setup, "TimeLeft", time_left)
    build = trainer.setup.build
    monkeypatch.setattr(
        trainer.setup, "build", lambda *given, **more: replace(build(*given, **more), closing_seconds=30.0)
    )
    outcome = train(networks.GAN, epochs=10, snapshot_interval=0)
    # Before the validation after each epoch of eight steps, of which the first also draws pictures.
    found = {
        round(10 * event.fraction): event.seconds_left
        for event in outcome.of(Progressed)
        if event.doing == "Validating" and event.fraction
    }
    assert list(found) == [*range(1, 11)]
    for epoch in range(3, 10):
        assert found[epoch] == pytest.approx((10 - epoch) * (7 + 9 + 4) + 30, rel=0.15)


def _texts(folder: Path) -> dict[str, list[bytes]]:
    """Return the latest of each text shown on TensorBoard's text page."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    events = EventMultiplexer().AddRun(str(folder), "run").Reload()
    return {
        tag: list(events.Tensors("run", tag)[-1].tensor_proto.string_val)
        for tag in events.PluginRunToTagToContent("text").get("run", {})
    }


def _tensorboard(folder: Path) -> set[str]:
    from tensorflow.compat.v1.train import summary_iterator

    found = set()
    for file in folder.glob("*tfevents*"):
        for event in summary_iterator(str(file)):
            found |= {value.tag for value in event.summary.value}
            if event.graph_def:
                found.add("graph")
    return found


def test_weights_are_loaded_by_name_and_shape(train: Any, trained: Any) -> None:
    first = trained(networks.LINEAR, name="first", epochs=3)
    weights = str(first.job_folder / "snapshot_3.ckpt")
    again = train(networks.LINEAR, name="again", epochs=1, weights=weights)
    assert again.values("val", "loss")[0] == pytest.approx(first.values("val", "loss")[-1], rel=1e-4)
    assert not again.of(Warned)

    wider = networks.LINEAR.replace(
        "return slim", "model = slim.fully_connected(model, 7, scope='new')\n        return slim"
    )
    other = train(wider, name="other", epochs=1, weights=weights)
    warned = other.of(Warned)[0].message
    assert "model/new/weights" in warned and "model/fc/weights ([144, 4], not [7, 4])" in warned


def test_layers_are_frozen_by_renaming(train: Any) -> None:
    network = networks.classifier(
        """
w = tf.get_variable('w', [144, self.nclasses], initializer=tf.contrib.layers.xavier_initializer())
b = tf.get_variable('b', [self.nclasses], initializer=tf.zeros_initializer())
return tf.matmul(slim.flatten(self.x / 100.0), w) + b
"""
    )
    first = train(network, name="first", epochs=1)
    weights = str(first.job_folder / "snapshot_1.ckpt")
    renamed = network.replace("'w'", "'w_not_in_use'")
    second = train(renamed, name="second", epochs=1, weights=weights)
    before, after = (snapshot(outcome.job_folder, "snapshot_1.ckpt") for outcome in (first, second))
    assert np.array_equal(before["model/w"], after["model/w_not_in_use"])
    assert not np.array_equal(before["model/b"], after["model/b"])


def test_a_missing_snapshot_is_named(fail: Any, tmp_path: Path) -> None:
    outcome = fail(networks.LINEAR, weights=str(tmp_path / "snapshot_9.ckpt"))
    assert "snapshot_9.ckpt" in outcome.failure.message


def test_a_damaged_dataset_is_named(fail: Any, tmp_path: Path) -> None:
    write_dataset(tmp_path / "records", {"train": 16, "val": 5}, size=12, channels=1)
    (tmp_path / "records" / "job.json").write_text('{"name": "Gradients"}')
    shard = max((tmp_path / "records").glob("train-*.tfrecord"))
    shard.write_bytes(b"!" + shard.read_bytes()[1:])
    outcome = fail(networks.LINEAR, dataset=str(tmp_path / "records"))
    failure = outcome.failure
    assert f"“Gradients” are damaged: {shard.name} does not match" in failure.message
    assert "clone the dataset" in failure.hint and failure.trace == []


@pytest.mark.parametrize("rate", [1e8, pytest.param(1e9, marks=pytest.mark.nightly)])
def test_a_diverging_loss_stops_the_training(fail: Any, rate: float) -> None:
    network = networks.LINEAR.replace("(self.inference, self.y)\n", "(self.inference, self.y) * 1e30\n")
    outcome = fail(network, solver={"type": "SGD", "learning_rate": rate}, epochs=3)
    failure = outcome.failure
    assert "loss became" in failure.message and "at step" in failure.message
    assert f"{rate:g}" in failure.message
    assert "Lower the learning rate" in failure.hint


def test_resource_usage_is_reported_and_stopping_is_prompt_and_not_a_failure(start: Any, model: Any) -> None:
    task = start(model(networks.LINEAR, epochs=100000, snapshot_interval=0))
    used = task.wait_for(UsageSampled)
    assert used.memory_bytes > 50e6 and used.device == "CPU"
    task.wait_for(Measured)
    task.stop()
    outcome = task.wait(seconds=10)
    assert outcome.code == 143
    assert not any(isinstance(event, (Failed, Finished)) for event in outcome.events)


def test_weight_histograms_and_traces_for_tensorboard(train: Any) -> None:
    outcome = train(networks.LINEAR, epochs=1, histograms=True, traces_interval=4)
    folder = outcome.job_folder / "tb" / "train"
    assert {"model/fc/weights", "model/fc/biases"} <= _tensorboard(folder)
    assert "activations/fc" in _tensorboard(outcome.job_folder / "tb" / "val")
    assert len(list(folder.rglob("*.xplane.pb"))) == 1  # only the fifth of eight steps
    assert traced_steps(outcome.job_folder) == [5]
    events = json.loads((outcome.job_folder / trace_name(5)).read_bytes())["traceEvents"]
    operations = [event for event in events if event["ph"] == "X"]
    assert any("MatMul" in event["name"] for event in operations)
    assert min(event["ts"] for event in operations) == 0 and all(event["dur"] >= 0 for event in operations)
    named = {(event["pid"], event.get("tid")) for event in events if event["ph"] == "M"}
    assert {(event["pid"], event["tid"]) for event in operations} <= named
