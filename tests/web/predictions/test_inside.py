"""Inside the network over HTTP: layers, heat maps and filters for an image."""

from __future__ import annotations

import pytest

from tests.site import Site
from tests.web.trained import Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

CONVOLUTION = """
import keras

class UserModel(Tower):
    @model_property
    def inference(self):
        net = keras.layers.Conv2D(4, 3, strides=2, activation="relu", name="conv")(self.x / 255.0)
        net = keras.layers.GlobalAveragePooling2D(name="pool")(net)
        return keras.layers.Dense(self.nclasses, name="classes")(net)

    @model_property
    def loss(self):
        return digits.loss(self.inference, self.y)
"""


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    return finished.model(site, dataset, CONVOLUTION, train_epochs=2)


def test_layers_heat_maps_and_filters(site: Site, model: str) -> None:
    image = str(site.data / "bars" / "left" / "00.png")
    page = site.get(f"/models/{model}/inside").text
    assert "Heat map" in page and "from val/0 to val/" in page
    assert f"/models/{model}/inside" in site.get(f"/models/{model}").text

    table = site.json(f"/models/{model}/layers.json")
    assert table["maps"] == ["conv"] and table["outputs"] == ["left", "middle", "right"]
    choice = site.get(f"/models/{model}/layers").text
    assert 'value="conv" checked' in choice and 'value="pool">' in choice

    found = site.post(f"/models/{model}/inside.json", image_path=image, layers=["conv", "classes"]).get_json()
    assert [layer["name"] for layer in found["layers"]] == ["conv", "classes"] and found[
        "snapshot"
    ] == "Epoch 2"
    by_record = site.post(f"/models/{model}/inside.json", record="val/1", snapshot_epoch="1").get_json()
    assert len(by_record["layers"]) == len(table["layers"]) and by_record["snapshot"] == "Epoch 1"
    part = site.client.post(
        f"/models/{model}/inside",
        data={"image_path": image, "layers": "conv"},
        headers={"X-Fragment": "layers"},
    )
    assert "<html" not in part.text and "Dead units" in part.text and "4 maps" in part.text
    assert "12 filters" not in part.text and "4 filters" in part.text  # in color
    whole = site.post(f"/models/{model}/inside", image_path=image)
    assert "<html" in whole.text and "Dead units" in whole.text

    for method in ("grad_cam", "integrated_gradients"):
        heat = site.post(
            f"/models/{model}/heat-map.json", image_path=image, method=method, output=2
        ).get_json()
        assert heat["heat_map"]["label"] == "right" and heat["image"].startswith("data:image/png")
    assert "Grad-CAM at" in site.post(f"/models/{model}/heat-map", record="val/0").text

    filters = site.json(f"/models/{model}/filters.json")
    assert [item["epoch"] for item in filters["filters"]] == ["1", "2"]
    assert 'data-epoch="2"' in site.get(f"/models/{model}/filters").text


def test_show_visualizations_adds_all_layers(site: Site, model: str) -> None:
    fields = {"job_id": model, "image_path": str(site.data / "bars" / "left" / "00.png")}
    for call in ("/models/images/classification/classify_one", "/models/images/generic/infer_one"):
        shown = site.post(f"{call}.json", **fields, show_visualizations="y").get_json()
        assert shown["visualizations"][0]["name"] == "conv"
        assert "visualizations" not in site.post(f"{call}.json", **fields).get_json()
        assert "Dead units" in site.post(call, **fields, show_visualizations="1").text


@pytest.mark.parametrize(
    ("call", "fields", "status", "words"),
    [
        ("inside", {}, 400, "Upload an image"),
        ("inside", {"record": "val/999"}, 404, "no such record"),
        ("inside", {"record": "val"}, 400, "not a record"),
        ("inside", {"record": "nonesuch/1"}, 404, "no split"),
        ("inside", {"record": "val/0", "layers": "nonesuch"}, 400, "no layer called"),
        ("inside", {"record": "val/0", "snapshot_epoch": "7"}, 404, "snapshot"),
        ("heat-map", {"record": "val/0", "output": "3"}, 400, "outputs 0 to 2"),
        ("heat-map", {"record": "val/0", "output": "left"}, 400, "“output” must be an integer"),
        ("heat-map", {"record": "val/0", "method": "magic"}, 400, "no method"),
        ("heat-map", {"record": "val/0", "layer": "classes"}, 400, "has no maps"),
    ],
)
def test_bad_requests_are_refused(
    site: Site, model: str, call: str, fields: dict[str, str], status: int, words: str
) -> None:
    answer = site.post(f"/models/{model}/{call}.json", **fields)
    assert (answer.status_code, words in answer.get_json()["error"]["message"]) == (status, True), answer.text
    assert site.post(f"/models/{model}/{call}", **fields).status_code == status
