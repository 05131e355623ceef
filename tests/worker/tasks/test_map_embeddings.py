"""Embedding maps of trained models: the layers, the files, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import recipe
from digits.core.model_job import TENSORBOARD_FOLDER
from digits.data import manifest
from digits.data.models import embedding_map, projector
from tests.worker import networks
from tests.worker.conftest import Outcome, write_dataset
from tests.worker.lazily import map_embeddings

SMALL = networks.classifier(
    """
model = slim.conv2d(self.x / 100.0, 6, [3, 3], scope='conv')
model = slim.flatten(slim.max_pool2d(model, [4, 4], scope='pool'))
model = slim.fully_connected(model, 5, scope='hidden')
return tf.nn.softmax(slim.fully_connected(model, self.nclasses, activation_fn=None, scope='out'))
"""
)


@pytest.fixture
def compute(trained: Any, perform: Any) -> Callable[..., tuple[Outcome, Path]]:
    """Return a function that computes a map, and returns the outcome of the task and the folder of the model."""

    def compute(network: str = SMALL, **fields: Any) -> tuple[Outcome, Path]:
        model = trained(network, epochs=1).job_folder
        task = model / "map-embeddings"
        task.mkdir()
        dataset = recipe.load(model / "train", recipe.Train).dataset
        defaults: dict[str, Any] = {
            "snapshot": "snapshot_1.ckpt",
            "epoch": 1,
            "trained_on": dataset,
            "dataset": dataset,
            "split": "train",
            "name": "map",
            "records": 30,
        }
        recipe.MapEmbeddings(model=str(model), **{**defaults, **fields}).save(task)
        return perform(task), model

    return compute


def test_a_map_of_the_last_layer_before_the_output(compute: Callable[..., tuple[Outcome, Path]]) -> None:
    outcome, model = compute()
    assert outcome.code == 0, outcome.output
    found = embedding_map.load(model, "map")
    assert (found.layer, found.shape, found.dimensions) == ("hidden", [5], 5)
    assert (found.records, found.total, found.methods, found.is_partial) == (30, 64, ["pca", "tsne"], False)
    assert 0 < found.variance <= 1
    arrays = {
        path.stem: embedding_map.load_array(model, "map", path.name)
        for path in embedding_map.folder_of(model, "map").glob("*.npy")
    }
    assert {name: (array.dtype.name, array.shape) for name, array in arrays.items()} == {
        "embeddings": ("float32", (30, 5)),
        "records": ("int64", (30,)),
        "pca": ("float32", (30, 2)),
        "tsne": ("float32", (30, 2)),
        "groups": ("int32", (30,)),
        "predicted": ("int32", (30,)),
    }
    assert np.array_equal(arrays["records"], np.arange(30) * 64 // 30)
    assert np.array_equal(arrays["groups"], arrays["records"] % 4)  # the classes alternate
    assert all(np.isfinite(array).all() for array in arrays.values())
    # PCA only turns and projects.
    centered = arrays["embeddings"] - arrays["embeddings"].mean(axis=0)
    kept = (arrays["pca"] ** 2).sum() / (centered**2).sum()
    assert kept == pytest.approx(found.variance, rel=1e-4)

    logs = model / TENSORBOARD_FOLDER
    files = logs / projector.FOLDER / "map"
    assert np.loadtxt(files / projector.TENSORS_FILE) == pytest.approx(
        arrays["embeddings"], rel=1e-4, abs=1e-5
    )
    rows = [line.split("\t") for line in (files / projector.METADATA_FILE).read_text().splitlines()]
    assert rows[0] == ["Label", "Predicted", "Record", "File"] and len(rows) == 31
    names = ["right", "left", "down", "up"]
    first = [names[arrays["groups"][1]], names[arrays["predicted"][1]], "2", "2.png"]
    assert rows[2] == first
    with Image.open(files / projector.SPRITE_FILE) as sprite:
        assert sprite.size == (6 * 12, 6 * 12)  # of 30 images of 12 pixels
    assert "single_image_dim: 12" in (logs / projector.CONFIG_FILE).read_text()


@pytest.mark.parametrize(
    ("network", "fields", "expected"),
    [
        # The mean over the positions of maps; few records have no map by t-SNE.
        (SMALL, {"layer": "conv", "records": 4}, ("conv", [12, 12, 6], 6, ["pca"])),
        # The output itself; the other layers of this network are without weights.
        (networks.LINEAR, {"layer": "fc", "split": "val"}, ("fc", [4], 4, ["pca", "tsne"])),
    ],
)
def test_other_layers(
    compute: Callable[..., tuple[Outcome, Path]], network: str, fields: dict[str, Any], expected: Any
) -> None:
    outcome, model = compute(network, **fields)
    assert outcome.code == 0, outcome.output
    found = embedding_map.load(model, "map")
    assert (found.layer, found.shape, found.dimensions, found.methods) == expected
    assert not found.is_partial and bool(found.remark) == ("tsne" not in found.methods)


def test_what_cannot_be_mapped_is_refused(
    compute: Callable[..., tuple[Outcome, Path]],
    trained: Any,
    perform: Any,
    gradients: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, model = compute(records=4)
    earlier = embedding_map.load(model, "map")
    small = write_dataset(tmp_path / "small", {"train": 8, "val": 2}, size=12, channels=1)

    def refused(**fields: Any) -> str:
        task = model / "map-embeddings"
        (task / "events.jsonl").unlink()
        given = recipe.load(task, recipe.MapEmbeddings)
        for name, value in fields.items():
            setattr(given, name, value)
        given.save(task)
        outcome = perform(task)
        assert outcome.code == 1, outcome.output
        return f"{outcome.failure.message} {outcome.failure.hint}"

    message = refused(layer="unknown")
    assert "no layer called “unknown”" in message and "hidden" in message
    assert "snapshot_9" in refused(snapshot="snapshot_9.ckpt", layer="")
    message = refused(snapshot="snapshot_1.ckpt", dataset=str(small), split="val")
    assert "2 records, too few" in message
    other = write_dataset(tmp_path / "other", {"train": 8}, size=12, channels=1, classes=3)
    message = refused(dataset=str(other), split="train")
    assert message.startswith(
        "The classes or targets of the dataset differ from those of the training dataset"
    )
    with monkeypatch.context() as patch:
        patch.setattr(map_embeddings, "MAX_KEPT", 10)
        given = {"dataset": str(gradients), "split": "train"}
        assert "5 outputs: too many for a map of 4 records" in refused(**given)
    (small / manifest.FILE_NAME).unlink()
    assert refused(dataset=str(small))
    assert embedding_map.load_all(model) == [earlier]


def test_constant_activations(tensorflow: None) -> None:
    coordinates, variance = map_embeddings.map_by_pca(np.full((5, 3), 7, np.float32))
    assert not coordinates.any() and variance == 1
    line = np.array([[0], [1], [3], [7]], np.float32)
    assert map_embeddings.map_by_pca(line)[0].shape == (4, 2)


def test_maps_of_different_layers_have_different_names() -> None:
    names = [
        embedding_map.name_of("snapshot_1.ckpt", "val", layer=layer) for layer in ("", "a/b", "a_b", "é")
    ]
    assert names[0] == "snapshot_1-val" and names[2] == "snapshot_1-val-a_b" and len({*names}) == 4
