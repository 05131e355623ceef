"""The client creates, follows and uses jobs of a site or a server, and raises errors with a message and a hint."""

from __future__ import annotations

import dataclasses
import io
import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gevent
import pytest
from PIL import Image

from digits import client
from digits.client import Answer, Client, InvalidFields, JobFailed
from digits.core.errors import BadRequest, DigitsError, NotAllowed, NotFound, NotReady, Outdated, Unavailable
from digits.core.settings import Settings
from digits.runtime.offload import in_thread
from digits.web.server.http import Server
from tests import odd_web_server
from tests.finished_jobs import write_jobs
from tests.site import Site, bars, open_site
from tests.web.trained import LINEAR


def test_a_dataset_is_created_and_followed(site: Site) -> None:
    source = bars(site.data / "bars")
    created = site.api.create_dataset(
        "images/classification",
        "bars",
        folder_train=source,
        resize_width=16,
        resize_height=16,
        folder_pct_val=25,
    )
    assert (created.name, created.warnings) == ("bars", [])
    seen: list[float] = []
    done = site.api.wait(created.id, lambda status: seen.append(status.progress))
    assert (done.status, done.type, seen[-1]) == ("Done", "Image classification dataset", 100.0)
    dataset = site.api.dataset(created.id)
    assert {task.name: task.entries for task in dataset.CreateDbTasks} == {
        "Create DB (train)": 18,
        "Create DB (val)": 6,
    }
    assert [row.id for row in site.api.datasets("bars")] == [created.id]
    assert list(site.api.datasets("no such name")) == []
    site.api.delete(created.id)
    with pytest.raises(NotFound, match="There is no"):
        site.api.dataset(created.id)


def test_lists_contain_all_pages(site: Site) -> None:
    dataset = site.dataset()
    ids = {site.finished_model(dataset) for _ in range(3)}
    pages = list(site.api.models())
    assert {row.id for row in pages} == ids and pages[0].type_title == "Image classification model"


def test_images_are_labeled_and_become_a_dataset(site: Site) -> None:
    names = ["left", "middle", "right"]
    folder = bars(site.data / "bars", each=20)
    job = site.api.create_labels("mine", "images/classification", folder, names)
    site.api.wait(job.id)
    assert site.api.labels(job.id).images == 60
    assert [row.id for row in site.api.list_labels("mine")] == [job.id]
    for image in site.api.label_images(job.id, state="none,unlabeled"):
        label = names.index(image.path.split("/")[0])
        assert site.api.save_label(job.id, image.n, image.rev, label=label, edit=f"first-{image.n}") == 1
    assert site.api.save_label(job.id, 0, 0, label=0, edit="first-0") == 1
    with pytest.raises(Outdated, match="in the meantime"):
        site.api.save_label(job.id, 0, 0, label=1)
    with pytest.raises(BadRequest, match="no class 7"):
        site.api.save_label(job.id, 0, 1, label=7)
    assert not list(site.api.label_images(job.id, state="none"))
    dataset = site.api.freeze(job.id, "frozen", width=16, height=16)
    site.api.wait(dataset.id)
    assert sum(task.entries for task in site.api.dataset(dataset.id).CreateDbTasks) == 60
    assert site.api.correct(dataset.id, {"train/0": {"exclude": True}}).words == "1 image excluded"
    (skipped,) = site.api.label_images(job.id, state="skipped")
    assert skipped.split == "train"
    site.api.save_label(job.id, skipped.n, skipped.rev, label=0)
    with pytest.raises(Outdated, match="have changed since the dataset was made"):
        site.api.correct(dataset.id, {"train/0": {"label": 1}})
    with pytest.raises(BadRequest, match="threshold"):
        site.api.accept(job.id, 2)


def test_images_to_label_come_from_all_pages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_IMAGES_PER_PAGE", 7)
    job = site.api.create_labels("mine", "images/segmentation", bars(site.data / "bars"), ["bar"])
    site.api.wait(job.id)
    assert [image.n for image in site.api.label_images(job.id)] == [*range(24)]
    train = [image.n for image in site.api.label_images(job.id, split="train")]
    assert len(train) == site.api.labels(job.id).splits["train"]
    mask = io.BytesIO()
    Image.new("L", (16, 16), 1).save(mask, "PNG")
    site.api.save_label(job.id, 3, 0, mask=mask.getvalue())
    (labeled,) = site.api.label_images(job.id, state="labeled")
    assert (labeled.n, site.api.labels(job.id).images_of_classes["1"]) == (3, 1)


def test_proposals_are_awaited() -> None:
    finished = {"state": "done", "run": "first", "epoch": 3.0, "images": 24, "tasks": []}
    task = {"name": "propose", "title": "Proposals", "state": "running"}
    failure = {"message": "It failed.", "hint": "", "line": None}
    answers = [
        *([{**finished, "state": "running", "tasks": [task]}] * 2),
        finished,
        {**finished, "state": "running", "tasks": [task]},
        {**finished, "state": "failed", "error": failure},
    ]

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        return Answer(200, {}, io.BytesIO(json.dumps(answers.pop(0)).encode()))

    server = Client(transport=send, sleep=lambda seconds: None)
    assert server.propose("20200101-000000-abcdef", "20200101-000000-abcde0").images == 24
    with pytest.raises(JobFailed, match="It failed"):
        server.propose("20200101-000000-abcdef", "20200101-000000-abcde0")


