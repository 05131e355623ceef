"""SavedModels of trained networks, used by plain TensorFlow in a process without DIGITS."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import recipe
from digits.core.events import Finished, PhaseChanged, Warned, WeightsLoaded
from digits.data.models import export as model_export
from tests.power_loss import Recording
from tests.worker import networks
from tests.worker.conftest import Outcome, snapshot
from tests.worker.lazily import network_watch, tf
from tests.worker.training.loop.test_activations import WITH_HISTOGRAMS


@pytest.fixture
def export(perform: Any, tmp_path: Path, gradients: Path) -> Callable[..., Outcome]:
    """Return a function that exports the latest snapshot of a training to ``exported``, by default as a SavedModel.

    The export must succeed, or fail with ``fails``.
    """

    def export(
        training: Outcome, format: str = "savedmodel", fails: bool = False, **settings: Any
    ) -> Outcome:
        task = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}" / "export"
        task.mkdir(parents=True)
        (snapshot,) = training.job_folder.glob("snapshot_1.ckpt.index")
        target = tmp_path / "exported"
        settings = {"dataset": str(gradients), **settings}
        recipe.Export(
            model=str(training.job_folder),
            snapshot=snapshot.with_suffix("").name,
            target=str(target),
            format=format,  # type: ignore[arg-type]
            **settings,
        ).save(task)
        outcome: Outcome = perform(task)
        assert outcome.code == int(fails), outcome.output
        return outcome

    return export


# Read SavedModels and numbers of images, and print the outputs.
USES = """
import json, sys
import numpy as np, tensorflow as tf
for line in sys.stdin:
    folder, count, signature = json.loads(line)
    model = tf.saved_model.load(folder)
    images = tf.constant(np.random.default_rng(5).integers(0, 256, (count, 12, 12, 1)), tf.float32)
    found = model.signatures[signature](images=images)
    print(json.dumps({name: value.numpy().tolist() for name, value in found.items()}), flush=True)
"""


@pytest.fixture(scope="module")
def plain_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process without DIGITS."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    folder = tmp_path_factory.mktemp("plain")
    with open(folder / "errors", "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", USES],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        yield process


@pytest.fixture
def used(plain_tensorflow: subprocess.Popen[str]) -> Callable[..., dict[str, Any]]:
    """Return a function that computes the outputs of a SavedModel for random images, in plain TensorFlow."""

    def used(folder: Path, count: int = 2, signature: str = "serving_default") -> dict[str, Any]:
        assert plain_tensorflow.stdin and plain_tensorflow.stdout
        plain_tensorflow.stdin.write(json.dumps([str(folder), count, signature]) + "\n")
        plain_tensorflow.stdin.flush()
        found: dict[str, Any] = json.loads(plain_tensorflow.stdout.readline())
        return found

    return used


def expected(job_folder: Path, count: int = 2) -> Any:
    """Compute the outputs of a job's network for the same images. Call it with `in_child`, because it uses TensorFlow."""
    from digits.worker.training.models import trained

    found = trained.load(job_folder, "snapshot_1.ckpt")
    images = tf.constant(np.random.default_rng(5).integers(0, 256, (count, 12, 12, 1)), tf.uint8)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), found.outputs(images))


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(networks.BATCH_NORM.replace("{arguments}", ""), id="slim"),
        pytest.param(networks.KERAS_LENET, id="keras", marks=pytest.mark.nightly),
        pytest.param(networks.RAW, id="raw", marks=pytest.mark.nightly),
    ],
)
def test_an_exported_network_gives_the_same_outputs(
    trained: Any, export: Any, in_child: Any, used: Any, network: str
) -> None:
    training = trained(network, **WITH_HISTOGRAMS)
    outcome = export(training)
    result = outcome.of(Finished)[0].result
    assert result["difference"] < 1e-5 and result["bytes"] > 1000
    folder = outcome.job_folder.parent / "exported"
    given = used(folder)
    assert list(given) == ["output"]
    served = used(folder, signature="predictions")
    scores = np.exp(given["output"])
    assert list(served) == ["predictions"]
    assert np.allclose(served["predictions"], scores / scores.sum(axis=1, keepdims=True), atol=1e-6)
    card = (folder / "MODEL_CARD.md").read_text()
    seed = training.of(Finished)[0].result["seed"]
    for words in (
        "Network: custom, ",
        f"Seed: {seed}\n",
        "Learning-rate schedule: Fixed",
        "Signature `predictions`",
    ):
        assert words in card
    assert np.allclose(given["output"], in_child(expected, training.job_folder), rtol=1e-4, atol=1e-5)
    about = json.loads((folder / "assets.extra" / "model.json").read_text())
    assert about["outputs"] == {"output": {"shape": [None, 4], "type": "float32"}}
    assert about["input"]["shape"] == [None, 12, 12, 1] and about["labels"] == ["right", "left", "down", "up"]
    assert (folder / "assets.extra" / "labels.txt").read_text().split() == about["labels"]
    assert (folder / "assets.extra" / "network.py").read_text() == network


