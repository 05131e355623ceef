"""Activations, weights, filters and heat maps of trained networks."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.worker import networks
from tests.worker.conftest import snapshot
from tests.worker.lazily import serve_inference
from tests.worker.training.loop.test_activations import WITH_HISTOGRAMS

# Its Grad-CAM has a simple formula: the gradient of a score is the same at every position.
POOLED = networks.classifier(
    """
net = keras.layers.Conv2D(5, 1, activation="relu", name="conv")(self.x / 255.0)
net = keras.layers.GlobalAveragePooling2D(name="pool")(net)
return keras.layers.Dense(self.nclasses, name="classes")(net)
""",
    head="import keras",
)
PIXELS = np.random.default_rng(3).integers(0, 256, (12, 12, 1), np.uint8)


def inspect_and_explain(job: Path, image: Path) -> Any:
    service = serve_inference.Service(job)
    base = {"snapshot": "snapshot_1.ckpt", "image": str(image)}
    explained = [
        answer(service, base | {"call": "explain", "method": method, "output": output})["heat_map"]
        for method in ("grad_cam", "integrated_gradients")
        for output in (None, 2)
    ]
    chosen = answer(service, base | {"call": "inspect", "layers": ["conv"]})
    return (
        answer(service, base | {"call": "layers"}),
        answer(service, base | {"call": "inspect"})["layers"],
        chosen,
        explained,
        snapshot(job, "snapshot_1.ckpt"),
    )


@pytest.fixture
def image(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS[..., 0]).save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


def decoded(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


def test_layers_and_heat_maps_match_their_definitions(trained: Any, in_child: Any, image: Path) -> None:
    job = trained(POOLED, epochs=1, mean="none").job_folder
    table, layers, chosen, explained, values = in_child(inspect_and_explain, job, image)
    assert (table["layers"][0]["name"], table["layers"][0]["type"]) == ("conv", "Conv2D")
    assert table["maps"] == ["conv"] and table["default"] == "conv" and len(table["outputs"]) == 4
    assert [layer["name"] for layer in layers] == [layer["name"] for layer in table["layers"]]

    kernel, bias = values["model/conv/kernel"], values["model/conv/bias"]
    maps = np.maximum(PIXELS / 255 @ kernel[0, 0] + bias, 0)  # [12, 12, 5]
    (conv,) = chosen["layers"]
    activation = conv["activation"]
    assert activation["shape"] == [12, 12, 5] and activation["units"] == 5
    for name, expected in {"mean": maps.mean(), "std": maps.std(), "max": maps.max()}.items():
        assert activation[name] == pytest.approx(expected, rel=1e-4)
    assert activation["dead_fraction"] == np.mean(maps.reshape(-1, 5).max(axis=0) == 0)
    assert sum(activation["histogram"]["counts"]) == maps.size
    picture = activation["picture"]
    assert decoded(picture["url"]).shape == (picture["height"], picture["width"], 3) and picture["shown"] == 5
    assert [(item["name"], item["shape"]) for item in conv["weights"]] == [
        ("model/conv/kernel", [1, 1, 1, 5]),
        ("model/conv/bias", [5]),
    ]
    assert conv["weights"][0]["mean"] == pytest.approx(kernel.mean(), rel=1e-4)
    assert np.array_equal(decoded(chosen["image"]), PIXELS[..., 0])

    dense, offset = values["model/classes/kernel"], values["model/classes/bias"]
    scores = maps.mean(axis=(0, 1)) @ dense + offset
    best_cam, other_cam, best_gradients, other_gradients = explained
    for found, output in ((best_cam, int(np.argmax(scores))), (other_cam, 2)):
        heat = np.maximum(maps @ dense[:, output], 0) / 144
        assert (found["output"], found["label"]) == (output, table["outputs"][output])
        assert found["max"] == pytest.approx(heat.max(), rel=1e-3, abs=1e-9)
    black = np.maximum(bias, 0) @ dense + offset
    for found, output in ((best_gradients, int(np.argmax(scores))), (other_gradients, 2)):
        assert found["difference"] == pytest.approx(scores[output] - black[output], rel=1e-3, abs=1e-5)
        assert found["attributed"] == pytest.approx(found["difference"], rel=0.1, abs=1e-3)


def answer(service: Any, request: dict[str, Any]) -> Any:
    """Return the message that answers a request without attachments."""
    return service.answer(request, [])[0]


def linear(job: Path, image: Path) -> Any:
    service = serve_inference.Service(job)
    asked = {"snapshot": "snapshot_4.ckpt", "image": str(image), "call": "explain"}
    found = answer(service, asked | {"method": "integrated_gradients"})["heat_map"]
    filters = answer(service, asked | {"call": "filters", "snapshots": ["snapshot_4.ckpt"]})
    return answer(service, asked | {"call": "layers"}), found, answer(service, asked), filters


def test_a_network_without_maps_has_integrated_gradients_only(
    trained: Any, in_child: Any, image: Path
) -> None:
    job = trained(networks.LINEAR, epochs=4, crop_size=10, snapshot_interval=2).job_folder
    table, found, refused, filters = in_child(linear, job, image)
    assert table["maps"] == [] and table["default"] == ""
    # Exact for a linear network.
    assert found["attributed"] == pytest.approx(found["difference"], rel=1e-3)
    heat = decoded(found["url"])
    assert heat.shape == (12, 12, 3)
    assert len(np.unique(heat[0].reshape(-1, 3), axis=0)) == 1, "the network does not see the border"
    assert "Grad-CAM needs a layer of maps" in refused["message"] and refused["status"] == 400
    assert refused["hint"] == "Use integrated gradients."
    assert "no convolution with filters" in filters["message"] and filters["status"] == 400


def refusals_and_filters(job: Path, image: Path) -> Any:
    service = serve_inference.Service(job)
    base = {"snapshot": "snapshot_1.ckpt", "image": str(image)}
    refused = [
        answer(service, base | more)
        for more in (
            {"call": "inspect", "layers": ["conv", "nonesuch"]},
            {"call": "explain", "layer": "nonesuch"},
            {"call": "explain", "output": 4},
            {"call": "explain", "output": -1},
            {"call": "explain", "method": "magic"},
            {"call": "inspect", "image": None},
            {"call": "inspect", "snapshot": "snapshot_9.ckpt"},
            {"call": "inspect", "image": __file__},
        )
    ]
    filters = answer(service, base | {"call": "filters", "snapshots": ["snapshot_1.ckpt", "snapshot_9.ckpt"]})
    return refused, filters


@pytest.mark.parametrize(
    "network",
    [
        networks.BATCH_NORM.replace("{arguments}", ""),
        pytest.param(networks.KERAS_LENET, marks=pytest.mark.nightly),
        pytest.param(networks.RAW, marks=pytest.mark.nightly),
    ],
    ids=["slim", "keras", "raw"],
)
def test_bad_requests_are_refused_and_filters_are_read_from_snapshots(
    trained: Any, in_child: Any, image: Path, network: str
) -> None:
    job = trained(network, **WITH_HISTOGRAMS).job_folder
    refused, filters = in_child(refusals_and_filters, job, image)
    assert [answer["status"] for answer in refused] == [400, 400, 400, 400, 400, 400, 404, 400]
    words = [
        "no layer called",
        "no layer called",
        "outputs 0 to 3",
        "outputs 0 to 3",
        "magic",
        "lacks an image",
    ]
    for answer, word in zip(refused, words, strict=False):
        assert word in answer["message"]
    (found,) = filters["filters"]  # a snapshot that does not exist is left out
    assert found["snapshot"] == "snapshot_1.ckpt" and filters["shape"][:3] == [3, 3, 1]
    assert found["picture"]["shown"] == found["picture"]["total"] == filters["shape"][3]
    assert found["statistics"]["std"] > 0
