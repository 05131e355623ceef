"""ImageNet weights in a training: found or downloaded, in the form's way and by ``digits.pretrained``."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.events import Progressed, Warned, WeightsLoaded
from digits.data.models import pretrained_catalog
from digits.data.models.pretrained_catalog import Pretrained, WeightsFile
from digits.data.models.weights_conversion import write_keras
from digits.data.samples.downloads import checksum_of
from tests.worker import networks
from tests.worker.conftest import snapshot
from tests.worker.lazily import restore


def tiny_net(
    weights: Any = None,
    include_top: bool = True,
    input_shape: Any = None,
    pooling: str | None = None,
    classes: int = 5,
    classifier_activation: str | None = "softmax",
) -> Any:
    """A network like those of keras.applications, for color images."""
    import keras

    layers = keras.layers
    image = keras.Input(input_shape)
    x = layers.Conv2D(4, 3, strides=2, name="tiny_conv")(image)
    x = layers.BatchNormalization(momentum=0.5, name="tiny_norm")(x)
    if include_top:
        x = layers.Dense(classes, name="predictions")(layers.GlobalAveragePooling2D()(x))
    elif pooling == "avg":
        x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, x, name="tiny")


def _save(path: Path, include_top: bool = True) -> dict[str, np.ndarray]:
    net = tiny_net(include_top=include_top, input_shape=(12, 12, 3))
    net.save_weights(path)
    return {variable.path: np.asarray(variable.value) for variable in net.weights}


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch, tensorflow: None, tmp_path: Path, in_child: Any) -> Pretrained:
    """An entry of the catalog, for `tiny_net`, whose files are in the folder ``published``."""
    import keras

    monkeypatch.setattr(keras.applications, "TinyNet", tiny_net, raising=False)
    folder = tmp_path / "published"
    folder.mkdir()
    in_child(_save, folder / "tiny_net.weights.h5")
    checksum = checksum_of(folder / "tiny_net.weights.h5", 32 * "0")
    full = WeightsFile("tiny_net.weights.h5", checksum, 1, 8)
    without_top = WeightsFile("tiny_net_notop.weights.h5", checksum, 1, 6)
    made = Pretrained("tiny", "TinyNet", "TinyNet", "http://127.0.0.1:9", full, without_top, "MIT")
    monkeypatch.setitem(pretrained_catalog.CATALOG, "tiny", made)
    return made


@pytest.fixture
def published(tmp_path: Path, entry: Pretrained) -> Iterator[str]:
    """The address of a server of the folder ``published``."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "published"))

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


NETWORK = networks.classifier(
    """
net = keras.applications.TinyNet(input_shape=self.input_shape, classes=self.nclasses, classifier_activation=None)
return net(self.x / 255.0, training=self.is_training)
""",
    head="import keras",
)
ON_TOP = networks.classifier(
    """
features = digits.pretrained('{source}')(self.x{input})
return keras.layers.Dense(self.nclasses, name='new')(features)
""",
    head="import keras",
)
FINE_TUNE = {"head_epochs": 1, "head_rate": 0.01, "trunk_factor": 0.5}
TRUNK = {f"model/tiny_{name}" for name in ("conv/kernel", "conv/bias", "norm/gamma", "norm/beta")} | {
    f"model/tiny_norm/moving_{name}" for name in ("mean", "variance")
}


def test_weights_are_downloaded_before_the_training(
    train: Any, colors: Path, published: str, tmp_path: Path
) -> None:
    places = {"weights_folder": str(tmp_path / "weights"), "weights_sources": [published]}
    settings = {"dataset": str(colors), "epochs": 2, "fine_tune": FINE_TUNE, **places}
    outcome = train(NETWORK, weights="imagenet:tiny", **settings)
    assert any("Downloading the weights of TinyNet" in event.doing for event in outcome.of(Progressed))
    (loaded,) = outcome.of(WeightsLoaded)
    assert loaded.source == "ImageNet weights of TinyNet"
    assert set(loaded.taken) == TRUNK and not outcome.of(Warned)


