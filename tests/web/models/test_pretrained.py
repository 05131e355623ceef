"""Importing models trained elsewhere: archives, checkpoints, Keras models and SavedModels."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.model_job import ModelJob
from tests.site import Site
from tests.web.trained import LINEAR, Finished, shared_site, train

pytestmark = [pytest.mark.integration, pytest.mark.tensorflow]
site = shared_site

LABELS = ["left", "middle", "right"]


@pytest.fixture(scope="module")
def model(site: Site, dataset: str, finished: Finished) -> str:
    return finished.model(site, dataset, name="Bars", use_mean="pixel")


@pytest.fixture(scope="module")
def archive(site: Site, model: str) -> bytes:
    answer = site.get(f"/models/{model}/download.tar.gz")
    assert answer.status_code == 200
    return bytes(answer.data)


def files_in(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {item.name: file.read() for item in tar if (file := tar.extractfile(item))}


def as_zip(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def upload(site: Site, data: bytes, name: str = "model.zip") -> Any:
    return site.post("/pretrained_models/upload_archive", archive=(io.BytesIO(data), name))


def changed_info(files: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    """Return the ``files`` of an archive with these keys of info.json changed, or removed if None."""
    info = json.loads(files["info.json"])
    for key, value in changes.items():
        info[key.replace("_", " ")] = value
        if value is None:
            del info[key.replace("_", " ")]
    return {**files, "info.json": json.dumps(info).encode()}


def predict(site: Site, job_id: str) -> Any:
    image = site.data / "bars" / "middle" / "00.png"
    answer = site.post(
        "/models/images/classification/classify_one.json", job_id=job_id, image_path=str(image)
    )
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()["predictions"]


def jobs(site: Site) -> int:
    return len(list(site.services.store.folder.glob("2*")))


def exported(site: Site, job_id: str, name: str) -> Any:
    """Export the snapshot of a model in the format ``name``; return the JSON of its exports."""
    assert site.post(f"/models/{job_id}/export.json", format=name).status_code == 202
    return site.wait(
        lambda: (body := site.json(f"/models/{job_id}/export.json"))["state"] != "running" and body
    )


def test_an_imported_archive_returns_the_same_predictions(site: Site, model: str, archive: bytes):
    answer = upload(site, archive, "model.tar.gz")
    assert answer.status_code == 200, answer.get_json()
    assert answer.get_json()["status"] == "success"
    body = site.json(f"/models/{answer.get_json()['id']}.json")
    assert (body["name"], body["image dimensions"], body["mean subtraction"]) == (
        "Bars",
        [16, 16, 3],
        "pixel",
    )
    assert body["snapshots"] == [1]
    assert predict(site, body["id"]) == predict(site, model)
    page = site.get(f"/models/{body['id']}").text
    assert "Train from this model" in page
    assert ">Clone<" not in page
    assert "Imported" in site.get("/").text


def test_a_digits_6_archive_without_a_manifest_is_imported(site: Site, model: str, archive: bytes):
    files = files_in(archive)
    del files["dataset.json"]
    answer = upload(site, as_zip({f"job/{name}": data for name, data in files.items()}))
    assert answer.status_code == 200, answer.get_json()
    for (name, percent), (expected, other) in zip(
        predict(site, answer.get_json()["id"]), predict(site, model), strict=True
    ):
        assert name == expected
        assert percent == pytest.approx(other, abs=0.01)


def test_an_imported_model_can_be_evaluated_and_trained(site: Site, model: str, archive: bytes):
    job_id = upload(site, archive, "model.tar.gz").get_json()["id"]
    dataset = site.json(f"/models/{model}.json")["dataset_id"]
    page = site.get(f"/models/{job_id}").text
    assert f'<option value="{dataset}">' in page
    assert re.findall(r'<option value="(train|val|test)"', page) == ["train", "val", "test"]
    evaluation, _ = site.evaluate(job_id, dataset=dataset, split="val")
    assert evaluation["records"] == 6
    (made,) = exported(site, job_id, "litert")["exports"]
    card = zipfile.ZipFile(io.BytesIO(site.get(made["url"]).data)).read("MODEL_CARD.md").decode()
    assert "Network: imported, " in card and "Optimizer" not in card
    assert f"bars, val split, 6 records: accuracy {evaluation['metrics']['accuracy']:.6g}" in card
    form = site.get(f"/models/images/classification/new?previous={job_id}").text
    assert f'value="{job_id}"' in form
    fields = {"method": "previous", "previous_networks": job_id, f"{job_id}-snapshot": "1"}
    following = train(site, dataset, **fields)
    assert site.json(f"/models/{following}.json")["snapshots"] == [1]


def test_an_imported_model_can_be_exported(site: Site, archive: bytes):
    job_id = upload(site, archive, "model.tar.gz").get_json()["id"]
    for name in ("onnx", "litert", "litert-float16"):
        body = exported(site, job_id, name)
        assert body["error"] is None
        assert name in [each["format"] for each in body["exports"]]
    answer = site.post(f"/models/{job_id}/export.json", format="litert-int8")
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert "no training images" in error["message"]
    assert "create a dataset of your images" in error["hint"]
    saved = zipfile.ZipFile(io.BytesIO(site.get(f"/models/{job_id}/savedmodel.zip").data))
    assert "saved_model.pb" in saved.namelist()


def test_a_copied_snapshot_works_without_the_original_model(site: Site, model: str):
    answer = site.post(f"/models/{model}/to_pretrained.json", snapshot_epoch="1")
    assert answer.status_code == 200, answer.get_json()
    kept = answer.get_json()["id"]
    assert answer.get_json()["name"] == "Bars, epoch 1"
    before = predict(site, model)
    shutil.move(site.services.store.folder / model, site.data / "moved")
    try:
        assert predict(site, kept) == before
    finally:
        shutil.move(site.data / "moved", site.services.store.folder / model)


def refused(site: Site, data: bytes) -> Any:
    """Upload an archive that must be refused without leaving a job, and return the error."""
    before = jobs(site)
    answer = upload(site, data)
    assert (answer.status_code, jobs(site)) == (400, before)
    return answer.get_json()["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "caffe"}, "is a Caffe model"),
        ({"snapshot_file": None}, "snapshot file"),
        ({"snapshot_file": "../snapshot_1.ckpt"}, "snapshot file"),
        ({"snapshot_file": "snapshot_7.ckpt"}, "refers to snapshot_7.ckpt.index"),
        ({"model_file": None}, "neither “model file” nor “network file”"),
        ({"name": None}, "name"),
        ({"mean_file": "other.npy"}, "other.npy"),
        (b"no archive", "archive"),
        (as_zip({"notes.txt": b"no model"}), "contains no"),
        (as_zip({"../outside.txt": b"slip"}), "outside"),
        (as_zip({"info.json": b"[1, 2"}), "info.json"),
    ],
)
def test_an_invalid_archive_is_rejected(site: Site, archive: bytes, change: Any, message: str):
    data = change if isinstance(change, bytes) else as_zip(changed_info(files_in(archive), **change))
    error = refused(site, data)
    assert message in error["message"] + error.get("hint", "") and "trace" not in error


def test_an_error_of_the_network_in_an_archive_is_reported(site: Site, archive: bytes):
    files = files_in(archive)
    files["network.py"] = LINEAR.replace("self.nclasses", "self.nclasses + 1").encode()
    message = refused(site, as_zip(files))["message"]
    assert "do not match the network" in message and "model/out/weights" in message
    files["network.py"] = LINEAR.replace("slim.fully_connected", "slim.no_such_layer").encode()
    error = refused(site, as_zip(files))
    assert "no_such_layer" in error["message"]
    assert {frame["file"] for frame in error["trace"]} == {"network.py"}


def test_a_checkpoint_is_imported_with_its_network(site: Site, model: str, archive: bytes):
    files = files_in(archive)
    folder = site.data / "checkpoint"
    folder.mkdir()
    for name in ("network.py", "snapshot_1.ckpt.index", "snapshot_1.ckpt.data-00000-of-00001", "labels.txt"):
        (folder / name).write_bytes(files[name])
    fields = {"job_name": "From a checkpoint", "source": str(folder), "width": 16}
    refused = site.post("/pretrained_models/new.json", **fields)
    assert refused.status_code == 400
    assert "Enter the width and the height" in refused.get_json()["errors"]["source"][0]
    answer = site.post("/pretrained_models/new.json", **fields, height=16)
    assert answer.status_code == 200, answer.get_json()
    assert next(name for name, _ in predict(site, answer.get_json()["id"])) in LABELS


def test_uploaded_files_are_imported(site: Site, archive: bytes):
    files = files_in(archive)
    sent = [(io.BytesIO(files[name]), name) for name in files if name.startswith("snapshot_1")]
    answer = site.post(
        "/pretrained_models/new.json",
        job_name="Uploaded",
        width=16,
        height=16,
        weights_file=sent,
        model_def_file=(io.BytesIO(files["network.py"]), "network.py"),
        labels_file=(io.BytesIO(b"eins\nzwei\ndrei\n"), "labels.txt"),
    )
    assert answer.status_code == 200, answer.get_json()
    assert {name for name, _ in predict(site, answer.get_json()["id"])} == {"eins", "zwei", "drei"}


def save_keras(path: str) -> list[float]:
    """Write a Keras model of probabilities, and a SavedModel of it; return its answer to gray pixels."""
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.save(f"{path}/model.keras")
    model.export(f"{path}/saved", verbose=False)
    return [float(value) for value in np.asarray(model(np.full((1, 16, 16, 3), 128.0, np.float32)))[0]]


@dataclass
class Complete:
    """Complete models in ``folder``: ``model.keras`` and the SavedModel ``saved``, with percentages for an image."""

    folder: Path
    percents: list[float]

    def check(self, site: Site, answer: Any) -> str:
        """Check that an import makes the same predictions; return its id."""
        assert answer.status_code == 200, answer.get_json()
        job_id = str(answer.get_json()["id"])
        assert site.json(f"/models/{job_id}.json")["image dimensions"] == [16, 16, 3]
        assert self.predict(site, job_id) == pytest.approx(self.percents, abs=0.02)
        return job_id

    def predict(self, site: Site, job_id: str) -> list[float]:
        answer = site.post(
            "/models/images/classification/classify_one.json",
            job_id=job_id,
            image_path=str(self.folder / "gray.png"),
        )
        assert answer.status_code == 200, answer.get_json()
        percents = dict(answer.get_json()["predictions"])
        return [percents[label] for label in LABELS]


@pytest.fixture
def complete(site: Site, in_child: Callable[..., Any]) -> Complete:
    from PIL import Image

    folder = site.data / "complete"
    if not folder.exists():
        folder.mkdir()
        Image.new("RGB", (16, 16), (128, 128, 128)).save(folder / "gray.png")
        (folder / "expected.json").write_text(json.dumps(in_child(save_keras, str(folder))))
    expected = json.loads((folder / "expected.json").read_text())
    return Complete(folder, [100 * value for value in expected])


# Two numbers, without class names.
NUMBERS = """
import keras