def batch_size(job_folder: Path) -> int:
    from digits.worker.training.models import trained

    return trained.load(job_folder, "snapshot_1.ckpt").batch_size


def test_a_finished_export_survives_a_power_loss(
    trained: Any, export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trained(networks.RAW, **WITH_HISTOGRAMS)
    ignored = ("recording", training.job_folder.name, "output.log")
    recording = Recording(tmp_path, tmp_path / "recording", ignored)
    with monkeypatch.context() as patched:
        recording.start(patched)
        outcome = export(training)
    assert outcome.of(Finished), outcome.output
    left = recording.surviving()
    (log,) = (data for name, data in left.items() if name.endswith("events.jsonl"))
    assert log and b'"finished"' in log
    exported = [path for path in (tmp_path / "exported").rglob("*") if path.is_file()]
    assert len(exported) > 4
    assert all(left.get(str(path.relative_to(tmp_path))) == path.read_bytes() for path in exported)


def test_the_global_step_matches_the_snapshot(train: Any, export: Any, in_child: Any, used: Any) -> None:
    """The recipe has no batch size; exporting and predicting use that of the training."""
    training = train(
        networks.classifier(
            """
x = slim.fully_connected(slim.flatten(self.x), self.nclasses, scope='fc')
step = tf.cast(tf.train.get_or_create_global_step(), tf.float32)
return x * 0.0 + step
"""
        ),
        epochs=1,
        batch_size=None,
    )
    outcome = export(training)
    assert in_child(batch_size, training.job_folder) == 16
    given = used(outcome.job_folder.parent / "exported")["output"]
    steps = training.of(Finished)[0].result["steps"]
    assert np.array_equal(given, np.full((2, 4), steps))
    assert np.array_equal(in_child(expected, training.job_folder), given)


SEVERAL = networks.classifier(
    """
x = slim.flatten(self.x) / tf.cast(tf.maximum(tf.train.get_or_create_global_step(), 100), tf.float32)
logits = slim.fully_connected(x, self.nclasses, activation_fn=None, scope='fc')
return {outputs}
"""
).replace("self.inference, self.y", "pick(self.inference), self.y")


@pytest.mark.parametrize(
    ("outputs", "pick", "names"),
    [
        pytest.param(
            "[logits, x]", "lambda outputs: outputs[0]", {"output_0", "output_1"}, marks=pytest.mark.nightly
        ),
        pytest.param(
            "(logits, (x, x))",
            "lambda outputs: outputs[0]",
            {"output_0", "output_1_0", "output_1_1"},
            marks=pytest.mark.nightly,
        ),
        (
            "{'logits': logits, 'a/b': (x, x)}",
            "lambda outputs: outputs['logits']",
            {"logits", "a_b_0", "a_b_1"},
        ),
    ],
    ids=["list", "tuple", "dict"],
)
def test_all_outputs_are_exported(
    train: Any, export: Any, used: Any, outputs: str, pick: str, names: set[str]
) -> None:
    network = f"pick = {pick}\n" + SEVERAL.replace("{outputs}", outputs)
    outcome = export(train(network, epochs=1))
    given = used(outcome.job_folder.parent / "exported", count=3)
    assert set(given) == names
    assert {len(value) for value in given.values()} == {3}


HALVES = "tf.concat(tf.split(self.x, 2), 0)"


@pytest.mark.parametrize(
    "batch",
    [pytest.param(HALVES, marks=pytest.mark.nightly), "tf.reshape(self.x, [8, 12, 12, 1])"],
    ids=["halves", "fixed"],
)
def test_a_network_that_requires_certain_batch_sizes_is_exported(
    trained: Any, export: Any, used: Any, batch: str
) -> None:
    outcome = export(trained(networks.LINEAR.replace("self.x", batch), epochs=1, val_interval=0))
    assert len(used(outcome.job_folder.parent / "exported", count=8)["output"]) == 8


def test_a_network_that_calls_python_is_refused_with_its_line(
    train: Any, export: Any, tmp_path: Path
) -> None:
    network = networks.LINEAR.replace("self.x / 100.0", "tf.py_func(lambda x: x / 100, [self.x], tf.float32)")
    network = network.replace("model = slim.flatten(tf.py_func", "model = tf.py_func").replace(
        "tf.float32))", "tf.float32)\n        model = tf.reshape(model, [-1, 144])"
    )
    outcome = export(train(network, epochs=1), fails=True)
    assert "calls Python" in outcome.failure.message
    assert "py_func" in network.splitlines()[outcome.failure.line - 1]
    assert not (tmp_path / "exported").exists()


def test_a_network_with_randomness_is_exported_with_a_warning(train: Any, export: Any) -> None:
    network = networks.LINEAR.replace("self.x / 100.0", "self.x / 100.0 + tf.random_normal(tf.shape(self.x))")
    outcome = export(train(network, epochs=1))
    assert outcome.of(Finished)[0].result["difference"] is None
    assert "random" in outcome.of(Warned)[0].message


def test_an_existing_export_is_not_overwritten(trained: Any, export: Any, tmp_path: Path) -> None:
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "mine").touch()
    outcome = export(trained(networks.LINEAR), fails=True)
    assert "is not empty" in outcome.failure.message
    assert [path.name for path in (tmp_path / "exported").iterdir()] == ["mine"]


