"""Exports of trained models over HTTP: the task, its result on the page, and the archives."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from digits.kinds import standard_networks
from tests.site import Site
from tests.web.trained import LINEAR, Finished, shared_site

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    """A model with snapshots of the epochs 1 and 2."""
    return finished.model(site, dataset, name="exported", train_epochs=2, use_mean="image")


def folder_of(site: Site, job_id: str) -> Path:
    return site.services.store.folder / job_id


def export(site: Site, model: str, **fields: Any) -> Any:
    """Start an export and wait for its end; return the JSON of all exports."""
    answer = site.post(f"/models/{model}/export.json", **fields)
    assert answer.status_code == 202, answer.get_json()
    site.wait(lambda: site.json(f"/models/{model}/export.json")["state"] != "running")
    return site.json(f"/models/{model}/export.json")


def test_an_export_is_made_once_per_snapshot_and_format(site: Site, model: str) -> None:
    body = export(site, model, format="litert", snapshot_epoch=1)
    assert body["state"] == "done", body["error"]
    (made,) = body["exports"]
    assert (made["format"], made["epoch"], made["snapshot"]) == ("litert", 1.0, "snapshot_1.ckpt")
    assert made["difference"] < 1e-4 and made["agreement"] == 1.0 and made["source"] == "val"
    assert made["runtime"].startswith("LiteRT")
    assert (folder_of(site, model) / "exports" / "snapshot_1-litert" / "model.tflite").is_file()
    again = site.post(f"/models/{model}/export", format="litert", snapshot_epoch=1)
    assert again.status_code == 302 and again.headers["Location"].endswith("#export")
    assert site.json(f"/models/{model}/export.json")["state"] == "done", "the existing one is kept"

    page = site.get(f"/models/{model}").text
    assert "Epoch 1, LiteRT float32" in page and "100% equal predictions" in page and made["url"] in page
    archive = zipfile.ZipFile(io.BytesIO(site.get(made["url"]).data))
    names = {
        "model.tflite",
        "labels.txt",
        "MODEL_CARD.md",
        "example.py",
        "image_conversion.py",
        "export.json",
    }
    assert set(archive.namelist()) == names
    assert archive.read("labels.txt").split() == [b"left", b"middle", b"right"]
    card = archive.read("MODEL_CARD.md").decode()
    assert "# exported" in card and "Dataset: bars" in card


def test_a_saved_model_has_the_layout_of_tensorflow_serving(site: Site, model: str) -> None:
    body = export(site, model, format="savedmodel", snapshot_epoch=2)
    made = next(item for item in body["exports"] if item["format"] == "savedmodel")
    answer = site.get(f"/models/{model}/export/savedmodel.tar.gz?epoch=2")
    assert answer.headers["Content-Disposition"].endswith('_epoch_2_savedmodel.tar.gz"')
    with tarfile.open(fileobj=io.BytesIO(answer.data)) as archive:
        names = set(archive.getnames())
        config = archive.extractfile("models.config")
        assert config
        text = config.read().decode()
    # A folder per model with a folder per version, whose name is an integer:
    # https://www.tensorflow.org/tfx/serving/serving_config
    version = f"model/{made['step']}"
    assert {f"{version}/saved_model.pb", f"{version}/variables/variables.index", "example.py"} <= names
    assert made["step"] > 0 and all(name.startswith(version) or "/" not in name for name in names)
    assert 'name: "model"' in text and 'base_path: "/models/model"' in text
    page = site.get(f"/models/{model}").text
    assert "--model_config_file=/models/models.config" in page and "tensorflow/serving" in page
    assert made["signatures"] == ["serving_default", "predictions"]
    assert f"/models/{model}/predict</code>" in page and '"signature_name": "predictions"</code>' in page


def test_an_unsupported_format_is_explained_with_the_line(site: Site, model: str) -> None:
    body = export(site, model, format="keras", snapshot_epoch=1)
    assert body["state"] == "failed"
    assert "cannot be exported as a Keras model" in body["error"]["message"]
    assert LINEAR.splitlines()[body["error"]["line"] - 1].strip().startswith(("flat", "return"))
    assert f"Line {body['error']['line']}: " in site.get(f"/models/{model}").text


def test_wrong_requests_are_refused(site: Site, model: str, dataset: str) -> None:
    path = f"/models/{model}/export.json"
    wrong = site.post(path, format="caffe")
    assert wrong.status_code == 400 and "onnx" in wrong.get_json()["error"]["hint"]
    assert site.post(path, format="onnx", snapshot_epoch=77).status_code == 404
    assert site.post("/models/nothing/export.json", format="onnx").status_code == 404
    assert site.get(f"/models/{model}/export/onnx.rar?epoch=1").status_code == 400
    missing = site.get(f"/models/{model}/export/onnx.zip?epoch=1", headers={"Accept": "application/json"})
    assert (
        missing.status_code == 404
        and "has not been exported as ONNX" in missing.get_json()["error"]["message"]
    )
    untrained = site.finished_model(dataset)
    for path in folder_of(site, untrained).glob("snapshot_*"):
        path.unlink()
    answer = site.post(f"/models/{untrained}/export.json", format="onnx")
    assert answer.status_code == 400 and "no snapshot" in answer.get_json()["error"]["message"]


def test_an_export_of_replaced_weights_is_not_offered(site: Site, model: str) -> None:
    folder = folder_of(site, model)
    index = folder / "snapshot_1.ckpt.index"
    kept = index.read_bytes()
    try:
        shutil.copyfile(folder / "snapshot_2.ckpt.index", index)
        formats = [item["format"] for item in site.json(f"/models/{model}/export.json")["exports"]]
        assert "litert" not in formats
        assert site.get(f"/models/{model}/export/litert.zip?epoch=1").status_code == 404
    finally:
        index.write_bytes(kept)


def test_a_model_of_a_deleted_dataset_is_not_exported(site: Site) -> None:
    orphan = site.finished_model("20200101-000000-abcdef")
    as_json = {"Accept": "application/json"}
    for answer in (
        site.post(f"/models/{orphan}/export.json", format="onnx"),
        site.get(f"/models/{orphan}/savedmodel.zip", headers=as_json),
    ):
        assert answer.status_code == 400
        assert "its dataset was deleted" in answer.get_json()["error"]["message"]
    page = site.post(f"/models/{orphan}/export", format="onnx")
    assert page.status_code == 400 and "its dataset was deleted" in page.text
    assert site.get(f"/models/{orphan}").status_code == 200
    assert site.get(f"/models/{orphan}/download.zip").status_code == 200, "the snapshot remains available"


def test_a_deleted_snapshot_is_neither_exported_nor_downloaded(site: Site, dataset: str) -> None:
    model = site.finished_model(dataset)
    for path in folder_of(site, model).glob("snapshot_*"):
        path.unlink()
    as_json = {"Accept": "application/json"}
    for name in ("download.zip", "savedmodel.zip", "export/onnx.zip"):
        answer = site.get(f"/models/{model}/{name}", headers=as_json)
        assert answer.status_code == 400 and "no snapshot" in answer.get_json()["error"]["message"]
    page = site.post(f"/models/{model}/export", format="onnx")
    assert page.status_code == 400 and "no snapshot" in page.text


@pytest.mark.parametrize(
    ("ending", "mode"),
    [
        ("", "r:gz"),
        (".tar", "r:"),
        (".tar.gz", "r:gz"),
        (".tgz", "r:gz"),
        (".tar.bz2", "r:bz2"),
        (".zip", ""),
    ],
)
def test_the_archive_of_digits_6_has_all_endings(site: Site, model: str, ending: str, mode: Any) -> None:
    answer = site.get(f"/models/{model}/download{ending}?epoch=1")
    assert answer.status_code == 200
    name = f"{model}_epoch_1{ending or '.tar.gz'}"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    content = io.BytesIO(answer.data)
    if mode:
        with tarfile.open(fileobj=content, mode=mode) as archive:
            names = archive.getnames()
    else:
        names = zipfile.ZipFile(content).namelist()
    assert {"info.json", "network.py", "snapshot_1.ckpt.index", "snapshot_1.ckpt.data-00000-of-00001"} <= set(
        names
    )


def test_the_archive_of_digits_6_is_downloaded(site: Site, model: str) -> None:
    """By default, it contains the newest snapshot."""
    answer = site.get(f"/models/{model}/download.tar.gz")
    assert answer.status_code == 200
    assert answer.headers["Content-Disposition"].endswith(f'{model}_epoch_2.tar.gz"')
    with tarfile.open(fileobj=io.BytesIO(answer.data)) as archive:
        info = archive.extractfile("info.json")
        assert info
        body = json.loads(info.read())
        names = archive.getnames()
    assert {"network.py", "labels.txt", "snapshot_2.ckpt.index"} <= set(names)
    keys = "id name status dataset_id framework username".split()
    keys += ["job id", "creation time", "image dimensions", "mean file", "snapshot file", "model file"]
    assert {*keys, "mean subtraction", "image resize mode", "labels file"} <= set(body)
    assert body["snapshot file"] == "snapshot_2.ckpt" and list(body) == sorted(body)
    one = site.post(f"/models/{model}/download.tgz", snapshot_epoch=1)
    assert one.headers["Content-Disposition"].endswith(f'{model}_epoch_1.tgz"')


def offered(site: Site, model: str) -> dict[str, Any]:
    """Return the refusal of each format, or None, after checking that the page offers the other formats only."""
    formats = site.json(f"/models/{model}/export.json")["formats"]
    page = site.get(f"/models/{model}").text
    for item in formats:
        assert (f'<option value="{item["name"]}" data-use' in page) == (item["refusal"] is None)
        assert item["refusal"] is None or item["refusal"]["message"].split(":")[0] in page
    return {item["name"]: item["refusal"] for item in formats}


def test_a_format_that_the_network_does_not_support_is_no_longer_offered(site: Site, model: str) -> None:
    (folder_of(site, model) / "export-refusals.json").unlink(missing_ok=True)
    assert not any(offered(site, model).values())
    body = export(site, model, format="keras")
    assert body["state"] == "failed"
    refusal = offered(site, model)["keras"]
    assert refusal["message"] == body["error"]["message"] and refusal["line"] == 5
    answer = site.post(f"/models/{model}/export.json", format="keras")
    assert answer.status_code == 400 and answer.get_json()["error"]["message"] == refusal["message"]


def test_a_standard_network_is_offered_in_the_formats_that_it_supports(site: Site, model: str) -> None:
    network = folder_of(site, model) / "network.py"
    original = network.read_text()
    try:
        network.write_text(standard_networks.network("lenet").text)
        (folder_of(site, model) / "export-refusals.json").unlink(missing_ok=True)
        assert "functions of slim" in offered(site, model)["keras"]["message"]
    finally:
        network.write_text(original)