def test_a_failed_job_raises_its_error(site: Site) -> None:
    created = site.dataset(folder_train=str(bars(site.data / "few", each=1)), folder_train_min_per_class=1)
    with pytest.raises(JobFailed, match=r"ended with the status Error: \S"):
        site.api.wait(created)


def test_an_invalid_form_names_its_fields(site: Site) -> None:
    with pytest.raises(InvalidFields) as invalid:
        site.api.create_dataset("images/classification", "", folder_train="/nowhere", resize_width=0)
    assert {"dataset_name", "folder_train", "resize_width"} <= invalid.value.fields.keys()
    assert invalid.value.message and invalid.value.http_status == 400


def test_errors_are_those_of_the_server(site: Site) -> None:
    dataset = site.dataset()
    with pytest.raises(NotFound):
        site.api.model("20200101-000000-abcdef")
    with pytest.raises(BadRequest) as unfit:
        site.api.json("POST", f"/datasets/{dataset}/versions.json")
    assert "no records yet" in unfit.value.message
    site.api.wait(dataset)
    with pytest.raises(NotAllowed, match="is not running"):
        site.api.abort(dataset)
    model = site.finished_model(dataset)
    with pytest.raises(NotReady):
        site.api.json("POST", f"/models/{model}/evaluation/stop.json")


def test_metrics_are_columns(site: Site) -> None:
    model = site.finished_model(site.dataset(), rows=20)
    curves = site.api.metrics(model)
    assert curves.train.step == list(range(1, 21))
    assert curves.train.values["loss"][1] == 0.5 and curves.val.step == []


def test_an_archive_is_uploaded_and_unpacked(site: Site, tmp_path: Path) -> None:
    source = bars(tmp_path / "bars", each=2)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(source.rglob("*.png")):
            archive.write(path, path.relative_to(source))
    (tmp_path / "bars.zip").write_bytes(packed.getvalue())
    sent: list[int] = []
    upload = site.api.upload(tmp_path / "bars.zip", sent.append)
    assert sent == [len(packed.getvalue())] and upload.files == 6
    assert upload.folder is not None and sorted(path.name for path in Path(upload.folder).iterdir()) == [
        "left",
        "middle",
        "right",
    ]


def test_files_are_downloaded(site: Site, tmp_path: Path) -> None:
    model = site.finished_model(site.dataset())
    saved = site.api.download(f"/models/{model}/download.zip", tmp_path / "model.zip")
    with zipfile.ZipFile(saved) as archive:
        assert "network.py" in archive.namelist()


@pytest.mark.parametrize("path", ["/cut/a", "/chunk"])
def test_a_download_that_ends_early_keeps_the_file(tmp_path: Path, path: str) -> None:
    target = tmp_path / "model.zip"
    target.write_bytes(b"good")
    with odd_web_server.running(tmp_path) as address:
        with pytest.raises(Unavailable):
            Client(address).download(path, target)
        assert [*tmp_path.iterdir()] == [target] and target.read_bytes() == b"good"
        with pytest.raises(Unavailable):
            Client(address).json("GET", path)
        with pytest.raises(DigitsError, match="404"):
            Client(address).download("/nothing", target)
    assert target.read_bytes() == b"good"


def test_a_response_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(b"<html>\xff")
    with odd_web_server.running(tmp_path) as address, pytest.raises(Unavailable, match="is not JSON"):
        Client(address).json("GET", "/files/page.html")


