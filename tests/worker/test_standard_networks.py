"""The standard networks have the published numbers of parameters, and learn."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import Built, Finished
from digits.data.models.pretrained import WeightsPlaces, obtain
from digits.data.models.pretrained_catalog import CATALOG
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.kinds import standard_networks
from digits.kinds.advice.recommendation import Facts, Resources, recommend
from tests.worker.conftest import SECONDS_ALLOWED, snapshot, write_dataset
from tests.worker.lazily import applications, inference, network_loader, tf, tower, variables

FOLDER = Path(standard_networks.__file__).resolve().parents[1] / "networks"

# Classes, and trainable parameters, as published.
PUBLISHED = {
    "lenet": (10, 431_080),
    "alexnet": (1000, 60_965_224),
    "vgg16": (1000, 138_357_544),
    "googlenet": (1000, 6_998_552),
    "resnet32": (10, 464_154),
    "resnet50": (1000, 25_583_592),
    "efficientnetlite": (1000, 4_652_008),
    "mobilenetv3": (1000, 5_483_032),
    "efficientnetv2": (1000, 7_139_704),
    "convnext": (1000, 28_589_128),
    "vit": (1000, 86_567_656),
    "autoencoder": (10, 2_837_314),
}
# The input of networks that are built only to count their parameters. The others take seconds to build, so
# they are counted where they are trained or shown.
COUNTED = {
    "lenet": (28, 28, 1),
    "alexnet": (227, 227, 3),
    "vgg16": (224, 224, 3),
    "resnet32": (32, 32, 3),
    "convnext": (32, 32, 3),
    "vit": (32, 32, 1),
    "autoencoder": (28, 28, 1),
}


# Built with a package that is not installed by default.
needs_keras_hub = pytest.mark.skipif(find_spec("keras_hub") is None, reason="requires keras-hub")


@pytest.mark.parametrize(
    "name",
    [
        "lenet",
        "alexnet",
        "vgg16",
        "resnet32",
        "autoencoder",
        pytest.param("convnext", marks=pytest.mark.nightly),  # Keras builds it, in seconds
        pytest.param("vit", marks=needs_keras_hub),
    ],
)
def test_the_number_of_parameters_is_as_published(in_child, name):
    classes, parameters = PUBLISHED[name]
    _, _, trained = in_child(_traced, name, COUNTED[name], name, classes)
    assert trained == parameters == described_parameters(name)


def described_parameters(name: str) -> int:
    """Return the number of parameters that the comment of a network states; the trainable ones must be as published.

    Keras counts moving averages as parameters.
    """
    settings = standard_networks.network(name).settings
    total, averages = (
        int(found[1].replace(",", "")) if (found := re.search(pattern, settings)) else 0
        for pattern in (r"([\d,]+) parameters", r"([\d,]+) of them moving averages")
    )
    assert total - averages == PUBLISHED[name][1]
    return total


@pytest.mark.parametrize("name", [*sorted(PUBLISHED.keys() - COUNTED.keys()), "convnext"])
def test_a_network_states_the_published_number_of_parameters(name):
    described_parameters(name)


def test_googlenet_has_auxiliary_classifiers_only_in_training(visualize, tmp_path):
    folder = write_dataset(tmp_path / "large", {"train": 2}, size=224, channels=3, classes=2)
    outcome = visualize((FOLDER / "googlenet.py").read_text(), folder)
    assert isinstance(outcome.events[-1], Finished), outcome.output
    built = outcome.of(Built)[0]
    # Each of the three classifiers has 2 outputs here instead of 1000.
    parameters, auxiliary = described_parameters("googlenet"), 6_379_728
    assert sum(layer["parameters"] for layer in built.layers) == parameters - 998 * 1025
    assert built.parameters == parameters + auxiliary - 998 * (1025 + 1025 + 1025)
    assert not any("auxiliary" in layer["name"] for layer in built.layers)


@dataclass(frozen=True)
class Lesson:
    """The size of the square images, and the length of a training with the recommended solver, rate and schedule.

    Networks with batch normalization need about 20 steps until their moving averages
    settle; MobileNetV3 with its small activations needs 100. ``features`` is the number of inputs of the last layer,
    if the number of parameters does not depend on the image size.
    """

    side: int
    epochs: int = 8
    batch: int = 8
    features: int | None = None


LESSONS = {
    "lenet": Lesson(28),
    "alexnet": Lesson(67),
    "vgg16": Lesson(32, batch=12),
    "googlenet": Lesson(32, epochs=14),
    "resnet32": Lesson(16),
    "resnet50": Lesson(32, features=2048),
    "efficientnetlite": Lesson(32, epochs=30, features=1280),
    "mobilenetv3": Lesson(32, epochs=30, features=1280),
    "efficientnetv2": Lesson(32, epochs=20, features=1280),
    "convnext": Lesson(32, epochs=1),
}


# One without and one with moving averages; the others repeat their layers.
OFTEN = {"lenet", "short resnet32"}
LESSONS["short resnet32"] = LESSONS["resnet32"]


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.nightly) for name in LESSONS]
)
def test_a_network_for_classification_learns(model, start, tmp_path, monkeypatch, name):
    lesson, is_short = LESSONS[name], name.startswith("short ")
    name = name.removeprefix("short ")
    text = (FOLDER / f"{name}.py").read_text()
    if is_short:  # more blocks repeat the same operations
        assert "BLOCKS = 5\n" in text
        text = text.replace("BLOCKS = 5\n", "BLOCKS = 1\n")
    if name == "convnext":  # more blocks repeat the same operations, without moving averages
        from keras.src.applications import convnext

        monkeypatch.setitem(convnext.MODEL_CONFIGS["tiny"], "depths", [1, 1, 1, 1])
    dataset = write_dataset(
        tmp_path / "pictures", {"train": 24, "val": 12}, size=lesson.side, channels=3, classes=3
    )
    facts = Facts("image-classification", lesson.side, lesson.side, 3, images={"train": 24})
    recommended = recommend(facts, Resources(), name, fine_tune=False)
    assert recommended and recommended.settings["lr_policy"] == "cosine"
    settings = recommended.settings
    task = model(
        text,
        dataset=str(dataset),
        epochs=lesson.epochs,
        val_interval=lesson.epochs,
        batch_size=lesson.batch,
        snapshot_interval=0,  # snapshots of AlexNet, VGG-16 and ResNet-50 have hundreds of MB each
        mean=settings["use_mean"],
        solver={"type": settings["solver_type"], "learning_rate": float(settings["learning_rate"])},
        lr_policy={"policy": "cosine"},
    )
    outcome = start(task).wait(2 * SECONDS_ALLOWED)
    assert isinstance(outcome.events[-1], Finished), outcome.output
    if lesson.features:
        missing = (PUBLISHED[name][0] - 3) * (lesson.features + 1)  # for 3 classes instead of 1000
        assert outcome.of(Built)[0].parameters == described_parameters(name) - missing
    before, after = outcome.values("val", "loss")
    # The loss includes weight decay, so check its decrease; the chance level is ln 3 = 1.1.
    assert after < before - 0.5
    # Validation is a separate trace: it must use the trained weights and settled moving averages.
    assert outcome.values("val", "accuracy")[-1] > 0.8


@needs_keras_hub
def test_the_vision_transformer_learns(train, tmp_path):
    dataset = write_dataset(tmp_path / "pictures", {"train": 24, "val": 12}, size=28, channels=1, classes=3)
    text = (FOLDER / "vit.py").read_text()
    for old, new in (("SIDE = 224", "SIDE = 32"), ("= 12, 12, 768", "= 2, 4, 32")):
        assert old in text
        text = text.replace(old, new)
    solver = {"type": "ADAM", "learning_rate": 0.003}
    outcome = train(text, dataset=str(dataset), epochs=10, val_interval=10, mean="none", solver=solver)
    assert outcome.values("val", "accuracy")[-1] > 0.8


def test_the_autoencoder_learns_to_reproduce_its_input(train, gradients):
    outcome = train(
        (FOLDER / "autoencoder.py").read_text(),
        epochs=10,
        val_interval=10,
        snapshot_interval=0,
        mean="none",
        solver={"type": "ADAM", "learning_rate": 0.001},
    )
    assert isinstance(outcome.events[-1], Finished), outcome.output
    losses = outcome.values("val", "loss")
    assert losses[-1] < 0.1 * losses[0]


# The GAN is evaluated after this many epochs, and again after twice as many.
SEEN_EPOCH = 4


def test_the_generator_and_discriminator_of_the_gan_learn(train):
    outcome = train(
        (FOLDER / "gan.py").read_text(),
        epochs=2 * SEEN_EPOCH,
        val_interval=0,
        mean="none",
        snapshot_interval=SEEN_EPOCH,
        solver={"type": "ADAM", "learning_rate": 0.001},
    )
    assert isinstance(outcome.events[-1], Finished), outcome.output
    discriminator = outcome.values("train", "discriminator_loss")
    assert min(discriminator) < 0.5 * discriminator[0]
    first, last = (
        snapshot(outcome.job_folder, f"snapshot_{epoch}.ckpt") for epoch in (SEEN_EPOCH, 2 * SEEN_EPOCH)
    )
    for part in ("generator", "discriminator"):
        kernels = [name for name in first if name.startswith(f"model/{part}/") and name.endswith("/kernel")]
        assert kernels
        assert all(np.abs(last[name] - first[name]).max() > 1e-4 for name in kernels)


def _blobs(count: int, channels: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dark 32×32 images with bright squares, the masks of the squares, and their centers from -1 to 1."""
    random = np.random.default_rng(5)
    pictures = random.normal(40, 10, (count, 32, 32, channels)).astype(np.float32)
    masks = np.zeros((count, 32, 32, 1), np.int64)
    corners = random.integers(0, 32 - 8, (count, 2))
    for picture, mask, (top, left) in zip(pictures, masks, corners, strict=True):
        picture[top : top + 8, left : left + 8] += 150
        mask[top : top + 8, left : left + 8] = 1
    return pictures, masks, ((corners + 4) / 16 - 1).astype(np.float32)


