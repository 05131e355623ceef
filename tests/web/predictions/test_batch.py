"""Batch predictions over HTTP: lists, folders, uploads and invalid input."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core.job import DeviceRequest
from digits.data.models import predictions
from digits.runtime.executors.executor import place
from tests.decoders import refuse_to_decode
from tests.site import Site, bars
from tests.web.trained import LINEAR, WHOLE_BATCHES, Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

CLASSIFY_MANY = "/models/images/classification/classify_many"


@pytest.fixture(scope="module", autouse=True)
def images(site: Site) -> None:
    bars(site.data / "new")
    (site.data / "new" / "broken.png").write_bytes(b"no image")


def upload(text: str, name: str = "list.txt") -> tuple[io.BytesIO, str]:
    return io.BytesIO(text.encode()), name


def predicted(site: Site, address: str) -> Any:
    """Wait for the end of a batch prediction, and return its JSON."""
    return site.wait(
        lambda: (
            (body := site.json(f"{address}.json"))["state"] not in ("waiting", "running", "incomplete")
            and body
        )
    )


def test_classify_many_returns_the_digits_6_keys(site: Site, model: str):
    lines = "left/00.png 0\nmiddle/01.png 1\nright/02.png 7\nbroken.png 0\nmissing.png\n"
    answer = site.post(
        f"{CLASSIFY_MANY}.json", job_id=model, image_list=upload(lines), image_folder=str(site.data / "new")
    )
    body = answer.get_json()
    assert answer.status_code == 200, body
    assert {name: found[0][0] for name, found in body["classifications"].items()} == {
        "left/00.png": "left",
        "middle/01.png": "middle",
        "right/02.png": "right",
    }
    assert all(
        sum(percent for _, percent in found) == pytest.approx(100, abs=0.1)
        for found in body["classifications"].values()
    )
    assert set(body["skipped"]) == {"broken.png", "missing.png"}
    assert body["problems"] == [{"line": 3, "message": "The class 7 is not between 0 and 2."}]
    assert body["accuracy"] == 1.0


def test_a_list_can_name_images_by_paths_of_another_computer(site: Site, model: str):
    lines = "left\\00.png 0\nC:\\new\\middle\\01.PNG 1\nhttps://example.com/new/right/02.png 2\n00.png\n"
    answer = site.post(
        f"{CLASSIFY_MANY}.json", job_id=model, image_list=upload(lines), image_folder=str(site.data / "new")
    )
    body = answer.get_json()
    assert [found[0][0] for found in body["classifications"].values()] == ["left", "middle", "right"]
    # The rule for the other paths finds no image for this one, although several have its name.
    assert set(body["skipped"]) == {"00.png"} and body["problems"] == []


def test_subfolder_names_are_the_true_classes(site: Site, model: str):
    answer = site.post(f"/models/{model}/predictions", image_folder=str(site.data / "new"))
    assert answer.status_code == 302
    address = answer.location
    body = predicted(site, address)
    assert (body["state"], body["images"], body["unreadable"]) == ("done", 25, 1)
    assert body["accuracy"] == 1.0
    assert body["confusion_matrix"] == [[8, 0, 0], [0, 8, 0], [0, 0, 8]]
    page = site.get(address).text
    assert "Confusion matrix" in page
    assert page.count('<ol class="plain predictions">') == 23  # and an unreadable one on the first page
    assert "Unreadable" in page
    second = site.get(f"{address}?page=2").text
    assert "right/07.png" in second
    assert site.get(f"{address}?show=unreadable").text.count("error-text") == 1
    thumbnail = site.get(f"{address}/images/1")
    assert (thumbnail.status_code, thumbnail.mimetype) == (200, "image/png")
    assert site.get(f"{address}/images/0").status_code == 400  # broken.png
    assert site.get(f"{address}/images/99").status_code == 404
    rows = list(csv.DictReader(io.StringIO(site.get(f"{address}.csv").text)))
    assert len(rows) == 25
    assert (rows[1]["image"], rows[1]["true_class"], rows[1]["prediction_1"]) == (
        "left/00.png",
        "left",
        "left",
    )
    assert address in site.get(f"/models/{model}").text
    assert site.client.delete(address).status_code == 200
    assert site.get(address).status_code == 404


def test_pictures_are_decoded_in_other_processes(
    site: Site, dataset: str, model: str, monkeypatch: pytest.MonkeyPatch
):
    refuse_to_decode(monkeypatch)
    image = str(site.data / "new" / "left" / "00.png")
    address = site.post(f"/models/{model}/predictions", image_folder=str(site.data / "new")).location
    example = {
        "resize_width": 8,
        "resize_height": 8,
        "resize_channels": 3,
        "resize_mode": "squash",
        "encoding": "png",
    }
    drawn = {"job_id": model, "image_path": image, "view_extension_id": "all-raw-data"}
    records = f"/datasets/{dataset}/records/val"
    for answer in (
        site.get(f"{address}/images/1"),
        site.get("/models/image", query_string={"path": image}),
        site.get(f"{records}/0"),
        site.get(f"{records}/0/thumbnail"),
        site.post("/datasets/images/resize-example", example=image, **example),
        site.post("/models/images/classification/classify_one", **drawn),
        site.post("/models/images/classification/classify_one.json", job_id=model, record="val/0"),
    ):
        assert answer.status_code == 200, answer.text
    assert site.get(f"{address}/images/0").status_code == 400  # broken.png


def test_links_and_odd_names_in_a_folder(site: Site, model: str, tmp_path: Path):
    secret = bars(tmp_path / "outside") / "left" / "00.png"
    folder = site.data / "odd"
    folder.mkdir()
    image = (site.data / "new" / "left" / "00.png").read_bytes()
    for name in (b"real.png", b"\r=1+1.png", b"caf\xe9.png"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(image)
    (folder / "inside.png").symlink_to("real.png")
    (folder / "outside.png").symlink_to(secret)
    (folder / "outside").symlink_to(secret.parent)
    (folder / "cycle").symlink_to(folder)

    created = site.post(f"/models/{model}/predictions.json", image_folder=str(folder))
    assert created.status_code == 202, created.get_json()
    address = created.get_json()["url"]
    body = predicted(site, address)
    assert [row["image"] for row in body["results"]] == [
        "\r=1+1.png",
        "caf\\xe9.png",
        "inside.png",
        "real.png",
    ]
    assert body["unreadable"] == 1 and "not UTF-8" in body["results"][1]["error"]
    assert "3 links ignored" in body["problems"][0]["message"]
    assert [site.get(f"{address}/images/{number}").status_code for number in range(4)] == [200, 400, 200, 200]
    table = site.get(f"{address}.csv").text
    assert next(csv.DictReader(io.StringIO(table, newline="")))["image"] == "'\r=1+1.png"


def test_uploaded_images_are_predicted(site: Site, model: str):
    files = [
        (io.BytesIO((site.data / "new" / "right" / f"0{n}.png").read_bytes()), f"{n}.png") for n in range(3)
    ]
    answer = site.post(f"/models/{model}/predictions.json", image_files=files)
    assert answer.status_code == 202
    body = predicted(site, answer.get_json()["url"])
    assert [row["image"] for row in body["results"]] == ["0.png", "1.png", "2.png"]
    assert {row["predictions"][0][0] for row in body["results"]} == {"right"}
    assert body["accuracy"] is None


def zipped(site: Site, **more: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for label in ("left", "right"):
            archive.write(site.data / "new" / label / "00.png", f"photos/{label}/a.png")
        for name, content in more.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_an_archive_is_read_like_a_folder(site: Site, model: str):
    archive = zipped(site, **{"photos/left/b.psd": b"", "photos/c.PSD": b""})
    (site.data / "photos.zip").write_bytes(archive)
    sent = {"image_archive": (io.BytesIO(archive), "photos.zip")}
    for fields in (sent, {"image_folder": str(site.data / "photos.zip")}):
        body = site.post(f"{CLASSIFY_MANY}.json", job_id=model, **fields).get_json()
        assert {name: found[0][0] for name, found in body["classifications"].items()} == {
            "left/a.png": "left",
            "right/a.png": "right",
        }
        assert body["accuracy"] == 1.0
        remark = "2 files .psd are not read: export them as PNG."
        assert remark in [problem["message"] for problem in body["problems"]]
    page = site.get(body["url"]).text
    assert "Predictions for photos.zip" in page and remark in page
    assert site.get(f"{body['url']}/images/1").mimetype == "image/png"


def test_archives_that_cannot_be_used_are_refused(site: Site, model: str):
    text_only = io.BytesIO()
    with zipfile.ZipFile(text_only, "w") as archive:
        archive.writestr("notes.txt", "no image")
    for data, message in (
        (b"no archive", "archive"),
        (text_only.getvalue(), "contains no images"),
        (zipped(site, **{"../up.png": b"x"}), "../up.png"),
        (zipped(site)[:200], "archive"),
    ):
        files = {"image_archive": (io.BytesIO(data), "photos.zip")}
        answer = site.post(f"/models/{model}/predictions.json", **files)
        assert answer.status_code == 400, answer.text
        assert message in answer.get_json()["error"]["message"]
    folder = site.services.store.folder / model / "predictions"
    assert all((entry / "predictions.json").is_file() for entry in folder.iterdir())


def test_top_n_returns_the_most_probable_images_per_class(site: Site, model: str):
    fields = {"job_id": model, "image_folder": str(site.data / "new"), "top_n": 2}
    answer = site.post("/models/images/classification/top_n.json", **fields)
    body = answer.get_json()
    assert answer.status_code == 200, body
    assert set(body["top_n"]) == {"left", "middle", "right"}
    for label, found in body["top_n"].items():
        assert len(found) == 2
        assert all(name.startswith(f"{label}/") for name, _ in found)
        assert found[0][1] >= found[1][1] > 50
    started = site.post(f"/models/{model}/predictions", show="top", **fields)
    assert started.status_code == 302 and "show=top" in started.location
    assert predicted(site, started.location.partition("?")[0])["state"] == "done"
    page = site.get(started.location).text
    assert page.count("<img") == 6 and "Images per class" in page
    assert site.get(f"{started.location.replace('top_n=2', 'top_n=1')}&page=9").text.count("<img") == 3
    assert site.get(f"{started.location}0000").status_code == 400
    # The file of a task that is running or was stopped has fewer rows than its header.
    folder = (
        site.services.store.folder / model / "predictions" / started.location.split("/")[-1].split("?")[0]
    )
    file = folder / predictions.PROBABILITIES_FILE
    assert np.concatenate([*predictions.read_probabilities(folder)]).shape == (25, 3)
    with open(file, "rb+") as data:
        data.truncate(file.stat().st_size - 13 * 3 * 4 + 5)
    assert np.concatenate([*predictions.read_probabilities(folder)]).shape == (12, 3)
    page = site.get(started.location).text
    assert 'alt="left/' in page and 'alt="middle/' in page and 'alt="right/' not in page


def test_batch_predictions_wait_for_each_other_and_are_stopped_one_by_one(site: Site, model: str):
    address, fields = f"/models/{model}/predictions", {"image_folder": str(site.data / "new" / "left")}
    old = site.post(f"{address}.json", **fields).get_json()["url"]
    assert predicted(site, old)["state"] == "done"
    slot = place(site.services.executor.ledger, DeviceRequest("prediction"))
    assert slot is not None
    try:
        first, second, third = (site.post(f"{address}.json", **fields).get_json()["url"] for _ in range(3))
        for each in (first, second, third):
            assert site.json(f"{each}.json")["state"] == "waiting"
        assert "Waiting for other predictions" in site.get(first).text
        # Deleting old results or those of a waiting prediction affects no other one.
        assert site.client.delete(old).status_code == site.client.delete(second).status_code == 200
        stopped = site.post(f"{third}/stop.json")
        assert (stopped.status_code, stopped.get_json()["state"]) == (202, "incomplete")
        assert site.post(f"{third}/stop").status_code == 409
        assert [task.key for task in site.services.background["prediction"].tasks(model)] == [
            first.split("/")[-1]
        ]
    finally:
        site.services.executor.ledger.release(slot)
    assert predicted(site, first)["state"] == "done"
    assert "None of the 8 images were predicted" in site.get(third).text
    page = site.get(first).text
    assert 'id="delete-predictions"' in page and 'id="stop-form"' not in page


def test_errors_are_json_for_programs(site: Site, model: str):
    answer = site.client.post(f"/models/{model}/predictions", headers={"X-Requested-With": "XMLHttpRequest"})
    assert answer.status_code == 400 and "contains no images" in answer.get_json()["error"]["message"]


def test_images_keep_their_size_on_request(site: Site, model: str):
    large = site.data / "sizes"
    large.mkdir()
    small = site.data / "new" / "left" / "00.png"
    (large / "a.png").write_bytes(small.read_bytes())
    Image.open(small).resize((32, 24)).save(large / "b.png")
    url, fields = "/models/images/generic", {"job_id": model, "dont_resize": "1"}
    one = site.post(f"{url}/infer_one.json", **fields, image_path=str(large / "a.png"))
    assert len(one.get_json()["outputs"]["output"][0]) == 3
    refused = site.post(f"{url}/infer_one.json", **fields, image_path=str(large / "b.png"))
    error = refused.get_json()["error"]
    assert refused.status_code == 400 and "does not accept images of 32×24 pixels" in error["message"]
    assert "16×16" in error["hint"]
    many = site.post(f"{url}/infer_many.json", **fields, image_folder=str(large)).get_json()
    assert list(many["outputs"]) == [str(large / "a.png")]
    assert many["skipped"] == {
        str(large / "b.png"): "The image has 32×24 pixels, but the network’s input has 16×16."
    }


def test_a_network_with_a_fixed_batch_size_predicts_any_number_of_images(
    site: Site, dataset: str, finished: Finished
):
    model = finished.model(site, dataset, WHOLE_BATCHES, train_epochs=4)
    answer = site.post(f"{CLASSIFY_MANY}.json", job_id=model, image_folder=str(site.data / "new"))
    assert answer.status_code == 200, answer.get_json()
    assert answer.get_json()["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, "The request contains no images"),
        ({"image_list": upload("\n\n")}, 400, "contains no images"),
        ({"image_list": upload("http://host/a.png")}, 400, "URLs are not supported"),
        ({"image_list": upload("/etc/passwd 1")}, 400, "outside the folders"),
        ({"image_list": upload("a.png")}, 400, "the path is relative"),
        ({"image_folder": "/etc"}, 403, "outside the folders"),
        ({"image_list": upload("a.png"), "num_test_images": "0"}, 400, "num_test_images"),
        ({"image_list": upload("a.png"), "snapshot_epoch": "9"}, 404, "no snapshot of epoch 9"),
    ],
)
def test_requests_without_usable_images_are_rejected(
    site: Site, model: str, fields: dict[str, Any], status: int, message: str
):
    fields = {
        name: upload(value[0].getvalue().decode(), value[1]) if isinstance(value, tuple) else value
        for name, value in fields.items()
    }
    answer = site.post(f"{CLASSIFY_MANY}.json", job_id=model, **fields)
    assert answer.status_code == status, answer.get_json()
    error = answer.get_json()["error"]
    assert message in error["message"] + error.get("hint", "")
    assert not site.services.background["prediction"].state(model)


def test_a_list_of_unreadable_images_is_rejected(site: Site, model: str):
    answer = site.post(
        f"{CLASSIFY_MANY}.json",
        job_id=model,
        image_list=upload("broken.png\n"),
        image_folder=str(site.data / "new"),
    )
    assert answer.status_code == 400
    assert "None of the 1 images" in answer.get_json()["error"]["message"]


def test_a_deleted_dataset_is_reported(site: Site, dataset: str, model: str):
    folder = site.services.store.folder / dataset
    moved = folder.with_name("moved")
    folder.rename(moved)
    try:
        answer = site.post(f"{CLASSIFY_MANY}.json", job_id=model, image_folder=str(site.data / "new"))
        assert answer.status_code == 400
        assert "dataset" in answer.get_json()["error"]["message"]
    finally:
        moved.rename(folder)


def test_a_regression_model_shows_its_own_predictions(site: Site):
    table = site.data / "numbers.csv"
    images = sorted((site.data / "new").rglob("0*.png"))
    table.write_text("path,size\n" + "".join(f"{path},{number}\n" for number, path in enumerate(images)))
    fields = {"dataset_name": "n", "table_train": str(table)}
    answer = site.post(
        "/datasets/images/regression.json", **fields, resize_width=16, resize_height=16, seed=1
    )
    assert answer.status_code == 200, answer.get_json()
    dataset = answer.get_json()["id"]
    assert site.wait_for_end(dataset) == "Done"
    network = LINEAR.replace(
        "digits.classification_loss(self.inference, self.y)",
        "digits.mse_loss(self.inference['size'], self.y)",
    ).replace(
        "return slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')",
        "size = slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')\n"
        "        return {'size': size, 'codes': flat[:, :4]}",
    )
    fields = {
        "dataset": dataset,
        "method": "custom",
        "custom_network": network,
        "train_epochs": 1,
        "batch_size": 6,
    }
    made = site.post(
        "/models/images/regression.json",
        **fields,
        model_name="numbers",
        select_gpu="cpu",
        learning_rate=0.001,
    )
    assert made.status_code == 200, made.get_json()
    model = made.get_json()["id"]
    assert site.wait_for_end(model) == "Done"
    answer = site.post(f"/models/{model}/predictions.json", image_folder=str(site.data / "new" / "left"))
    body = predicted(site, answer.get_json()["url"])
    assert [row["predictions"][0][0] for row in body["results"]] == ["size"] * 8
    assert "size" in site.get(answer.get_json()["url"]).text
    # All outputs of a network with several are returned.
    path = str(site.data / "new" / "left" / "00.png")
    asked = {"job_id": model, "image_path": path}
    one = site.post("/models/images/generic/infer_one.json", **asked).get_json()["outputs"]
    assert {name: np.shape(values) for name, values in one.items()} == {
        "output": (1, 1),
        "size": (1, 1),
        "codes": (1, 4),
    }
    asked = {"job_id": model, "image_folder": str(site.data / "new" / "left")}
    many = site.post("/models/images/generic/infer_many.json", **asked).get_json()["outputs"]
    assert len(many) == 8 and many[path].keys() == one.keys()
    for name, values in one.items():
        assert many[path][name] == pytest.approx(values[0], rel=1e-5)
    refused = site.post("/models/images/classification/top_n.json", **asked)
    assert refused.status_code == 400 and "does not predict classes" in refused.text
    assert site.get(f"{answer.get_json()['url']}.csv").text.startswith("image,true_class,prediction,error")
