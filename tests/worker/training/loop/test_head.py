"""The head phase of fine-tuning on features that are computed once, compared with one on images."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import Measured, PhaseChanged, Progressed, Saved
from digits.core.recipe import Solver
from digits.core.resume_point import resume_points
from digits.data.targets.class_index import ClassIndex
from digits.kinds import standard_networks
from digits.worker.failure import UserFault
from tests.worker import networks
from tests.worker.conftest import snapshot, write_dataset
from tests.worker.lazily import head, inference, memory, network_loader, tf, validation, variables

# The head has random numbers, moving averages and a size computed from the batch, and enlarges the features.
NETWORK = networks.classifier(
    """
x = keras.layers.Conv2D(4, 3, strides=2, name='conv', kernel_regularizer=keras.regularizers.L2(0.01))(self.x / 255.0)
x = keras.layers.BatchNormalization(momentum=0.5, name='norm')(x, training=self.is_training)
x = {trunk}
x = tf.image.resize(tf.nn.relu(x), [10, 10])
x = tf.reshape(x, [tf.shape(x)[0], 400])
x = keras.layers.BatchNormalization(momentum=0.5, name='{head}_norm')(x, training=self.is_training)
x = keras.layers.Dropout(0.5)(x, training=self.is_training)
return keras.layers.Dense(self.nclasses, name='{head}', kernel_regularizer=keras.regularizers.L2(0.01))(x)
""",
    head="import keras",
)
OLD, NEW = (NETWORK.format(head=head, trunk="x") for head in ("old", "new"))
FINE_TUNE = {"head_epochs": 4, "head_rate": 0.01, "trunk_factor": 0.5}
ON_FEATURES, ON_IMAGES = "trained on features", "trained on images"


@pytest.fixture
def old(trained: Any) -> Path:
    """The last snapshot of a trained network."""
    return trained(OLD, "old", epochs=1).job_folder / "snapshot_1.ckpt"


def _differing(one: Path, other: Path, epoch: int = 5) -> list[str]:
    """Return the names of the variables that differ between two jobs after an epoch."""
    first, second = (snapshot(job, f"snapshot_{epoch}.ckpt") for job in (one, other))
    assert first.keys() == second.keys()
    return [name for name in first if not np.array_equal(first[name], second[name])]


def _tune(old: Path, **settings: Any) -> dict[str, Any]:
    return {"weights": str(old), "fine_tune": FINE_TUNE, "epochs": 5, **settings}


# Omits its input at random before pretrained layers, as EfficientNetV2 and AlexNet do.
OMITTING = (
    "keras.layers.Conv2D(4, 1, name='conv2')(x + "
    "keras.layers.Dropout(0.5, noise_shape=(None, 1, 1, 1))(x, training=self.is_training))"
)


@pytest.mark.parametrize("trunk", ["x", OMITTING])
def test_without_augmentation_features_change_nothing(train: Any, trained: Any, trunk: str) -> None:
    before, text = (NETWORK.format(head=head, trunk=trunk) for head in ("old", "new"))
    old = trained(before, "old", epochs=1).job_folder / "snapshot_1.ckpt"
    on_features = train(text, name="features", **_tune(old))
    assert ON_FEATURES in on_features.output and "of each of 1 variants of 64 images" in on_features.output
    assert "Computing features: 0%" in [event.doing for event in on_features.of(Progressed)]
    (change,) = on_features.of(PhaseChanged)
    assert change.epoch == 4
    before = on_features.events[: on_features.events.index(change)]
    # Four of five epochs, but little of the time.
    assert [event for event in before if isinstance(event, Progressed)][-1].fraction < 0.5
    # Steps that measure all layers are computed from images.
    on_images = train(text, name="images", **_tune(old), gradient_metrics=True)
    assert ON_IMAGES in on_images.output
    assert _differing(on_features.job_folder, on_images.job_folder) == []
    for stage in ("train", "val"):
        assert on_features.values(stage, "loss") == on_images.values(stage, "loss")
    # The first step need not wait for the validation of the weights before it.
    rows = [
        [(row.stage, row.step) for row in outcome.of(Measured)][:2] for outcome in (on_features, on_images)
    ]
    assert rows == [[("train", 1), ("val", 0)], [("val", 0), ("train", 1)]]


def test_features_are_those_before_an_enlargement(train: Any, old: Path) -> None:
    # 5·5·4 numbers of 4 bytes, and the label; resized, there would be four times as many.
    assert "408 Bytes of each of" in train(NEW, **_tune(old)).output


@pytest.mark.parametrize("settings", [{"batch_size": 12}, {"balance": "sampling"}], ids=str)
def test_batches_across_epochs_and_balanced_epochs_have_their_features(
    train: Any, old: Path, settings: dict[str, Any]
) -> None:
    on_features = train(NEW, name="features", **_tune(old, **settings))
    on_images = train(NEW, name="images", **_tune(old, **settings), gradient_metrics=True)
    assert ON_FEATURES in on_features.output and ON_IMAGES in on_images.output
    assert _differing(on_features.job_folder, on_images.job_folder) == []


def test_a_step_waits_for_its_own_features_only(
    fail: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = head.FeatureSteps.compute

    def compute_two(self: Any, images: Any, labels: Any, number: int) -> Any:
        if number == 2:
            raise UserFault("no third batch")
        return compute(self, images, labels, number)

    monkeypatch.setattr(head.FeatureSteps, "compute", compute_two)
    assert len(fail(NEW, **_tune(old), augment=AUGMENT).values("train", "loss")) == 2


AUGMENT = {"flip": "fliplr", "rotation": 20.0, "noise": 0.1}


def test_epochs_take_turns_with_variants(train: Any, old: Path) -> None:
    outcome = train(NEW, **_tune(old), augment=AUGMENT)
    assert "of each of 2 variants of 64 images" in outcome.output


def test_a_training_resumed_in_the_head_phase_ends_with_the_same_weights(
    model: Any, start: Any, resume: Any, trained: Any, often: None
) -> None:
    before, text = (NETWORK.format(head=head, trunk=OMITTING) for head in ("old", "new"))
    old = trained(before, "old", epochs=1).job_folder / "snapshot_1.ckpt"
    settings = _tune(old, augment={**AUGMENT, "mixup": 0.2})
    whole = start(model(text, "whole", **settings)).wait()
    assert whole.code == 0 and ON_FEATURES in whole.output, whole.output
    task = model(text, "parts", **settings)
    running = start(task)
    while not resume_points(task.parent)[0]:
        assert running.poll() is None, running.output()
    running.stop()
    running.wait()
    assert 0 < resume_points(task.parent)[0][0].epoch < 4
    assert resume(task).wait().code == 0
    assert _differing(whole.job_folder, task.parent) == []


def test_a_training_stopped_in_its_first_validation_resumes_before_its_first_step(
    model: Any, start: Any, resume: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = start(model(NEW, "whole", **_tune(old))).wait()

    def stop(self: Any, *given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    task = model(NEW, "parts", **_tune(old))
    with monkeypatch.context() as patched:
        patched.setattr(validation.Validation, "run", stop)
        stopped = start(task).wait()
    assert [row.step for row in stopped.of(Measured)] == [1]
    assert [point.step for point in resume_points(task.parent)[0]] == [0]
    resumed = resume(task).wait()
    assert resumed.code == 0, resumed.output
    assert _differing(whole.job_folder, task.parent) == []


def test_a_standard_network_builds_its_validation_after_the_first_step(
    train: Any,
    fail: Any,
    model: Any,
    start: Any,
    resume: Any,
    tmp_path: Path,
    often: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = standard_networks.network("lenet").text
    datasets = [
        str(write_dataset(tmp_path / f"{classes}", {"train": 64, "val": 22}, 16, 1, classes=classes))
        for classes in (3, 4)
    ]
    old = train(network, name="old", dataset=datasets[0], epochs=1).job_folder / "snapshot_1.ckpt"
    settings = _tune(old, dataset=datasets[1])
    whole = start(model(network, "whole", **settings)).wait()
    assert whole.code == 0 and ON_FEATURES in whole.output, whole.output
    task = model(network, "parts", **settings)
    running = start(task)
    running.wait_for(Saved)
    running.stop()
    running.wait()
    assert resume(task).wait().code == 0
    assert _differing(whole.job_folder, task.parent) == []

    def refuse(self: Any, *given: Any) -> None:
        raise UserFault("no validation")

    monkeypatch.setattr(validation.Evaluation, "__init__", refuse)
    assert [row.step for row in fail(network, name="failed", **settings).of(Measured)] == [1]


def test_features_that_do_not_fit_into_memory_are_on_disk(
    train: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = train(NEW, name="memory", **_tune(old), augment=AUGMENT)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    on_disk = train(NEW, name="disk", **_tune(old), augment=AUGMENT)
    assert "in memory" in in_memory.output and "images, on disk" in on_disk.output
    assert _differing(in_memory.job_folder, on_disk.job_folder) == []


def test_without_room_for_features_the_head_is_trained_on_images(
    train: Any, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_features = train(NEW, name="features", **_tune(old))
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    monkeypatch.setattr(head, "DISK_SHARE", 0.0)
    on_images = train(NEW, name="images", **_tune(old))
    assert "because they take 26.1 kB, for which there is no room" in on_images.output
    assert _differing(on_features.job_folder, on_images.job_folder) == []


@pytest.mark.parametrize(
    ("trunk", "settings", "reason"),
    [
        ("x + tf.reverse(x, [0])", {}, "they depend on the other images of a batch"),
        ("x", {"fine_tune": {**FINE_TUNE, "head_epochs": 1}}, "the phase has fewer than two epochs"),
        ("x", {"batch_accumulation": 2}, "each step is divided"),
        (
            "keras.layers.Conv2D(4, 1, name='conv2')(tf.nn.dropout(x, 0.5) if self.is_training else x)",
            {},
            "layers that are not trained come behind random numbers",
        ),
    ],
)
def test_where_features_would_differ_the_head_is_trained_on_images(
    train: Any, trained: Any, trunk: str, settings: dict[str, Any], reason: str
) -> None:
    texts = [NETWORK.format(head=head, trunk=trunk) for head in ("old", "new")]
    old = trained(texts[0], "old", epochs=1).job_folder / "snapshot_1.ckpt"
    outcome = train(texts[1], **_tune(old, **settings))
    assert ON_IMAGES in outcome.output and reason in outcome.output
    assert ON_FEATURES not in outcome.output


@pytest.mark.parametrize(
    "name",
    [
        "alexnet",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in (
                "vgg16",
                "googlenet",
                "resnet50",
                "efficientnetlite",
                "efficientnetv2",
                "mobilenetv3",
                "convnext",
            )
        ),
    ],
)
def test_the_head_of_a_standard_network_has_the_same_loss_on_features(
    in_child: Any, tmp_path: Path, name: str
) -> None:
    network = standard_networks.network(name)
    (tmp_path / "network.py").write_text(network.text)
    on_features, on_images, size = in_child(_losses, tmp_path / "network.py", max(64, network.smallest))
    assert on_features == pytest.approx(on_images, rel=1e-5)
    assert size < 10_000  # values: of the layers before the head, which are smaller than images


def _losses(path: Path, side: int) -> tuple[float, float, int]:
    """Return the loss of a step of the head on features and on images, and the number of features of an image."""
    from digits.worker.input.preparation import Chunk, Preparation
    from digits.worker.randomness.streams import Randomness
    from digits.worker.training.loop.head import FeatureSteps
    from digits.worker.training.step.optimizers import Optimizer
    from digits.worker.training.step.step_function import StepFunction
    from digits.worker.training.step.training_step import Phase, StepOptions, TrainingStep

    shape, traces = (side, side, 3), []
    for classes in (3, 2):
        target = ClassIndex.of([str(number) for number in range(classes)])
        store = variables.VariableStore()
        net = network_loader.load(path, shape, target)
        traces.append((net, store, inference.trace(net, store)))
    (_, other, _), (net, store, shown) = traces
    trunk = [name for name, item in store.variables.items() if other.variables[name].shape == item.shape]
    phase = Phase(Optimizer(Solver(type="ADAM")), 0, trunk, 0.0, shown.built.layers_up_to(trunk))
    preparation = Preparation(np.zeros(shape, np.float32), None, shape)
    step = TrainingStep(net, store, preparation, Randomness(0), StepOptions(phase, 0))
    images = tf.constant(np.random.default_rng(0).integers(0, 256, (4, *shape)), tf.uint8)
    labels = tf.constant([0, 1, 0, 1], tf.int64)
    function = FeatureSteps(step)
    features = function.compute(images, labels, 0)
    on_features = function.steps([tf.constant(column[None]) for column in features], [0.0], 0)
    on_images = StepFunction(step).steps(Chunk(images, labels, tf.range(4, dtype=tf.int64)[None]), [0.0], 0)
    return float(on_features[0, 0]), float(on_images[0, 0]), sum(column.shape[1] for column in features)