# The other formats

# Only Keras layers, in few operations: conversions take seconds.
KERAS_ONLY = networks.classifier(
    """
net = keras.layers.Conv2D(4, 3, strides=2, activation="relu", name="conv")(self.x / 100.0)
net = keras.layers.BatchNormalization(name="norm")(net, training=self.is_training)
return keras.layers.Dense(self.nclasses, name="dense")(keras.layers.Flatten()(net))
""",
    "import keras",
)


def run_example(program: str, image: str) -> str:
    """Run an example that uses TensorFlow, which is imported already. Call it with `in_own_child`."""
    from unittest import mock

    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        mock.patch.object(sys, "argv", [program, image]),
        mock.patch.object(sys, "path", [str(Path(program).parent), *sys.path]),
    ):
        runpy.run_path(program)
    return printed.getvalue()


def scores_of(job_folder: Path, image: str, padding: tuple[int, int]) -> Any:
    """Compute the output of a job's network for an image file, padded to this size. Call it with `in_child`."""
    from digits.worker.training.models import trained

    padded = Image.open(image).crop((0, 0, *padding))
    pixels = np.asarray(padded.resize((12, 12), Image.Resampling.BILINEAR))
    return (
        trained.load(job_folder, "snapshot_1.ckpt").outputs(tf.constant(pixels[None, :, :, None]))[0].numpy()
    )