def target_for(name: str, y: np.ndarray, classes: int = 2) -> Target:
    """Return the target of a dataset with the labels ``y`` that the network ``name`` is usually trained on."""
    if name in ("unet", "segmenter", "segmenter_resnet50"):
        return Mask.of(["a", "b"], *y.shape[-2:])
    if name in ("detector", "fpn"):
        return Boxes.of(["a", "b"], 3)
    if name not in ("regression", "multilabel"):
        return ClassIndex.of([str(number) for number in range(classes)])
    form = LabelSet if name == "multilabel" else Numbers
    return form.of(["top", "left"], y.mean(0).astype(float).tolist(), y.std(0).astype(float).tolist())


def _taught(name: str, x: np.ndarray, y: np.ndarray, steps: int, usual: str | None = None) -> dict[str, Any]:
    """Train repeatedly on one batch; return losses, the last validation metrics, and predictions.

    The dataset is one that the network ``usual`` is usually trained on, by default ``name``.
    """
    tf.keras.utils.set_random_seed(1)
    net = network_loader.load(FOLDER / f"{name}.py", x.shape[1:], target_for(usual or name, y))
    store = variables.VariableStore()

    @tf.function(autograph=False)
    def step(pictures: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        built = net.build(store, tower.TRAIN, pictures, labels)
        weights = built.objectives[0].variables
        gradients, _ = tf.clip_by_global_norm(tf.gradients(built.metrics["loss"], weights), 0.3)
        for weight, change in zip(weights, gradients, strict=True):
            weight.assign_sub(change)
        return built.metrics["loss"]

    @tf.function(autograph=False)
    def validated(pictures: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        return net.build(store, tower.VALIDATION, pictures, labels).metrics

    @tf.function(autograph=False)
    def answered(pictures: tf.Tensor) -> tf.Tensor:
        return net.build(store, tower.INFERENCE, pictures, None).output

    pictures, labels = tf.constant(x), tf.constant(y)
    losses = [float(step(pictures, labels)) for _ in range(steps)]
    store.lock("after training")
    metrics = {key: float(value) for key, value in validated(pictures, labels).items()}
    output = answered(pictures)
    found = output["boxes"] if isinstance(output, dict) else output
    return {"losses": losses, "metrics": metrics, "output": found.numpy()}


@pytest.mark.nightly
def test_the_detector_with_an_encoder_learns_boxes(in_child):
    pictures, _, middles = _blobs(8, channels=3)
    corners = (middles[:, ::-1] + 1) * 16 - 4
    boxes = np.concatenate([corners, corners + 8, np.zeros((8, 1))], axis=1)[:, None].astype(np.float32)
    result = in_child(_taught, "fpn", pictures, boxes, 60)
    assert result["losses"][-1] < 0.6 * result["losses"][0]
    errors = np.abs(result["output"][:, 0, :4] - boxes[:, 0, :4])
    assert np.median(errors) < 3, errors


def test_the_u_net_reduces_large_images(in_child):
    shape, _, _ = in_child(_traced, "unet", (200, 170, 3), "unet")
    assert shape == [200, 170, 2]


@pytest.mark.parametrize(
    ("name", "encoder", "new"),
    [
        ("segmenter", "efficientnetlite", ("model/up", "model/scores")),
        pytest.param(
            "segmenter_resnet50", "resnet50", ("model/up", "model/scores"), marks=pytest.mark.nightly
        ),
        pytest.param(
            "fpn", "resnet50", ("model/level", "model/scores", "model/edges"), marks=pytest.mark.nightly
        ),
    ],
)
def test_an_encoder_starts_from_a_network_for_classification(in_child, name, encoder, new):
    """Weights are matched by name and shape."""
    shape, variables, _ = in_child(_traced, name, (45, 70, 1), name)
    _, classifier, _ = in_child(_traced, encoder, (64, 64, 3), encoder)
    assert shape == ([100, 6] if name == "fpn" else [45, 70, 2])
    missing = {each for each in variables if classifier.get(each) != variables[each]}
    assert missing and all(each.startswith(new) for each in missing)


def _traced(
    name: str, shape: tuple[int, ...], usual: str, classes: int = 2
) -> tuple[list[int], dict[str, list[int]], int]:
    """Return the shape of the output for one image, those of the variables, and the number of trained parameters."""
    store = variables.VariableStore(empty=True)
    target = target_for(usual, np.zeros([2, *shape[:2]]), classes)
    traced = inference.trace(network_loader.load(FOLDER / f"{name}.py", shape, target), store)
    output = traced.function.structured_outputs
    output = output["boxes"] if isinstance(output, dict) else output
    shapes = {key: variable.shape.as_list() for key, variable in store.variables.items()}
    trained = sum(variables.count(variable) for variable in store.variables.values() if variable.trainable)
    return output.shape[1:].as_list(), shapes, trained


# Losses of GoogLeNet are computed for its smallest size below.
@pytest.mark.parametrize("name", ["lenet", "alexnet", "fpn"])
def test_a_network_takes_images_of_its_smallest_size(in_child, name):
    side = standard_networks.network(name).smallest
    shape, _, _ = in_child(_traced, name, (side, side, 3), name)
    assert shape


def test_a_network_for_classification_learns_positions(in_child):
    pictures, _, middles = _blobs(16)
    positions = 1000 + 50 * middles
    result = in_child(_taught, "lenet", pictures - 60, positions, 60, "regression")
    errors = (result["output"] - positions) / positions.std(0)
    assert np.square(errors).mean() < 0.3
    assert "accuracy" not in result["metrics"]


def test_a_network_for_classification_learns_to_predict_labels(in_child):
    pictures, _, middles = _blobs(16)
    labels = (middles > 0).astype(np.float32)
    result = in_child(_taught, "lenet", pictures - 60, labels, 60, "multilabel")
    assert ((result["output"] > 0) == labels).mean() > 0.9
    assert "accuracy" not in result["metrics"]


@pytest.mark.nightly  # the commit suite trains it in tests/kinds/regression/test_regression.py
def test_the_regression_network_learns_positions(in_child):
    pictures, _, middles = _blobs(16)
    result = in_child(_taught, "regression", pictures - 60, middles, 60)
    assert result["losses"][-1] < 0.3 * result["losses"][0]
    errors = (result["output"] - middles) / middles.std(0)
    assert np.square(errors).mean() == pytest.approx(result["metrics"]["loss"], rel=1e-3)


@pytest.mark.parametrize(("name", "width"), [("multilabel", 4), ("autoencoder", None)])
def test_only_networks_that_predict_labels_have_their_metrics(in_child, name, width):
    found, metrics = in_child(_label_metrics, name)
    assert found == width
    assert {"map", "f1_macro", "f1"} & set(metrics) == ({"map", "f1_macro", "f1"} if width else set())


def _label_metrics(name: str) -> tuple[int | None, list[str]]:
    """Return the number of values per record, and the metrics of a validation for two labels."""
    from digits.kinds.multilabel.network.metrics import Metrics

    target = target_for("multilabel", np.eye(2))
    net = network_loader.load(FOLDER / f"{name}.py", (16, 16, 1), target, Metrics(target))
    found = []

    def build(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        found.append(net.build(variables.VariableStore(), tower.VALIDATION, x, y))
        return found[0].metrics["loss"]

    tf.function(build, autograph=False).get_concrete_function(
        tf.TensorSpec([None, 16, 16, 1], tf.float32), tf.TensorSpec([None, 2], tf.float32)
    )
    values = found[0].record_values
    width = None if values is None else values.shape[1]
    means = dict.fromkeys(found[0].metrics, 0.0)
    return width, list(net.summarize(means, np.zeros((0, width or 0), np.float32)))


@pytest.mark.parametrize(
    ("name", "shape", "usual"),
    [
        ("googlenet", (32, 32, 3), "googlenet"),
        ("lenet", (28, 28, 1), "regression"),
        ("lenet", (28, 28, 1), "multilabel"),
        pytest.param("googlenet", (32, 32, 3), "regression", marks=pytest.mark.nightly),
        *(
            pytest.param("resnet32", (32, 32, 3), usual, marks=pytest.mark.nightly)
            for usual in ("resnet32", "regression", "multilabel")
        ),
        ("autoencoder", (16, 16, 1), "autoencoder"),
        ("gan", (16, 16, 1), "gan"),
        ("unet", (32, 32, 3), "unet"),
        ("dncnn", (16, 16, 1), "dncnn"),
        ("regression", (16, 16, 1), "regression"),
        ("multilabel", (16, 16, 1), "multilabel"),
        ("siamese", (28, 28, 2), "siamese"),
        *(
            pytest.param(name, (64, 64, 3), usual, marks=pytest.mark.nightly)
            for name, usual in [
                ("segmenter", "unet"),
                ("segmenter_resnet50", "unet"),
                ("detector", "detector"),
                ("fpn", "detector"),
            ]
        ),
    ],
)
def test_losses_are_in_float32_under_mixed_precision(in_child, name, shape, usual):
    assert set(in_child(_types_of_losses, name, shape, usual)) == {"float32"}


def _types_of_losses(name: str, shape: tuple[int, int, int], usual: str) -> list[str]:
    import keras

    usual_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    net = network_loader.load(FOLDER / f"{name}.py", shape, target_for(usual, np.eye(2)))
    store = variables.VariableStore(empty=True)
    labels = {
        "unet": ([None, *shape[:2]], tf.int64),
        "dncnn": ([None, *shape], tf.float32),
        "regression": ([None, 2], tf.float32),
        "multilabel": ([None, 2], tf.float32),
        "detector": ([None, 3, 5], tf.float32),
    }
    types: list[str] = []

    def build(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        built = net.build(store, tower.TRAIN, x, y)
        for objective in built.objectives:
            tf.gradients(objective.loss, objective.variables)
            types.append(objective.loss.dtype.name)
        return built.metrics["loss"]

    tf.function(build, autograph=False).get_concrete_function(
        tf.TensorSpec([None, *shape], tf.float32), tf.TensorSpec(*labels.get(usual, ([None], tf.int64)))
    )
    keras.config.set_dtype_policy(usual_policy)
    return types


# The number of the class "palace" of ImageNet.
PALACE = 698


@pytest.mark.network
@pytest.mark.parametrize("name", [pytest.param("resnet50", marks=pytest.mark.nightly), "efficientnetlite"])
def test_weights_from_packages_recognize_a_photo(in_child, tmp_path, name):
    assert in_child(_class_of_a_palace, name, tmp_path) == PALACE


def _class_of_a_palace(name: str, folder: Path) -> int:
    from sklearn.datasets import load_sample_image

    entry = dataclasses.replace(CATALOG[name], address="")
    net = applications.build(entry, (224, 224, 3), include_top=True)
    net.load_weights(obtain(entry, WeightsPlaces(folder), lambda fraction, action: None).path)
    photo = tf.image.resize(load_sample_image("china.jpg")[None, :, 100:527], [224, 224])
    return int(np.argmax(net(applications.preprocess(entry, photo), training=False)))