class UserModel(Tower):
    @model_property
    def inference(self):
        return keras.layers.Dense(2, name="numbers")(keras.layers.Flatten()(self.x))

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference, self.y)
"""


def save_numbers(path: str) -> list[float]:
    """Write a Keras model of two numbers in all formats below ``path``; return its answer to gray pixels."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2, name="numbers")]
    model = keras.Sequential(layers)
    for name in ("whole.keras", "whole.h5", "weights/numbers.weights.h5"):
        Path(path, name).parent.mkdir(exist_ok=True)
        (model.save_weights if name.endswith(".weights.h5") else model.save)(f"{path}/{name}")
    model.export(f"{path}/saved", verbose=False)
    Path(path, "checkpoint").mkdir()
    dense = model.layers[-1]
    values = {"numbers/kernel": dense.kernel.value, "numbers/bias": dense.bias.value}
    tf.raw_ops.SaveV2(
        prefix=f"{path}/checkpoint/model.ckpt",
        tensor_names=list(values),
        shape_and_slices=["", ""],
        tensors=[tf.convert_to_tensor(value) for value in values.values()],
    )
    for folder in ("weights", "checkpoint"):
        Path(path, folder, "network.py").write_text(NUMBERS)
    return [float(value) for value in np.asarray(model(np.full((1, 16, 16, 3), 128.0, np.float32)))[0]]