def _opened(path: Path, entry: Pretrained) -> Any:
    """Return the weights of a file in which layers have other names, without and with a network that is built."""
    sizes = {"a": {"kernel": (3, 3, 3, 4), "bias": (4,)}, "b": dict.fromkeys(NORMALIZATION, (4,))}
    sizes |= {"c": {"kernel": (4, 5), "bias": (5,)}}
    chance = np.random.default_rng(3)
    values = {
        layer: {name: chance.random(size, "f") for name, size in of.items()} for layer, of in sizes.items()
    }
    write_keras(values, path)
    found = []
    for net in (None, tiny_net(input_shape=(24, 24, 3), classes=3), tiny_net(input_shape=(24, 24, 1))):
        source = restore.open_application(path, entry, net)
        found.append({name: source.read(name).tolist() for name in source.shapes})
    return found


NORMALIZATION = ("gamma", "beta", "moving_mean", "moving_variance")


def test_a_network_that_is_built_names_the_weights_of_a_file(
    in_own_child: Any, entry: Pretrained, tmp_path: Path
) -> None:
    of_file, of_built, of_another = in_own_child(_opened, tmp_path / "tiny.h5", entry)
    assert of_built == of_file and list(of_built) == list(of_file)
    assert of_another == of_file, "a network that differs is not used"


def test_missing_weights_are_explained(fail: Any, entry: Pretrained, colors: Path, tmp_path: Path) -> None:
    outcome = fail(
        NETWORK, dataset=str(colors), weights="imagenet:tiny", weights_folder=str(tmp_path / "weights")
    )
    assert "TinyNet are missing and could not be downloaded" in outcome.failure.message
    assert f"Put the file tiny_net.weights.h5 into {tmp_path / 'weights'}" in outcome.failure.hint


@pytest.mark.parametrize("keep", [0.5, 0.01])
def test_a_truncated_file_of_an_administrator_is_explained(
    fail: Any, entry: Pretrained, colors: Path, tmp_path: Path, keep: float
) -> None:
    file = tmp_path / "published" / entry.full.name
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    places = {"weights_folder": str(tmp_path / "weights"), "weights_sources": [str(file.parent)]}
    outcome = fail(NETWORK, dataset=str(colors), weights="imagenet:tiny", **places)
    assert f"The weights {entry.full.name} cannot be read" in outcome.failure.message


def test_a_network_uses_imagenet_features(
    train: Any, entry: Pretrained, colors: Path, tmp_path: Path
) -> None:
    places = {"weights_folder": str(tmp_path / "published")}
    outcome = train(ON_TOP.format(source="tiny", input=""), dataset=str(colors), epochs=1, **places)
    (loaded,) = outcome.of(WeightsLoaded)
    assert set(loaded.taken) == TRUNK and not outcome.of(Warned)
    after = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert np.array_equal(after["model/tiny_norm/moving_mean"], np.zeros(4))


def _save_model(path: Path) -> np.ndarray:
    net = tiny_net(input_shape=(12, 12, 3))
    net.save(path)
    return np.asarray(net.get_layer("tiny_conv").kernel)


@pytest.mark.parametrize("ending", [".keras", pytest.param(".h5", marks=pytest.mark.nightly)])
def test_a_network_uses_the_features_of_a_keras_model(
    train: Any, colors: Path, tmp_path: Path, in_child: Any, ending: str
) -> None:
    path = tmp_path / f"old{ending}"
    kernel = in_child(_save_model, path)
    text = ON_TOP.format(source=path, input=" / 255.0")
    settings = {"dataset": str(colors), "epochs": 1, "fine_tune": FINE_TUNE}  # an epoch of the head alone
    outcome = train(text, **settings)
    (loaded,) = outcome.of(WeightsLoaded)
    assert loaded.source == path.name and set(loaded.taken) == TRUNK
    after = snapshot(outcome.job_folder, "snapshot_1.ckpt")
    assert np.array_equal(after["model/tiny_conv/kernel"], kernel)
    assert after["model/new/kernel"].shape == (4, 3)


def test_an_unknown_model_is_refused(fail: Any, colors: Path) -> None:
    outcome = fail(ON_TOP.format(source="resnet51", input=""), dataset=str(colors))
    assert outcome.failure.message == "digits.pretrained: there is no pretrained model 'resnet51'."
    assert "resnet50" in outcome.failure.hint
