"""Datasets and models that DIGITS 6 called generic: databases, extensions, and their predictions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.old_databases import datum, numbers, write_lmdb
from tests.site import Site
from tests.web.digits6.script import REGRESSOR, SEED, Script, upload

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

CREATE = "/datasets/generic/create"
PREDICT = "/models/images/generic"


def ramp(slope_x: float, slope_y: float, width: int = 8, height: int = 6) -> np.ndarray[Any, Any]:
    """Return an image that becomes brighter along its slopes, as in the gradients of DIGITS."""
    y, x = np.mgrid[:height, :width]
    return (127.5 + 255 * (slope_x * (x / width - 0.5) + slope_y * (y / height - 0.5))).astype(np.uint8)


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def gradients(script: Script) -> str:
    counts = {"train_image_count": 200, "val_image_count": 20, "test_image_count": 10}
    fields = {"dataset_name": "gradients", "image_width": 8, "image_height": 6, **counts}
    return script.finish(script.create(f"{CREATE}/image-gradients.json", fields))


@pytest.fixture(scope="module")
def regressor(script: Script, gradients: str) -> str:
    return script.finish(
        script.model(
            gradients, "images/generic", custom_network=REGRESSOR, train_epochs=3, learning_rate=0.05
        )
    )


@pytest.fixture(scope="module")
def databases(site: Site) -> dict[str, str]:
    """The fields of databases of images and of their slopes."""
    random, fields = np.random.default_rng(0), {}
    for split, count in (("train", 20), ("val", 5)):
        slopes = random.uniform(-0.5, 0.5, (count, 2))
        pictures = [datum(ramp(*slope)[..., None], 0, "PNG") for slope in slopes]
        labels = [numbers(slope.reshape(2, 1, 1)) for slope in slopes]
        for name, records in (("images", pictures), ("labels", labels)):
            folder = write_lmdb(site.data / f"{split}_{name}", records)
            fields[f"prebuilt_{split}_{name}"] = str(folder)
    return fields


def test_a_dataset_of_databases_is_cloned(site: Site, script: Script, databases: dict[str, str]) -> None:
    fields = {"dataset_name": "databases", "method": "prebuilt", **databases}
    first = script.finish(script.create("/datasets/images/generic.json", fields))
    second = script.finish(script.create("/datasets/images/generic.json", {"clone": first}))
    bodies = [site.json(f"/datasets/{job_id}.json") for job_id in (first, second)]
    own = ("id", "directory")
    assert [{key: body[key] for key in body if key not in own} for body in bodies[:1]] == [
        {key: body[key] for key in body if key not in own} for body in bodies[1:]
    ]
    assert [task["entry_count"] for task in bodies[0]["create_db_tasks"]] == [20, 5]
    colors = script.finish(script.dataset())
    answer = site.post("/datasets/images/generic.json", clone=colors)
    assert answer.status_code == 400 and "not a dataset for" in answer.get_json()["error"]["message"]


def test_images_of_an_extension_keep_their_size(site: Site, script: Script) -> None:
    folder = site.data / "ramps"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.png").write_bytes(png(ramp(0.1 * number - 0.5, 0.2, 12, 9)))
    fields = {"dataset_name": "ramps", "feature_folder": str(folder), "label_folder": str(folder)}
    fields |= {"channel_conversion": "L", "folder_pct_val": "10"}
    answer = site.post(f"{CREATE}/image-processing.json", **fields)
    assert answer.get_json()["warnings"] == [
        "Without resize_width and resize_height, images are resized to 12×9."
    ]
    body = site.json(f"/datasets/{script.finish(answer.get_json()['id'])}.json")
    assert body["feature_dims"] == [9, 12, 1]
    assert [task["entry_count"] for task in body["create_db_tasks"]] == [9, 1]
    for sent, dims in (
        ({"resize_width": 6, "resize_height": 4}, [4, 6, 1]),
        ({"clone": body["id"]}, [9, 12, 1]),
    ):
        job_id = script.finish(script.create(f"{CREATE}/image-processing.json", {**fields, **sent}))
        assert site.json(f"/datasets/{job_id}.json")["feature_dims"] == dims


def test_images_have_the_order_of_dimensions_of_the_network(site: Site, script: Script) -> None:
    network = """
class UserModel(Tower):
    @model_property
    def inference(self):
        offset = tf.get_variable("offset", [1], initializer=tf.constant_initializer(0.0))
        self.image = self.x + offset
        return tf.transpose(self.image, (0, 3, 1, 2))

    @model_property
    def loss(self):
        return digits.mse_loss(self.image, self.y)