def test_all_models_without_class_names_are_imported(site: Site, in_child: Callable[..., Any]) -> None:
    from PIL import Image

    folder = site.data / "numbers"
    folder.mkdir()
    expected = in_child(save_numbers, str(folder))
    gray = io.BytesIO()
    Image.new("RGB", (16, 16), (128, 128, 128)).save(gray, "PNG")

    def check(answer: Any) -> str:
        assert answer.status_code == 200, answer.get_json()
        job_id = str(answer.get_json()["id"])
        predicted = site.api.classify(job_id, gray.getvalue()).predictions
        assert predicted["values"] == pytest.approx(expected, rel=1e-3), predicted
        assert site.get(f"/models/{job_id}").status_code == 200
        manifest = site.services.store.folder / job_id / "dataset.json"
        assert json.loads(manifest.read_text())["target"]["shape"] == [2]
        return job_id

    for name in ("whole.keras", "whole.h5", "saved", "weights", "checkpoint"):
        size = {} if name.startswith(("whole", "saved")) else {"width": 16, "height": 16}
        fields = {"job_name": name, "source": str(folder / name)}
        job_id = check(site.post("/pretrained_models/new.json", **fields, **size))
    archive = site.get(f"/models/{job_id}/download.tar.gz").data
    check(upload(site, archive, "model.tar.gz"))
    files = files_in(archive)
    del files["dataset.json"]  # as DIGITS 6 writes it
    check(upload(site, as_zip(files)))
    check(site.post(f"/models/{job_id}/to_pretrained.json"))
    data = (folder / "whole.keras").read_bytes()
    sent = (io.BytesIO(data), "веса.keras")
    check(site.post("/pretrained_models/new.json", job_name="a", weights_file=sent))
    twice = [(io.BytesIO(data), name) for name in ("a/веса.keras", "b/веса.keras")]
    refused = site.post("/pretrained_models/new.json", job_name="a", weights_file=twice)
    assert refused.status_code == 400 and "Rename one" in refused.get_json()["error"]["hint"]
    for count in (0, 2):
        sent_archives = [(io.BytesIO(archive), f"{number}.tar.gz") for number in range(count)]
        assert site.post("/pretrained_models/upload_archive", archive=sent_archives).status_code == 400


