"""Symlinks, pipes and huge files in place of a job's files: the server neither follows nor waits for them."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from digits.core.files import UnreadableFile, exists, is_folder, make_folder, open_plain, read_bytes
from digits.core.job import Job
from digits.core.status import Status
from digits.data.manifest import SplitRecords
from digits.data.records.records import Record, ShardWriter, encode_example
from digits.data.targets.class_index import ClassIndex
from tests.datasets import manifest_of
from tests.site import Site, open_idle_site, site_settings

pytestmark = pytest.mark.integration

SECRET = "the secret of another user"
JSON = {"Accept": "application/json"}
SPARSE_BYTES = 600 * 1024 * 1024


def a_link_to_a_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret")


def a_link_within(path: Path, outside: Path) -> None:
    other = path.with_name("other")
    other.write_text(SECRET)
    path.symlink_to(other)


def a_link_that_dangles(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def a_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, outside: Path) -> None:
    path.mkdir()


def a_sparse_file(path: Path, outside: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(SPARSE_BYTES)


PLACED = [a_link_to_a_file, a_link_within, a_link_that_dangles, a_fifo, a_folder]
Place = Callable[[Path, Path], None]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = open_idle_site(site_settings(tmp_path_factory.mktemp("site")))
    yield site
    site.services.stop()


@pytest.fixture
def dataset(site: Site) -> Job:
    """A finished dataset of one record."""
    job = site.services.store.get(site.dataset(folder_train=str(site.data / "bars")), Job)
    record = Record(b"\xff\xd8", "jpeg", 1, 1, 3, {"image/class/label": [0]})
    with ShardWriter(job.folder / "train-00000-of-00001.tfrecord") as writer:
        writer.add(encode_example(record), 0)
    split = SplitRecords(count=1, counts=[1], bytes=writer.size_bytes, shards=[writer.path.name])
    about = {"encoding": "jpg", "groups": ["a"], "splits": {"train": split}}
    manifest_of(ClassIndex.of(["a"]), channels=3, **about).save(job.folder)
    return at_end(site, job, Status.DONE)


@pytest.fixture
def model(site: Site, dataset: Job) -> Job:
    """A model with one snapshot."""
    network = "class UserModel(Tower):\n    inference = loss = property(lambda self: None)\n"
    answer = site.post(
        "/models/images/classification.json",
        model_name="net",
        dataset=dataset.id,
        method="custom",
        custom_network=network,
        learning_rate="0.1",
    )
    job = site.services.store.get(answer.get_json()["id"], Job)
    for ending in ("index", "data-00000-of-00001"):
        (job.folder / f"snapshot_1.ckpt.{ending}").write_text("weights")
    (job.folder / "train").mkdir()
    return at_end(site, job, Status.ABORT)


def at_end(site: Site, job: Job, status: Status) -> Job:
    if status is Status.DONE:
        job.tasks[0].move(Status.RUN)
    job.tasks[0].move(status)
    job.update_status()
    site.services.store.save(job)
    return job


def put(place: Place, path: Path, outside: Path) -> None:
    path.unlink(missing_ok=True)
    place(path, outside)


@pytest.mark.parametrize("place", [*PLACED, a_sparse_file])
def test_a_network_that_is_not_a_regular_file_is_not_shown(
    site: Site, model: Job, outside: Path, place: Place
) -> None:
    put(place, model.folder / "network.py", outside)
    page = site.get(f"/models/{model.id}")
    assert page.status_code == 200
    assert "The network cannot be shown: network.py" in page.text
    assert site.get("/models/images/classification/new").status_code == 200
    asked = site.post("/models/customize", network=model.id)
    assert asked.status_code == 404
    built_upon = site.post(
        "/models/images/classification.json",
        model_name="n",
        dataset=getattr(model, "dataset_id", ""),
        method="previous",
        previous_networks=model.id,
        learning_rate="0.1",
    )
    assert built_upon.status_code == 400
    assert "network.py" in built_upon.get_json()["errors"]["previous_networks"][0]
    assert all(SECRET not in answer.text for answer in (page, asked, built_upon))


@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize("name", ["network.py", "snapshot_1.ckpt.data-00000-of-00001"])
def test_only_regular_files_can_be_downloaded(
    site: Site, model: Job, outside: Path, place: Place, name: str
) -> None:
    whole = site.get(f"/models/{model.id}/download.zip")
    assert set(zipfile.ZipFile(BytesIO(whole.data)).namelist()) >= {"network.py", "snapshot_1.ckpt.index"}
    put(place, model.folder / name, outside)
    answer = site.get(f"/models/{model.id}/download.tar", headers=JSON)
    assert answer.status_code == 404
    assert SECRET.encode() not in answer.data


@pytest.mark.parametrize("place", PLACED)
def test_other_files_are_not_sent_either(site: Site, model: Job, outside: Path, place: Place) -> None:
    for name in ("batch.png", "train/output.log", "train/events.jsonl", "snapshots.jsonl"):
        put(place, model.folder / name, outside)
        (model.folder / "other").unlink(missing_ok=True)
        (model.folder / "train" / "other").unlink(missing_ok=True)
    paths = [
        f"/models/{model.id}/batch.png",
        f"/files/{model.id}/batch.png",
        f"/files/{model.id}/train/output.log",
        f"/jobs/{model.id}/output",
        f"/models/{model.id}",
        f"/models/{model.id}.json",
        f"/models/{model.id}/metrics.json",
    ]
    answers = [site.get(path, headers=JSON) for path in paths]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 200, 200, 200, 200]
    assert all(SECRET not in answer.text for answer in answers)


def test_a_symlink_in_place_of_a_folder_is_not_followed(site: Site, model: Job, outside: Path) -> None:
    (model.folder / "train").rmdir()
    (model.folder / "train").symlink_to(outside)
    (outside / "output.log").write_text(SECRET)
    line = {
        "event": "measured",
        "at": 1.0,
        "stage": "train",
        "step": 1,
        "epoch": 1.0,
        "values": {"loss": 1.0},
    }
    (outside / "events.jsonl").write_text(json.dumps(line) + "\n")
    assert site.json(f"/jobs/{model.id}/output")["text"] == ""
    assert site.json(f"/models/{model.id}/metrics.json")["train"]["step"] == []
    assert site.get(f"/files/{model.id}/train/output.log").status_code == 404
    (model.folder / "tb").symlink_to(outside)
    assert site.get(f"/tensorboard/{model.id}/").status_code == 404


@pytest.mark.parametrize("place", [*PLACED, a_sparse_file])
@pytest.mark.parametrize("ending", ["tfrecord", "index"])
def test_records_that_are_not_regular_files_are_not_shown(
    site: Site, dataset: Job, outside: Path, place: Place, ending: str
) -> None:
    explored = f"/datasets/images/classification/explore?job_id={dataset.id}&db=train"
    record = f"/datasets/{dataset.id}/records/train/0"
    assert [site.get(path).status_code for path in (explored, record)] == [200, 200]
    put(place, dataset.folder / f"train-00000-of-00001.{ending}", outside)
    answers = [site.get(path, headers=JSON) for path in (explored, record, f"/datasets/{dataset.id}")]
    assert [answer.status_code for answer in answers] == [404, 404, 200]
    assert all(SECRET not in answer.text for answer in answers)


@pytest.mark.parametrize("shard", ["../other.tfrecord", "{outside}/secret", "train/../../x"])
def test_a_manifest_cannot_name_files_elsewhere(site: Site, dataset: Job, outside: Path, shard: str) -> None:
    body: dict[str, Any] = json.loads((dataset.folder / "dataset.json").read_text())
    body["splits"]["train"]["shards"] = [shard.format(outside=outside)]
    (dataset.folder / "dataset.json").write_text(json.dumps(body))
    answer = site.get(f"/datasets/{dataset.id}/records/train/0", headers=JSON)
    assert answer.status_code == 404
    assert "$.splits[...].shards[0]" in answer.get_json()["error"]["hint"]


def test_range_and_conditional_requests_are_supported(site: Site, model: Job) -> None:
    (model.folder / "notes.txt").write_text("0123456789")
    address = f"/files/{model.id}/notes.txt"
    whole = site.get(address)
    assert (whole.text, whole.content_length, whole.mimetype) == ("0123456789", 10, "text/plain")
    part = site.get(address, headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")
    again = site.get(address, headers={"If-None-Match": whole.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    head = site.client.head(address)
    head.close()
    assert head.content_length == 10


def test_only_regular_files_below_a_folder_are_opened(tmp_path: Path, outside: Path) -> None:
    job = tmp_path / "job"
    (job / "train").mkdir(parents=True)
    (job / "train" / "log").write_text("log")
    (job / "linked").symlink_to(outside)
    (tmp_path / "jobs").symlink_to(tmp_path)
    above = tmp_path / "jobs" / "job"
    assert (
        read_bytes(above / "train" / "log", below=above) == b"log"
    )  # links above the job's folder are trusted
    assert is_folder(above / "train", below=above) and not is_folder(above / "linked", below=above)
    assert not exists(job / "nothing", below=job)
    for path in (job / "linked" / "secret", job / ".." / "outside" / "secret", outside / "secret", job):
        with pytest.raises(UnreadableFile):
            open_plain(path, below=job)
    with pytest.raises(UnreadableFile):
        open_plain(job / "linked" / "secret", below=job / "linked")
    with pytest.raises(UnreadableFile, match="larger than 2 bytes"):
        read_bytes(job / "train" / "log", 2, below=job)
    with pytest.raises(NotADirectoryError):
        make_folder(job / "linked")


def test_no_file_descriptor_leaks(site: Site, model: Job, outside: Path) -> None:
    os.mkfifo(model.folder / "pipe.txt")
    (model.folder / "link").symlink_to(outside)
    before = len(os.listdir("/proc/self/fd"))
    for name in ("network.py", "pipe.txt", "link/secret", "missing", "train"):
        for _ in range(3):
            site.get(f"/files/{model.id}/{name}").close()
            site.client.head(f"/files/{model.id}/{name}").close()
    assert len(os.listdir("/proc/self/fd")) == before