"""
    folder = site.data / "images"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.png").write_bytes(png(ramp(0.1 * number - 0.5, 0.2, 12, 9)))
    fields = {"dataset_name": "images", "feature_folder": str(folder), "channel_conversion": "L"}
    dataset = script.finish(script.create(f"{CREATE}/image-processing.json", fields))
    options = {"use_mean": "none", "learning_rate": 0.0}
    model = script.finish(script.model(dataset, "images/generic", custom_network=network, **options))
    path = folder / "3.png"
    expected = np.asarray(Image.open(path))
    one = site.client.post(f"{PREDICT}/infer_one.json", data={"job_id": model, "image_path": str(path)})
    assert np.array_equal(np.rint(one.get_json()["outputs"]["output"]), expected[None, None])
    larger = {"job_id": model, "image_file": upload(png(ramp(0.1, 0.2, 60, 90)), "a.png"), "dont_resize": "y"}
    one = site.client.post(f"{PREDICT}/infer_one.json", data=larger)
    assert np.shape(one.get_json()["outputs"]["output"]) == (1, 1, 90, 60)
    many = {"job_id": model, "image_list": upload(f"{path}\n")}
    (values,) = site.client.post(f"{PREDICT}/infer_many.json", data=many).get_json()["outputs"].values()
    assert np.array_equal(np.rint(values["output"]), expected[None])


def test_predictions_of_one_and_several_images(site: Site, regressor: str, tmp_path: Path) -> None:
    def outputs(route: str, **fields: Any) -> dict[str, Any]:
        answer = site.client.post(f"{PREDICT}/{route}.json?job_id={regressor}", data=fields)
        assert answer.status_code == 200, answer.get_json()
        found: dict[str, Any] = answer.get_json()["outputs"]
        return found

    assert min(outputs("infer_one", image_file=upload(png(ramp(0.5, 0.5)), "image.png"))["output"][0]) > 0
    (output,) = outputs("infer_extension", gradient_x=0.5, gradient_y=-0.5).values()
    assert output["output"][0] > 0 > output["output"][1]
    path = site.data / "up.png"
    path.write_bytes(png(ramp(0.5, -0.5)))
    for folder, line in ((None, str(path)), (str(site.data), "up.png")):
        fields = {"image_list": upload(f"{line}\n"), **({"image_folder": folder} if folder else {})}
        (values,) = outputs("infer_many", **fields).values()
        assert values["output"][0] > 0 > values["output"][1]


def test_predictions_of_a_database(site: Site, gradients: str, regressor: str) -> None:
    body = site.json(f"/datasets/{gradients}.json")
    (shard,) = [task["feature_db_path"] for task in body["create_db_tasks"] if task["stage"] == "val_db"]
    route = f"{PREDICT}/infer_db.json?job_id={regressor}"
    answer = site.client.post(route, data={"db_path": f"{body['directory']}/{shard}"})
    assert len(answer.get_json()["outputs"]) == 20
    for path, words in (("/etc", ""), (" ", "Enter the path of TFRecord files")):
        answer = site.client.post(route, data={"db_path": path})
        assert answer.status_code == 400 and answer.get_json()["error"]["hint"]
        assert words in answer.get_json()["error"]["message"]


def test_a_diverging_training_fails_with_advice(site: Site, script: Script, gradients: str) -> None:
    fields = {"custom_network": REGRESSOR, "learning_rate": "1e15", "random_seed": SEED}
    job_id = script.model(gradients, "images/generic", **fields)
    assert site.wait_for_end(job_id) == "Error"
    assert "learning rate" in site.get(f"/models/{job_id}").text.lower()


def test_an_archive_is_recognized_by_its_content(site: Site, model: str) -> None:
    archive = site.get(f"/models/{model}/download.tar.bz2").data
    for name in ("tmp8x2k1", "model.bin"):
        fields = {"archive": upload(archive, name)}
        answer = site.client.post("/pretrained_models/upload_archive", data=fields)
        assert answer.status_code == 200, answer.get_json()
        assert answer.get_json()["status"] == "success"


def test_the_files_of_a_model_are_uploaded(site: Site, model: str) -> None:
    info = site.json(f"/models/{model}.json")
    folder = Path(info["directory"])
    height, width, channels = info["image dimensions"]
    fields = {
        "job_name": "uploaded",
        "framework": info["framework"],
        "weights_file": [
            upload(path.read_bytes(), path.name) for path in folder.glob(f"{info['snapshot file']}.*")
        ],
        "model_def_file": upload((folder / info["model file"]).read_bytes(), "network.py"),
        "labels_file": upload("blue\ngreen\nred\n", "labels.txt"),
        "image_type": channels,
        "resize_mode": info["image resize mode"],
        "width": width,
        "height": height,
    }
    answer = site.client.post("/pretrained_models/new", data=fields)
    assert answer.status_code == 302, answer.text