@pytest.mark.parametrize("name", ["model.keras", "saved"])
def test_a_complete_model_does_not_need_a_network_file_and_is_self_contained(
    site: Site, model: str, complete: Complete, name: str
):
    answer = site.post(
        "/pretrained_models/new.json",
        job_name=name,
        source=str(complete.folder / name),
        labels="\n".join(LABELS),
    )
    job_id = complete.check(site, answer)
    kept = site.post(f"/models/{job_id}/to_pretrained.json")
    archive = site.get(f"/models/{job_id}/download.tar.gz").data
    text = site.services.store.get(job_id, ModelJob).network_text()
    dataset = site.json(f"/models/{model}.json")["dataset_id"]
    following = {
        "dataset": dataset,
        "method": "previous",
        "previous_networks": job_id,
        f"{job_id}-snapshot": "0",
    }
    can_be_trained = name == "model.keras"
    trained = train(site, dataset, **following) if can_be_trained else ""
    if can_be_trained:
        weights = site.services.store.get(trained, ModelJob).recipe.weights
        assert weights and weights.endswith("/snapshot_0.ckpt")
    visualized = site.post("/models/visualize-network", **following, custom_network=text)
    if can_be_trained:
        assert visualized.status_code == 200, visualized.get_json()
    else:
        assert "does not depend on any variable" in visualized.get_json()["error"]["message"]

    assert site.client.delete(f"/jobs/{job_id}").status_code == 200
    complete.check(site, kept)
    complete.check(site, upload(site, archive, "model.tar.gz"))
    if not can_be_trained:
        return
    for format_ in ("keras", "litert"):
        assert exported(site, trained, format_)["error"] is None
    form = site.get(f"/models/images/classification/new?clone={trained}").text
    assert re.search(f'value="{trained}"[^>]* checked', form)
    assert "digits.pretrained(&#39;pretrained.keras&#39;" in form
    fields = {"dataset": dataset, "method": "custom", "custom_network": text}
    checked = site.post("/models/preflight", **fields, previous_networks=trained)
    assert checked.status_code == 200, checked.get_json()
    checked = site.post("/models/preflight", **fields)
    assert checked.status_code == 400
    assert "no pretrained model" in checked.get_json()["error"]["message"]