def test_files_contain_the_classes_and_the_range_of_the_input(
    trained: Any, export: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    training = trained(KERAS_ONLY, epochs=1)
    export(training, "onnx")
    entries = onnx.load(tmp_path / "exported" / "model.onnx").metadata_props
    of_onnx = {entry.key: json.loads(entry.value) for entry in entries}
    export(training, "litert", replace=True)
    with zipfile.ZipFile(tmp_path / "exported" / "model.tflite") as archive:
        of_litert = json.loads(archive.read("metadata.json"))
        assert archive.read("labels.txt").decode().split() == ["right", "left", "down", "up"]
    for about in (of_onnx, of_litert):
        assert about["labels"] == ["right", "left", "down", "up"]
        assert about["input"] == {
            "name": "images", "shape": [None, 12, 12, 1], "type": "float32", "range": [0, 255], "colors": "gray",
            "order": "NHWC", "resize_mode": "squash",
        }  # fmt: skip
        assert about["outputs"]["output"]["shape"] == [None, 4]


@pytest.mark.parametrize(
    "format",
    [
        "savedmodel",
        "keras",
        "litert-int8",
        "onnx",
        *(pytest.param(format, marks=pytest.mark.nightly) for format in ("litert", "litert-float16")),
    ],
)
def test_an_export_is_verified_in_its_own_runtime_and_its_example_runs(
    trained: Any, export: Any, in_child: Any, in_own_child: Any, tmp_path: Path, gradients: Path, format: str
) -> None:
    training = trained(KERAS_ONLY, epochs=1)
    dataset, padding = gradients, (24, 30)
    if format == "onnx":
        padding = (40, 30)
        dataset = Path(shutil.copytree(gradients, tmp_path / "padded"))
        manifest = json.loads((dataset / "dataset.json").read_text()) | {"padding": padding}
        (dataset / "dataset.json").write_text(json.dumps(manifest))
    folder = tmp_path / "exported"
    folder.mkdir()
    (folder / "old").touch()
    export(training, format, dataset=str(dataset), replace=True)
    assert not (folder / "old").exists()
    result = json.loads((folder / "export.json").read_text())
    is_exact = format in ("savedmodel", "keras", "litert", "onnx")
    assert 0 <= result["difference"] < (1e-5 if is_exact else 0.2)
    assert result["agreement"] >= (1.0 if is_exact else 0.8)
    assert (result["images"], result["source"], result["batch"], result["any_batch"]) == (22, "val", 1, True)
    assert result["milliseconds"] > 0 and result["runtime"].split()[0] in (
        "TensorFlow",
        "Keras",
        "LiteRT",
        "ONNX",
    )
    assert (folder / result["file"]).is_file()
    if format.startswith("litert"):
        names = "MODEL_CARD.md example.py export.json image_conversion.py labels.txt model.tflite"
        assert sorted(path.name for path in folder.iterdir()) == names.split()
    card = (folder / "MODEL_CARD.md").read_text()
    for words in (result["content_hash"], result["sha256"], result["runtime"], "accuracy: 0.", "SGD"):
        assert words in card
    image = str(tmp_path / "image.png")
    ramp = np.tile(np.linspace(20, 220, 24), (30, 1)).astype(np.uint8)
    Image.fromarray(ramp).save(image)
    program = (folder / "example.py").read_text()
    assert len(program.splitlines()) <= 15 and "digits" not in program
    if format in ("savedmodel", "keras"):
        printed = in_own_child(run_example, str(folder / "example.py"), image)
    else:
        command = [sys.executable, "-E", "-s", folder / "example.py", image]
        environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        printed = done.stdout
    best = re.match(r"\[\(([\d.e-]+), '(\w+)'\)", printed)
    assert best, printed
    scores = np.exp(in_child(scores_of, training.job_folder, image, padding))
    assert best[2] == ["right", "left", "down", "up"][scores.argmax()]
    assert float(best[1]) == pytest.approx(scores.max() / scores.sum(), rel=1e-3 if is_exact else 0.2)


UNSUPPORTED = networks.LINEAR.replace(
    "slim.flatten(self.x / 100.0)", "tf.math.erfinv(slim.flatten(self.x / 1000.0))"
)


@pytest.mark.parametrize(("format", "title"), [("litert", "LiteRT"), ("onnx", "ONNX")])
def test_an_unsupported_operation_is_named_with_its_line(
    trained: Any, export: Any, tmp_path: Path, format: str, title: str
) -> None:
    outcome = export(trained(UNSUPPORTED, epochs=1), format, fails=True)
    assert f"{title} does not support the operation Erfinv" in outcome.failure.message
    assert "erfinv" in UNSUPPORTED.splitlines()[outcome.failure.line - 1]
    assert "SavedModel" in outcome.failure.hint
    assert not [path.name for path in tmp_path.iterdir() if "exported" in path.name]


# The sine of large numbers amplifies rounding errors.
CHAOS = networks.classifier(
    """
net = keras.layers.Dense(8, name="first")(keras.layers.Flatten()(self.x))
net = keras.layers.Activation(lambda x: tf.sin(x * 1e4), name="wave")(net)
return keras.layers.Dense(self.nclasses, name="last")(net)
""",
    "import keras",
)


def test_an_export_with_other_outputs_is_refused_with_the_layer(trained: Any, export: Any) -> None:
    outcome = export(trained(CHAOS, epochs=1), "litert", fails=True)
    assert "its output “output” differs by" in outcome.failure.message
    assert "The first layer that differs is “wave”" in outcome.failure.message
    assert "Choose another format" in outcome.failure.hint


ON_TOP = networks.classifier(
    """
features = digits.pretrained("20261122-101530-1a2b3c{snapshot}")(self.x)
return keras.layers.Dense(self.nclasses, name="new")(features)
""",
    "import keras",
)


@pytest.fixture
def train_on_top(model: Callable[..., Path], perform: Any) -> Callable[..., Outcome]:
    """Return a function that fine-tunes `ON_TOP` of a snapshot of the job."""

    def train_on_top(name: str, snapshot: str = "") -> Outcome:
        fine_tune = {"head_epochs": 1, "head_rate": 0.01, "trunk_factor": 0.5}
        settings = {"epochs": 2, "snapshot_interval": 1, "fine_tune": fine_tune}
        return perform(model(ON_TOP.replace("{snapshot}", snapshot), name=name, **settings))

    return train_on_top


def test_a_job_is_part_of_another_network(
    train_on_top: Callable[..., Outcome],
    trained: Callable[..., Outcome],
    preflight: Callable[..., Outcome],
    export: Any,
    gradients: Path,
    tmp_path: Path,
) -> None:
    message = "digits.pretrained: there is no job 20261122-101530-1a2b3c on this server."
    assert train_on_top("without job").failure.message == message

    old = trained(KERAS_ONLY, name="20261122-101530-1a2b3c", epochs=1)
    failure = train_on_top("other snapshot", "/9").failure
    assert failure.message == "digits.pretrained: the job 20261122-101530-1a2b3c has no snapshot '9'."
    assert "20261122-101530-1a2b3c/1" in failure.hint

    new = train_on_top("new", "/1")
    assert new.code == 0, new.output
    assert [path.name for path in (old.job_folder / "exports").iterdir()] == ["snapshot_1-keras"]
    before = snapshot(old.job_folder, "snapshot_1.ckpt")
    first, second = (snapshot(new.job_folder, f"snapshot_{epoch}.ckpt") for epoch in (1, 2))
    assert np.array_equal(
        first["model/conv/kernel"], before["model/conv/kernel"]
    )  # the head is trained first
    assert not np.array_equal(second["model/conv/kernel"], before["model/conv/kernel"])
    assert first["model/new/kernel"].shape[0] == before["model/dense/kernel"].shape[0]
    (loaded,) = new.of(WeightsLoaded)
    assert loaded.source == "the job 20261122-101530-1a2b3c/1" and "model/conv/kernel" in loaded.taken
    assert not new.of(Warned)
    export(new, "keras")

    # `digits check` runs in a temporary folder, and finds jobs beside the dataset.
    dataset = shutil.copytree(gradients, tmp_path / "jobs" / "dataset")
    old.job_folder.rename(dataset.with_name(old.job_folder.name))
    network = ON_TOP.replace("{snapshot}", "/1")
    outcome = preflight(network, dataset=str(dataset))
    assert outcome.code == 0, outcome.output
    failure = preflight(network).failure
    assert failure.message.startswith("digits.pretrained: there is no job 20261122-101530-1a2b3c")
    assert "beside that of the dataset" in failure.hint


def test_the_export_of_a_job_is_not_a_wait_of_the_network(
    trained: Callable[..., Outcome], train_on_top: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(KERAS_ONLY, name="20261122-101530-1a2b3c", epochs=1)
    monkeypatch.setattr(network_watch, "NETWORK_SECONDS", 2.0)
    monkeypatch.setattr(network_watch, "LOOK_SECONDS", 0.1)
    outcome = train_on_top("new")  # another process imports TensorFlow and exports
    assert outcome.code == 0, outcome.output


def test_a_job_of_other_functions_than_keras_layers_is_a_frozen_part(
    train_on_top: Callable[..., Outcome], trained: Callable[..., Outcome]
) -> None:
    old = trained(networks.LINEAR, name="20261122-101530-1a2b3c", epochs=1)
    new = train_on_top("new")
    assert new.code == 0, new.output
    assert [path.name for path in (old.job_folder / "exports").iterdir()] == ["snapshot_1-savedmodel"]
    (warning,) = new.of(Warned)
    assert "the job 20261122-101530-1a2b3c cannot be trained further" in warning.message
    assert not new.of(PhaseChanged)  # the head is trained in all epochs
    rates = new.values("train", "learning_rate")
    assert rates[0] == 0.01 and 0 < rates[-1] < 0.01


ERFINV = KERAS_ONLY.replace(
    "keras.layers.Flatten()(net)", "tf.math.erfinv(0.5 * tf.tanh(keras.layers.Flatten()(net)))"
)


@pytest.mark.parametrize(
    ("network", "cause"),
    [
        pytest.param(networks.LINEAR, "slim", id="slim", marks=pytest.mark.nightly),
        pytest.param(ERFINV, "erfinv", id="erfinv"),
    ],
)
def test_a_network_with_functions_that_keras_does_not_have_is_no_keras_model(
    trained: Any, export: Any, network: str, cause: str
) -> None:
    training = trained(network, epochs=1)
    assert model_export.refusals(training.job_folder) == {}
    outcome = export(training, "keras", fails=True)
    assert "cannot be exported as a Keras model: it calls" in outcome.failure.message
    assert cause in network.splitlines()[outcome.failure.line - 1]
    assert "keras.layers" in outcome.failure.hint
    (refusal,) = model_export.refusals(training.job_folder).values()
    failure = outcome.failure
    assert (refusal.message, refusal.hint, refusal.line) == (failure.message, failure.hint, failure.line)


@pytest.mark.parametrize("format", [pytest.param("litert", marks=pytest.mark.nightly), "onnx"])
def test_a_network_that_requires_a_batch_size_is_exported_with_it(
    trained: Any, export: Any, format: str
) -> None:
    outcome = export(trained(networks.LINEAR.replace("self.x", HALVES), epochs=1, val_interval=0), format)
    result = outcome.of(Finished)[0].result
    assert (result["batch"], result["any_batch"], result["images"]) == (2, False, 22)
    assert result["input"]["shape"] == [2, 12, 12, 1] and result["difference"] < 1e-5
    example = (outcome.job_folder.parent / "exported" / "example.py").read_text()
    assert ".repeat(2, axis=0)" in example


def test_a_damaged_snapshot_is_refused(trained: Any, export: Any) -> None:
    training = trained(KERAS_ONLY, epochs=1)
    (data,) = training.job_folder.glob("snapshot_1.ckpt.data*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    outcome = export(training, "onnx", fails=True)
    assert "snapshot_1.ckpt" in outcome.failure.message + outcome.failure.hint


def test_a_dataset_deleted_meanwhile_is_reported(trained: Any, export: Any, tmp_path: Path) -> None:
    outcome = export(trained(KERAS_ONLY, epochs=1), "onnx", dataset=str(tmp_path / "deleted"), fails=True)
    assert outcome.failure.message, outcome.output
    assert "dataset" in outcome.failure.message and "Traceback" not in outcome.failure.message


# In int8, the smallest of these divisors are rounded to zero, which LiteRT refuses.
RECIPROCAL = networks.classifier(
    """
wide = tf.square(tf.square(self.x + 1.0))
return keras.layers.Dense(self.nclasses, name="dense")(keras.layers.Flatten()(1.0 / wide))
""",
    "import keras",
)


def test_a_file_that_fails_in_its_runtime_is_refused(trained: Any, export: Any, tmp_path: Path) -> None:
    outcome = export(trained(RECIPROCAL, epochs=1), "litert-int8", fails=True)
    assert "does not run in its runtime" in outcome.failure.message and "DIV" in outcome.failure.message
    assert "SavedModel" in outcome.failure.hint
    assert not (tmp_path / "exported").exists()
