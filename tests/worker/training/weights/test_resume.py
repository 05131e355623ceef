"""Trainings that are stopped, killed or fail resume exactly."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from digits.core import events, recipe, snapshot_list
from digits.core.errors import BadRequest
from digits.core.events import Finished, Measured, Progressed, Resumed, Saved
from digits.core.metrics.series import Metrics
from digits.core.resume_point import resume_point
from digits.core.task import EXIT_BUSY
from digits.runtime import standalone
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot
from tests.worker.lazily import checkpoints, memory, step_function

# All kinds of random numbers: dropout of slim and Keras, augmentation, noise, a loop that draws in each iteration, and
# TensorFlow's generators, in training and validation.
RANDOM = networks.classifier(
    """
x = slim.flatten(self.x) / 100.0
x = slim.dropout(x, 0.8, is_training=self.is_training)
x = tf.keras.layers.Dropout(0.2)(x)
x += tf.random_normal(tf.shape(x), stddev=0.1) + tf.truncated_normal([144], stddev=0.1, seed=3)
x = tf.keras.layers.GaussianNoise(0.1, seed=4)(x)
x = slim.flatten(tf.keras.layers.RandomTranslation(0.1, 0.1)(tf.reshape(x, [-1, 12, 12, 1])))
x *= generator.uniform([144], 0.9, 1.1)
turns = tf.map_fn(lambda row: tf.random_uniform([]) + row, tf.range(40.0))
x += tf.reduce_sum(turns * tf.range(40.0)) / 20000.0
x += 0.1 * keras.random.normal([144]) + 0.1 * tf.random.get_global_generator().normal([144])
x = slim.batch_norm(x, is_training=self.is_training)
x = tf.reshape(x, [-1, 12, 12, 1])
x = slim.flatten(keras.layers.BatchNormalization()(x, training=self.is_training))
self.summaries.append(tf.summary.scalar('counted', tf.metrics.mean(x)[1]))
x = slim.fully_connected(x, 16, weights_regularizer=slim.l2_regularizer(0.001))
return slim.fully_connected(x, self.nclasses, activation_fn=None)
""",
    head="generator = tf.random.Generator.from_seed(7)",
)

SETTINGS: dict[str, Any] = {
    "epochs": 9,
    "crop_size": 12,
    "solver": {"type": "ADAM", "learning_rate": 0.003},
    "lr_policy": {"policy": "exp", "gamma": 0.99},
    "val_interval": 0.75,
    "snapshot_interval": 1.5,
    "best_metric": "loss",
    "snapshots_kept": 3,
}


@pytest.fixture
def killed_at_random_moments(start: Any, resume: Any) -> Callable[..., tuple[Outcome, int]]:
    """Return a function that trains with signals at random moments, and returns the outcome and their number."""

    def train(task_folder: Path, signals: Sequence[int], seed: int, before: int = 50) -> tuple[Outcome, int]:
        chance = random.Random(seed)
        task, kills = start(task_folder), 0
        for step, number in zip(sorted(chance.sample(range(2, before), len(signals))), signals, strict=True):
            while task.poll() is None and not has_reached(task_folder.parent, step):
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 0.02))
            if task.poll() is not None:
                break
            os.kill(task.pid, number)
            task.wait()
            kills += 1
            task = resume(task_folder)
        return task.wait(), kills

    return train


def has_reached(job_folder: Path, step: int) -> bool:
    point = resume_point(job_folder)
    return point is not None and point.step >= step


def same(first: Outcome, second: Outcome, name: str = "snapshot_9.ckpt") -> None:
    """Assert that both runs produced bitwise identical results."""
    one, two = (snapshot(outcome.job_folder, name) for outcome in (first, second))
    assert set(one) == set(two)
    for key, value in one.items():
        assert value.tobytes() == two[key].tobytes(), key
    assert kept(first.job_folder) == kept(second.job_folder)
    curves = [curve(outcome) for outcome in (first, second)]
    assert curves[0].as_json() == curves[1].as_json()


def kept(job_folder: Path) -> dict[str, Any]:
    """Return the names of snapshots with their metrics, and the best one."""
    saved = snapshot_list.read(job_folder)
    return {
        "files": sorted(path.name for path in job_folder.glob("snapshot_*")),
        "snapshots": list(saved),
        "best": saved.best,
    }


def curve(outcome: Outcome) -> Metrics:
    """Return the metrics of a run without its speed and times."""
    metrics = Metrics()
    for event in outcome.events:
        metrics.add(msgspec.structs.replace(event, at=0.0))
    for known in (metrics.train.values, metrics.train.first_steps):
        known.pop("images_per_second", None)
    return metrics


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_training_interrupted_at_random_moments_resumes_exactly(
    often: None, model: Any, trained: Any, killed_at_random_moments: Any, rounds: int
) -> None:
    """It has the same seed, and so the same results."""
    uninterrupted = trained(RANDOM, name="uninterrupted", **SETTINGS)
    outcome, kills = killed_at_random_moments(
        model(RANDOM, name="killed", **SETTINGS),
        [signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL][: 2 * rounds],
        seed=9,
    )
    assert outcome.code == 0, outcome.output
    assert kills > 1  # both signals
    same(uninterrupted, outcome)
    assert {saved.epoch for saved in uninterrupted.of(Saved)} == {saved.epoch for saved in outcome.of(Saved)}
    assert not list(outcome.job_folder.glob("resume_*")) and not list(outcome.job_folder.glob(".*tmp*"))


@pytest.mark.parametrize(
    "settings",
    [
        {
            "batch_accumulation": 2,
            "balance": "sampling",
            "augment": {"flip": "fliplr", "mixup": 0.4, "noise": 0.05, "pad_crop": 2},
            "crop_size": 10,
        },
        pytest.param(
            {
                "precision": "mixed_float16",
                "solver": {"type": "FTRL", "learning_rate": 0.1},
                "shuffle": False,
                "batch_size": 7,
            },
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["accumulated and augmented", "odd batches in float16"],
)
def test_resumes_exactly_with(
    often: None, model: Any, train: Any, killed_at_random_moments: Any, settings: dict[str, Any]
) -> None:
    settings = {**SETTINGS, **settings}
    network = networks.KERAS_LINEAR if "precision" in settings else networks.LINEAR
    uninterrupted = train(network, name="uninterrupted", **settings)
    assert np.isfinite(uninterrupted.values("train", "loss")).all()
    outcome, kills = killed_at_random_moments(
        model(network, name="killed", **settings), [signal.SIGKILL], seed=3, before=30
    )
    assert outcome.code == 0, outcome.output
    assert kills
    same(uninterrupted, outcome)


@pytest.mark.nightly
def test_resumes_exactly_with_streamed_images(
    often: None, model: Any, trained: Any, killed_at_random_moments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is also that of a training with images in memory."""
    uninterrupted = trained(RANDOM, name="uninterrupted", **SETTINGS)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    outcome, kills = killed_at_random_moments(model(RANDOM, name="killed", **SETTINGS), [signal.SIGKILL], 4)
    assert kills
    assert {prepared.how for prepared in outcome.of(events.InputPrepared)} == {"streamed"}
    same(uninterrupted, outcome)