def test_the_network_of_an_earlier_import_finds_its_model_in_another_jobs_folder(
    site: Site, complete: Complete
):
    answer = site.post(
        "/pretrained_models/new.json",
        job_name="Earlier",
        source=str(complete.folder / "model.keras"),
        labels="\n".join(LABELS),
    )
    network = site.services.store.folder / answer.get_json()["id"] / "network.py"
    text = network.read_text()
    network.write_text(
        text.replace("'pretrained.keras'", "'/another/jobs/20250101-000000-0000/pretrained.keras'")
    )
    assert network.read_text() != text
    complete.check(site, answer)


def zipped(folder: Path, prefix: str = "", **others: str) -> bytes:
    """Return a zip archive of ``folder`` below ``prefix``, and of ``others``, texts by file name."""
    files = {
        f"{prefix}{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return as_zip(files | {f"{name}.txt": text.encode() for name, text in others.items()})


@pytest.mark.parametrize(
    "prefix", ["", pytest.param("saved/", marks=pytest.mark.nightly), "models/flowers/3/"]
)
def test_an_uploaded_archive_may_contain_a_saved_model(site: Site, complete: Complete, prefix: str):
    labels = "\n".join(LABELS)
    archive = zipped(complete.folder / "saved", prefix)
    answer = site.post(
        "/pretrained_models/new.json",
        job_name="Zipped",
        weights_file=(io.BytesIO(archive), "model.zip"),
        labels_file=(io.BytesIO(labels.encode()), "labels.txt"),
    )
    complete.check(site, answer)
    complete.check(site, upload(site, zipped(complete.folder / "saved", prefix, labels=labels)))
    if not prefix:
        (site.data / "sm.zip").write_bytes(archive)
        labels_file = (io.BytesIO(labels.encode()), "labels.txt")
        fields = {"job_name": "On the server", "source": str(site.data / "sm.zip")}
        complete.check(site, site.post("/pretrained_models/new.json", **fields, labels_file=labels_file))


def test_an_exported_saved_model_is_imported_again(site: Site, dataset: str):
    lenet = train(site, dataset, method="standard", standard_networks="lenet", use_mean="pixel")
    before = predict(site, lenet)
    assert exported(site, lenet, "savedmodel")["error"] is None
    for path in ("savedmodel.zip", "export/savedmodel.zip"):
        archive = site.get(f"/models/{lenet}/{path}").data
        files = zipfile.ZipFile(io.BytesIO(archive))
        assert "example.py" in files.namelist()
        assert "Network: LeNet, " in files.read("MODEL_CARD.md").decode()
        answer = upload(site, archive)
        assert answer.status_code == 200, answer.get_json()
        for (name, percent), (expected, other) in zip(
            predict(site, answer.get_json()["id"]), before, strict=True
        ):
            assert name == expected
            assert percent == pytest.approx(other, abs=0.01)


def test_the_form_shows_validation_errors(site: Site):
    assert "Import a model" in site.get("/pretrained_models/new").text
    answer = site.post("/pretrained_models/new", job_name="", source="/elsewhere/model.keras")
    assert answer.status_code == 400
    assert "Enter a name." in answer.text
    assert "outside the folders" in answer.text
