"""Batch predictions over HTTP: lists, folders, uploads and invalid input."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.shared_executor import SharedExecutor
from tests.site import Site, bars, open_site, site_settings
from tests.web.test_evaluation_views import LINEAR, WHOLE_BATCHES, train

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]

CLASSIFY_MANY = "/models/images/classification/classify_many"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, executor: SharedExecutor) -> Iterator[Site]:
    opened = open_site(site_settings(tmp_path_factory.mktemp("predictions")), executor)
    bars(opened.data / "new")
    (opened.data / "new" / "broken.png").write_bytes(b"no image")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dataset(site: Site) -> str:
    job_id = site.dataset(folder_seed=1, seed=1)
    assert site.wait_for_end(job_id) == "Done"
    return job_id


@pytest.fixture(scope="module")
def model(site: Site, dataset: str) -> str:
    return train(site, dataset, train_epochs=4, model_name="Bars")


def upload(text: str, name: str = "list.txt") -> tuple[io.BytesIO, str]:
    return io.BytesIO(text.encode()), name


def predicted(site: Site, address: str) -> Any:
    """Wait for the end of a batch prediction, and return its JSON."""
    return site.wait(
        lambda: (body := site.json(f"{address}.json"))["state"] not in ("running", "incomplete") and body
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
    archive = zipped(site)
    (site.data / "photos.zip").write_bytes(archive)
    sent = {"image_archive": (io.BytesIO(archive), "photos.zip")}
    for fields in (sent, {"image_folder": str(site.data / "photos.zip")}):
        body = site.post(f"{CLASSIFY_MANY}.json", job_id=model, **fields).get_json()
        assert {name: found[0][0] for name, found in body["classifications"].items()} == {
            "left/a.png": "left",
            "right/a.png": "right",
        }
        assert body["accuracy"] == 1.0
    page = site.get(body["url"]).text
    assert "Predictions for photos.zip" in page
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
    page = site.post("/models/images/classification/top_n", **fields)
    assert page.text.count("<img") == 6


def test_a_network_with_a_fixed_batch_size_predicts_any_number_of_images(site: Site, dataset: str):
    model = train(site, dataset, WHOLE_BATCHES, train_epochs=4)
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
    assert not site.services.predictions.state(model)


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
        "digits.classification_loss(self.inference, self.y)", "digits.mse_loss(self.inference, self.y)"
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
    assert site.get(f"{answer.get_json()['url']}.csv").text.startswith("image,true_class,prediction,error")