# Modifies its gradients like a custom optimizer, with noise that depends on the step number. Steps that
# write a histogram, and validations, count the same things as others.
CHANGES_GRADIENTS = (
    networks.LINEAR
    + """
        step = tf.cast(tf.train.get_global_step(), tf.float32)
        self.summaries.append(tf.summary.scalar('step', step))
        self.summaries.append(tf.summary.scalar('sums', tf.metrics.mean(step)[1]))
        self.summaries.append(tf.summary.histogram('outputs', self.inference))
        return digits.classification_loss(self.inference, self.y)

    def gradientUpdate(self, pairs):
        changed = []
        for number, (gradient, variable) in enumerate(pairs):
            square = tf.get_variable('square_%d' % number, variable.shape, initializer=tf.ones_initializer(), trainable=False)
            mean = tf.Variable(tf.zeros(variable.shape), trainable=False, name='mean')
            square = square.assign(0.9 * square + 0.1 * tf.square(gradient))
            mean = mean.assign(0.5 * mean + gradient / tf.sqrt(square + 1e-6))
            step = tf.cast(tf.train.get_global_step(), tf.float32)
            changed.append((mean + tf.random_normal(tf.shape(mean), stddev=0.1 / (1 + step)), variable))
        return changed
"""
).replace("        return digits.classification_loss(self.inference, self.y)\n\n        step", "        step")


