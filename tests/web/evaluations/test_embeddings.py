"""Embedding maps of models over HTTP: the task, the page, the points and TensorBoard's projector."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from digits.core.model_job import ModelJob
from digits.data.models import embedding_map as maps
from digits.kinds.jobs import DatasetJob
from tests.site import Site
from tests.web.trained import Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

NETWORK = """class UserModel(Tower):
    @model_property
    def inference(self):
        hidden = slim.fully_connected(slim.flatten(self.x) / 255.0, 4, scope='hidden')
        return slim.fully_connected(hidden, self.nclasses, activation_fn=None, scope='out')

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""
JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module")
def dataset(site: Site, finished: Finished) -> str:
    return finished.dataset(site, folder_pct_val=50)


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    return finished.model(site, dataset, NETWORK)


def compute(site: Site, model: str, **fields: Any) -> dict[str, Any]:
    """Compute a map, and return the JSON of all maps when it has ended."""
    answer = site.client.post(f"/models/{model}/embeddings", data=fields, headers=JSON)
    assert answer.status_code == 202, answer.get_json()
    again = site.client.post(f"/models/{model}/embeddings", data=fields, headers=JSON)
    assert again.status_code == 409, again.get_json()
    body: dict[str, Any] = site.wait(
        lambda: (found := site.json(f"/models/{model}/embeddings.json"))["state"] != "running" and found
    )
    return body


def test_a_map_has_points_records_and_a_projector(site: Site, dataset: str, model: str) -> None:
    assert "New map" in site.get(f"/models/{model}/embeddings").text
    assert f"/models/{model}/embeddings" in site.get(f"/models/{model}").text
    body = compute(site, model)
    assert body["state"] == "done", body["error"]
    (found,) = body["maps"]
    assert (found["name"], found["layer"], found["dimensions"]) == ("snapshot_1-val", "hidden", 4)
    assert (found["records"], found["methods"], found["partial"]) == (12, ["pca", "tsne"], False)

    url = f"/models/{model}/embeddings.json?name=snapshot_1-val"
    points = site.json(url)["points"]
    assert points["records"] == list(range(12))
    assert {name: np.shape(points[name]) for name in ("pca", "tsne", "groups", "predicted")} == {
        "pca": (12, 2),
        "tsne": (12, 2),
        "groups": (12,),
        "predicted": (12,),
    }
    job = site.services.store.get(dataset, DatasetJob)
    manifest = job.manifest()
    assert manifest
    assert np.bincount(points["groups"], minlength=3).tolist() == manifest.splits["val"].counts
    page = site.get(f"/models/{model}/embeddings?record=3").text
    assert "Record 3<" in page and page.count("data-enlarge") == 1

    # TensorBoard itself, through the server.
    board = f"/tensorboard/{model}/data/plugin/projector"
    assert site.json(f"{board}/runs") == ["."]
    (entry,) = site.json(f"{board}/info?run=.")["embeddings"]
    assert (entry["tensorName"], entry["tensorShape"]) == ("snapshot_1-val", [12, 4])
    assert entry["sprite"]["singleImageDim"] == [16, 16]
    tensor = np.frombuffer(site.get(f"{board}/tensor?run=.&name=snapshot_1-val").data, np.float32)
    folder = site.services.store.folder / model
    embeddings = maps.load_array(folder, "snapshot_1-val", maps.EMBEDDINGS_FILE)
    assert tensor.reshape(12, 4) == pytest.approx(embeddings, rel=1e-4, abs=1e-5)
    metadata = site.get(f"{board}/metadata?run=.&name=snapshot_1-val").text.splitlines()
    assert metadata[0] == "Label\tPredicted\tRecord\tFile" and len(metadata) == 13
    assert metadata[1].split("\t")[0] == manifest.groups[points["groups"][0]]
    sprite = site.get(f"{board}/sprite_image?run=.&name=snapshot_1-val")
    assert sprite.status_code == 200 and sprite.data.startswith(b"\x89PNG")

    # A running TensorBoard shows a further map, of another layer, too.
    compute(site, model, layer="out", split="train", records="6")
    entries = site.json(f"{board}/info?run=.")["embeddings"]
    assert [each["tensorName"] for each in entries] == ["snapshot_1-train-out", "snapshot_1-val"]
    site.services.tensorboards.stop(model)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"snapshot_epoch": "7"}, 404, "no snapshot of epoch 7"),
        ({"split": "everything"}, 400, "no split called"),
        ({"dataset": "20200101-000000-abcdef"}, 404, ""),
        ({"records": "2"}, 400, "from 3 to 10,000"),
        ({"records": "many"}, 400, "from 3 to 10,000"),
        ({"layer": "x" * 501}, 400, "no layer called"),
    ],
)
def test_requests_that_cannot_be_mapped_are_refused(
    site: Site, model: str, fields: dict[str, str], status: int, message: str
) -> None:
    answer = site.client.post(f"/models/{model}/embeddings", data=fields, headers=JSON)
    assert answer.status_code == status, answer.get_json()
    assert message in answer.get_json()["error"]["message"]


def test_an_unknown_layer_a_damaged_map_and_a_deleted_dataset(
    site: Site, model: str, finished: Finished
) -> None:
    body = compute(site, model, layer="unknown")
    assert body["state"] == "failed" and "no layer called “unknown”" in body["error"]["message"]
    assert "no layer called “unknown”" in site.get(f"/models/{model}/embeddings").text

    name = "snapshot_1-val"
    base = f"/models/{model}/embeddings"
    job = site.services.store.get(model, ModelJob)
    folder = maps.folder_of(job.folder, name)
    if not folder.exists():
        compute(site, model)
    assert site.get(f"{base}?name=../../x").status_code == 404
    assert site.get(f"{base}?record=99").status_code == 404
    assert site.get(f"{base}?record=x").status_code == 400
    (folder / maps.RECORDS_FILE).write_bytes(b"damaged")
    assert site.get(f"{base}.json?name={name}").status_code == 404
    assert site.get(f"{base}?name={name}").status_code == 200
    shutil.rmtree(folder)
    assert site.get(f"{base}.json?name={name}").status_code == 404

    other = finished.dataset(site, folder_pct_val=50)
    compute(site, model, dataset=other)
    site.client.delete(f"/datasets/{other}")
    page = site.get(f"{base}?name=snapshot_1-{other}-val&record=2").text
    assert "deleted or changed" in page and "data-enlarge" not in page
    # Without snapshots
    for path in job.folder.glob("snapshot_1.ckpt*"):
        path.unlink()
    answer = site.client.post(base, headers=JSON)
    assert answer.status_code == 400 and "no snapshot" in answer.get_json()["error"]["message"]
    assert "first snapshot" in site.get(base).text