def test_the_token_is_not_sent_to_another_server(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")
    with odd_web_server.running(tmp_path) as address, odd_web_server.running(tmp_path) as other:
        client = Client(address, token="secret")
        assert client.json("GET", f"/{odd_web_server.redirect_to('/files/a.json')}") == 1
        with pytest.raises(Unavailable, match="redirects to another address"):
            client.json("GET", f"/{odd_web_server.redirect_to(f'{other}/files/a.json')}")
        assert odd_web_server.log_of(other) == []


def test_a_silent_server_does_not_keep_the_client_waiting(tmp_path: Path) -> None:
    with odd_web_server.running(tmp_path) as address, pytest.raises(Unavailable, match="timed out"):
        Client(address, timeout=0.1).json("GET", "/silent/")


def test_all_urls_of_a_server_with_a_prefix_are_understood(settings: Settings, tmp_path: Path) -> None:
    settings.jobs_dir.mkdir(mode=0o700)
    write_jobs(settings.jobs_dir, datasets=150, models=1)
    site = open_site(dataclasses.replace(settings, url_prefix="/digits"))
    server = Server(site.app, ("127.0.0.1", 0))
    server.start()
    try:
        bars(tmp_path / "bars", each=2)
        in_thread(use_prefix, f"http://127.0.0.1:{server.port}/digits", tmp_path)
    finally:
        server.stop()
        site.close()


def use_prefix(address: str, folder: Path) -> None:
    client = Client(address)
    assert len({row.id for row in client.datasets()}) == 150
    (model,) = client.models()
    for path in (f"/models/{model.id}/download.zip", f"/digits/models/{model.id}/download.zip"):
        with zipfile.ZipFile(client.download(path, folder / "model.zip")) as archive:
            assert "network.py" in archive.namelist()
        assert client.json("GET", path.replace("/download.zip", ".json"))["id"] == model.id
    with zipfile.ZipFile(folder / "bars.zip", "w") as archive:
        for path in (folder / "bars").rglob("*.png"):
            archive.write(path, path.relative_to(folder / "bars"))
    assert client.upload(folder / "bars.zip").files == 6
    client.delete(model.id)
    with pytest.raises(NotFound):
        client.model(model.id)


def exported(epoch: int, format_: str = "onnx") -> dict[str, Any]:
    snapshot = f"snapshot_{epoch}.ckpt"
    texts = "dataset_id content_hash weights_hash file sha256 source runtime machine url".split()
    numbers = "step bytes difference agreement images batch milliseconds seconds".split()
    return {
        **dict.fromkeys(texts, f"epoch-{epoch}"),
        **dict.fromkeys(numbers, 1),
        "format": format_,
        "snapshot": snapshot,
        "epoch": epoch,
        "any_batch": True,
        "input": {},
        "outputs": {},
    }


@pytest.mark.parametrize("error", [None, {"message": "It failed.", "hint": "", "line": None}])
def test_an_export_is_that_of_the_requested_snapshot(error: dict[str, Any] | None) -> None:
    """Others of the same format, which are newer or older, are not returned."""
    others = [exported(10), exported(5, "keras"), exported(1)]
    made = [] if error else [exported(5)]
    answers = [
        {"state": "running", "exports": others, "formats": [], "snapshot": "snapshot_5.ckpt"},
        {"state": "running", "exports": others, "formats": []},
        {"state": "failed" if error else "done", "exports": [*others, *made], "formats": [], "error": error},
    ]

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        return Answer(200, {}, io.BytesIO(json.dumps(answers.pop(0)).encode()))

    client = Client(transport=send, sleep=lambda seconds: None)
    if error:
        with pytest.raises(JobFailed, match="It failed"):
            client.export("20200101-000000-abcdef", "onnx", snapshot_epoch=5)
    else:
        assert client.export("20200101-000000-abcdef", "onnx", snapshot_epoch=5).epoch == 5


def test_waiting_for_an_export_ends_after_a_timeout() -> None:
    body = {"state": "running", "exports": [], "formats": [], "snapshot": "snapshot_5.ckpt"}

    def send(method: str, path: str, headers: Mapping[str, str], sent: bytes | None) -> Answer:
        return Answer(200, {}, io.BytesIO(json.dumps(body).encode()))

    with pytest.raises(TimeoutError):
        Client(transport=send, sleep=time.sleep).export("20200101-000000-abcdef", timeout=0)


def test_an_address_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not respond") as silent:
        Client("http://127.0.0.1:9", sleep=gevent.sleep).status("20200101-000000-abcdef")
    assert silent.value.hint
    with pytest.raises(ValueError, match="http"):
        Client("file:///etc")


@pytest.mark.tensorflow
def test_a_script_trains_and_downloads_a_model_over_http(site: Site, tmp_path: Path) -> None:
    """The script runs in another thread, because the server needs the event loop of this one."""
    bars(site.data / "bars")
    server = Server(site.app, ("127.0.0.1", 0))
    server.start()
    try:
        in_thread(train_and_download, f"http://127.0.0.1:{server.port}", site.data / "bars", tmp_path)
    finally:
        server.stop()


def train_and_download(address: str, images: Path, folder: Path) -> None:
    client = Client(address)
    fields = {"folder_train": images, "resize_width": 16, "resize_height": 16, "seed": 1}
    dataset = client.create_dataset("images/classification", "bars", **fields).id
    client.wait(dataset)
    settings = {"train_epochs": 4, "batch_size": 6, "learning_rate": 0.02, "random_seed": 1}
    model = client.create_model("linear", dataset, method="custom", custom_network=LINEAR, **settings).id
    progress: list[float] = []
    client.wait(model, lambda status: progress.append(status.progress))
    assert progress == sorted(progress) and progress[-1] == 100
    losses = client.metrics(model).val.values["loss"]
    assert len(losses) == 5 and losses[-1] < losses[0]
    for label in ("left", "middle", "right"):
        image = images / label / "00.png"
        for sent in (image, image.read_bytes()):
            (best, percent), *_ = client.classify(model, sent).predictions
            assert best == label and 50 < percent <= 100
    with zipfile.ZipFile(client.download(f"/models/{model}/download.zip", folder / "model.zip")) as archive:
        assert archive.read("network.py").decode() == LINEAR
        assert "snapshot_4.ckpt.index" in archive.namelist()