def test_resumes_exactly_with_gradients_modified_by_the_network(
    often: None, model: Any, train: Any, killed_at_random_moments: Any
) -> None:
    uninterrupted = train(CHANGES_GRADIENTS, name="uninterrupted", **SETTINGS)
    assert uninterrupted.values("val", "step")[:3] == [0, 6, 12]
    assert np.allclose(
        uninterrupted.values("train", "sums"), np.array(uninterrupted.values("train", "step")) / 2
    )
    assert {"square_0", "square_1", "train/mean"} <= set(
        snapshot(uninterrupted.job_folder, "snapshot_9.ckpt")
    )
    outcome, kills = killed_at_random_moments(
        model(CHANGES_GRADIENTS, name="killed", **SETTINGS), [signal.SIGKILL], seed=3
    )
    assert outcome.code == 0, outcome.output
    assert kills
    same(uninterrupted, outcome)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "tf.nn.learned_unigram_candidate_sampler([[1]], 1, 6, True, 40)",
            "tf.nn.softmax_cross_entropy_with_logits",
        ),
        (
            "tf.image.sample_distorted_bounding_box([12, 12, 1], tf.zeros([1, 1, 4]))",
            "tf.image.stateless_sample_distorted_bounding_box",
        ),
    ],
)
def test_random_numbers_that_cannot_be_resumed_are_refused(visualize: Any, line: str, hint: str) -> None:
    failure = visualize(
        networks.classifier(f"{line}\nreturn slim.fully_connected(slim.flatten(self.x), 4)")
    ).failure
    assert "cannot use tf." in failure.message and "resumed" in failure.hint and hint in failure.hint
    assert failure.line and "tf." in failure.trace[0]["code"]


def test_resumes_within_an_epoch(often: None, model: Any, start: Any, resume: Any) -> None:
    """The training is stopped when only the resume point has been saved."""
    settings = {**SETTINGS, "epochs": 300, "snapshot_interval": 0, "val_interval": 0, "best_metric": None}
    task = start(model(networks.LINEAR, **settings))
    task.wait_for(Measured)
    time.sleep(0.5)
    task.stop()
    stopped = task.wait()
    assert stopped.code == 143
    point = resume_point(stopped.job_folder)
    assert point and 0 < point.step < 2400 and point.snapshot == f"resume_{point.step}.ckpt"
    assert snapshot(stopped.job_folder, point.snapshot)["global_step"] == point.step
    assert 0 < stopped.of(Measured)[-1].step <= point.step
    again = resume(task.task_folder).wait()
    assert again.code == 0, again.output
    assert again.of(Resumed)[0].step == point.step
    resumed = again.events[again.events.index(again.of(Resumed)[0]) :]
    done = [event.fraction for event in resumed if isinstance(event, Progressed)]
    assert min(done) == pytest.approx(point.step / 2400, abs=1e-6)
    assert again.of(Finished)[0].result["steps"] == 2400


def test_stopping_in_a_validation_repeats_no_random_numbers(
    often: None, model: Any, start: Any, resume: Any
) -> None:
    """The validation is repeated, and the training continues with the numbers of its steps."""
    network = networks.classifier(
        """
def draw(step):
    if not self.is_training and step == 8:
        drawn.append(1)
        if len(drawn) == 2 and not os.path.exists('stopped'):
            open('stopped', 'w').close()
            os.kill(os.getpid(), signal.SIGTERM)
    return np.float32(1)
step = tf.train.get_or_create_global_step()
x = slim.flatten(self.x / 100.0) * tf.reshape(tf.py_func(draw, [step], tf.float32), [])
x *= keras.random.uniform([], 0.5, 1.5) * tf.random.get_global_generator().uniform([], 0.5, 1.5)
return slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
""",
        head="import signal\ndrawn = []",
    )
    settings = {"epochs": 3, "val_interval": 1}
    undisturbed = model(network, name="uninterrupted", **settings)
    (undisturbed / "stopped").touch()
    uninterrupted = start(undisturbed).wait()
    assert uninterrupted.code == 0, uninterrupted.output
    disturbed = model(network, name="stopped", **settings)
    assert start(disturbed).wait().code == 143
    point = resume_point(disturbed.parent)
    assert point and (point.step, point.validated) == (8, 0)
    same(uninterrupted, resume(disturbed).wait(), "snapshot_3.ckpt")


def test_without_a_resume_point_the_training_restarts(model: Any, resume: Any, trained: Any) -> None:
    uninterrupted = trained(networks.LINEAR, name="uninterrupted")
    again = resume(model(networks.LINEAR)).wait()
    assert again.code == 0, again.output
    assert [event.step for event in again.of(Resumed)] == [0]
    same(uninterrupted, again, "snapshot_2.ckpt")


def test_resuming_a_finished_training_trains_no_steps(trained: Any, resume: Any) -> None:
    first = trained(networks.LINEAR)
    again = resume(first.job_folder / "train").wait()
    assert again.code == 0, again.output
    assert len(again.of(Finished)) == 2 and len(again.of(Resumed)) == 1
    assert again.of(Measured) == first.of(Measured)


def test_resuming_after_early_stopping_trains_no_steps(trained: Any, resume: Any) -> None:
    settings = {
        "solver": {"type": "SGD", "learning_rate": 0.0},
        "early_stopping": {"metric": "loss", "patience": 2},
    }
    first = trained(networks.LINEAR, epochs=9, **settings)
    assert "Stopped early after 3 epochs" in first.of(Finished)[0].result["ended_early"]
    again = resume(first.job_folder / "train").wait()
    assert again.of(Finished)[1].result == first.of(Finished)[0].result
    assert again.of(Measured) == first.of(Measured)


def test_a_changed_network_cannot_resume(trained: Any, resume: Any) -> None:
    first = trained(networks.LINEAR)
    path = first.job_folder / "network.py"
    path.write_text(
        networks.LINEAR.replace("return slim", "model = slim.fully_connected(model, 7)\n        return slim")
    )
    again = resume(first.job_folder / "train").wait()
    assert again.code == 1
    assert "does not match" in again.failure.message and "start a new training" in again.failure.hint


def test_a_changed_batch_size_cannot_resume(trained: Any, resume: Any) -> None:
    first = trained(networks.LINEAR)
    plan = recipe.load(first.job_folder / "train", recipe.Train)
    plan.batch_size = 4
    plan.save(first.job_folder / "train")
    again = resume(first.job_folder / "train").wait()
    assert "batch size" in again.failure.message


def test_another_seed_gives_another_run(often: None, trained: Any, train: Any) -> None:
    first = trained(RANDOM, name="first", **SETTINGS)
    other = train(RANDOM, name="other", **{**SETTINGS, "seed": 6, "epochs": 1})
    assert other.values("train", "loss")[0] != first.values("train", "loss")[0]


def test_every_step_draws_different_numbers(train: Any) -> None:
    network = networks.LINEAR.replace(
        "accuracy = ",
        """
        turns = tf.map_fn(lambda row: tf.random_uniform([]), tf.zeros([2]))
        for name, value in (('drawn', tf.random_uniform([])), ('one', turns[0]), ('two', turns[1]),
                            ('seeded', tf.random_uniform([], seed=1)), ('again', tf.random_uniform([], seed=1)),
                            ('shuffled', tf.to_float(tf.random_shuffle(tf.range(1000))[0])),
                            ('gamma', tf.random_gamma([], 2.0)), ('poisson', tf.random_poisson(9.0, [])),
                            ('class', tf.to_float(tf.multinomial(tf.zeros([1, 1000]), 1)[0, 0]))):
            self.summaries.append(tf.summary.scalar(name, value))
        accuracy = """.strip(),
    )
    outcome = train(network, epochs=1, val_interval=0.125)
    rows = [row.values for row in outcome.of(Measured) if row.stage == "train"]
    assert len(rows) == 8
    for name in ("drawn", "one", "two", "seeded", "shuffled", "gamma", "class"):
        assert len({row[name] for row in rows}) > 6, name
    assert len({row["poisson"] for row in rows}) > 2
    assert all(row["one"] != row["two"] != row["drawn"] for row in rows)
    assert all(row["seeded"] == row["again"] != row["drawn"] for row in rows)
    # Every validation draws the same numbers.
    assert len(set(outcome.values("val", "drawn"))) == 1
    assert len(set(outcome.values("val", "one"))) == 1


def test_patience_is_checked_only_at_validations(
    often: None, model: Any, train: Any, start: Any, resume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resume point is between two validations, and patience has already run out."""
    settings: dict[str, Any] = {
        "epochs": 9,
        "val_interval": 1.5,
        "snapshot_interval": 0,
        "solver": {"type": "SGD", "learning_rate": 0.0},
        "early_stopping": {"metric": "loss", "patience": 1},
    }
    uninterrupted = train(networks.LINEAR, name="uninterrupted", **settings)
    assert "Stopped early after 3 epochs" in uninterrupted.of(Finished)[0].result["ended_early"]
    task_folder = model(networks.LINEAR, name="killed", **settings)
    with monkeypatch.context() as patched:
        fails_at(patched, 22)
        failed = start(task_folder).wait()
    point = resume_point(failed.job_folder)
    assert point and 2.5 <= point.epoch < 3
    again = resume(task_folder).wait()
    assert again.of(Finished)[0].result == uninterrupted.of(Finished)[0].result
    same(uninterrupted, again, "snapshot_3.ckpt")
    assert not list(again.job_folder.glob("resume_*"))


def fails_at(patched: pytest.MonkeyPatch, step: int) -> None:
    """Make trainings fail at ``step``."""
    patched.setattr(checkpoints, "MAX_TIME_FRACTION", math.inf)  # the resume point is the previous step
    take = step_function.StepFunction.steps

    def fail(self: Any, chunk: Any, rates: list[float], first_step: int) -> Any:
        if first_step + len(rates) > step:
            raise RuntimeError("broken")
        return take(self, chunk, rates, first_step)

    patched.setattr(step_function.StepFunction, "steps", fail)


def test_files_a_killed_training_was_removing_are_removed(trained: Any, resume: Any) -> None:
    """This includes the end, when no steps remain."""
    first = trained(networks.LINEAR, snapshots_kept=1)
    job = first.job_folder
    data = (job / "snapshot_2.ckpt.data-00000-of-00001").read_bytes()
    index = (job / "snapshot_2.ckpt.index").read_bytes()
    for name in ("snapshot_1", "resume_9", "resume_10"):
        (job / f"{name}.ckpt.data-00000-of-00001").write_bytes(data)
    for name in ("snapshot_1", "resume_9"):  # the index of the third was removed before the kill
        (job / f"{name}.ckpt.index").write_bytes(index)
    again = resume(job / "train").wait()
    assert again.code == 0, again.output
    assert {path.name.partition(".ckpt")[0] for path in job.glob("*.ckpt*")} == {"snapshot_2"}


def test_two_processes_never_train_in_the_same_folder(
    model: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_folder = model(networks.LINEAR, epochs=100000, snapshot_interval=0, val_interval=0)
    first = start(task_folder)
    first.wait_for(Measured)
    monkeypatch.setattr(events, "WRITER_SECONDS", 0.2)
    second = start(task_folder).wait()
    assert second.code == EXIT_BUSY and "Another process is working on this task" in second.output
    recipe_before = (task_folder / "recipe.json").read_bytes()
    with pytest.raises(BadRequest, match="a training is running"):
        standalone.prepare(task_folder.parent)
    assert (task_folder / "recipe.json").read_bytes() == recipe_before
    assert first.poll() is None


@pytest.mark.usefixtures("own_process")  # TensorFlow has one generator for a whole process
def test_a_finished_training_continues_as_if_it_had_been_longer(trained: Any, resume: Any) -> None:
    """The order of records, the random numbers and the optimizer's state are those of one training of all epochs."""
    settings = {**SETTINGS, "lr_policy": {"policy": "fixed"}, "val_interval": 1.0, "snapshot_interval": 1.0}
    whole = trained(RANDOM, name="whole", **{**settings, "epochs": 4})
    task = trained(RANDOM, name="parts", **{**settings, "epochs": 2}).job_folder / "train"
    training = recipe.load(task, recipe.Train)
    training.epochs = 4
    training.save(task)
    outcome = resume(task).wait()
    assert outcome.code == 0, outcome.output
    assert [resumed.epoch for resumed in outcome.of(Resumed)] == [2]
    same(whole, outcome, "snapshot_4.ckpt")
