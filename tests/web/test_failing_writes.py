"""Make each write of the server fail in turn, and check the error and the state in memory and on disk."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gevent
import pytest

from digits.core.errors import explain
from digits.core.job import Job
from digits.core.settings import Settings
from digits.core.status import Status
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.store import Store
from digits.web.security.secrets import read_or_make_secret
from digits.web.security.sessions import Session, Sessions
from tests.failing_disk import FailingDisk, failing_disk, few_descriptors, fill, small_disk
from tests.site import Site, open_idle_site, site_settings

pytestmark = pytest.mark.integration

SAID = {
    errno.ENOSPC: (507, "The disk is full."),
    errno.EROFS: (503, "The disk is read-only."),
    errno.EIO: (503, "The disk failed: input/output error."),
    errno.EMFILE: (503, "The server has too many open files."),
}
JSON = {"Accept": "application/json"}
NETWORK = """class UserModel(Tower):
    @model_property
    def inference(self):
        return self.x

    @model_property
    def loss(self):
        return 0
"""

Operation = Callable[[], Any]


@pytest.fixture(scope="module")
def site_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = open_idle_site(site_settings(tmp_path_factory.mktemp("site")))
    yield site
    site.services.stop()


@pytest.fixture
def idle(site_of_all: Site) -> Iterator[Site]:
    """A site that never starts jobs."""
    yield site_of_all
    store = site_of_all.services.store
    for job in store.all(Job):
        store.remove(job)


def post(site: Site, path: str, **fields: Any) -> Operation:
    return lambda: site.client.post(path, data=fields, headers=JSON)


def a_dataset(site: Site) -> str:
    return str(creates_a_dataset(site)().get_json()["id"])


def ended(site: Site, job_id: str) -> Job:
    job = site.services.store.get(job_id, Job)
    job.tasks[0].move(Status.ABORT)
    job.update_status()
    site.services.store.save(job)
    return job


def new_model(site: Site, **fields: Any) -> Operation:
    wanted = {
        "model_name": "net",
        "dataset": a_dataset(site),
        "method": "custom",
        "custom_network": NETWORK,
        "learning_rate": "0.1",
    }
    return post(site, "/models/images/classification.json", **{**wanted, **fields})


def a_model(site: Site) -> Job:
    job = ended(site, new_model(site)().get_json()["id"])
    for ending in ("index", "data-00000-of-00001"):
        (job.folder / f"snapshot_1.ckpt.{ending}").touch()
    return job


def creates_a_dataset(site: Site) -> Operation:
    folder = str(site.data / "bars")
    return post(
        site, "/datasets/images/classification.json", dataset_name="d", folder_train=folder, method="folder"
    )


def creates_a_model(site: Site) -> Operation:
    return new_model(site)


def creates_a_sweep(site: Site) -> Operation:
    return new_model(site, learning_rate="[0.1, 0.2]")


def tries_a_sample(site: Site) -> Operation:
    return post(site, "/try/mnist")


def renames(site: Site) -> Operation:
    job_id = a_dataset(site)
    fields = {"job_name": "other", "job_notes": "n", "group_name": "g"}
    return lambda: site.client.put(f"/datasets/{job_id}", data=fields, headers=JSON)


def deletes(site: Site) -> Operation:
    job = ended(site, a_dataset(site))
    (job.folder / "create").mkdir()
    (job.folder / "create" / "output.log").touch()
    return lambda: site.client.delete(f"/datasets/{job.id}", headers=JSON)


def deletes_many(site: Site) -> Operation:
    ids = [ended(site, a_dataset(site)).id for _ in range(2)]
    return lambda: site.client.delete("/jobs", data={"job_ids[]": ids}, headers=JSON)


def resumes(site: Site) -> Operation:
    return post(site, f"/models/{a_model(site).id}/resume")


def visualizes(site: Site) -> Operation:
    return post(site, "/models/visualize-network", dataset=with_a_manifest(site).id, custom_network=NETWORK)


def exports(site: Site) -> Operation:
    job = a_model(site)
    dataset = site.services.store.get(job.needs()[0], Job)
    for status in (Status.WAIT, Status.RUN, Status.DONE):
        dataset.tasks[0].move(status)
    dataset.update_status()
    site.services.store.save(dataset)
    return lambda: site.get(f"/models/{job.id}/savedmodel.zip", headers=JSON)


def classifies_an_upload(site: Site) -> Operation:
    job = a_model(site)
    picture = (site.data / "bars" / "left" / "00.png").read_bytes()
    path = "/models/images/classification/classify_one.json"
    return lambda: site.client.post(
        path, data={"job_id": job.id, "image_file": (io.BytesIO(picture), "p.png")}, headers=JSON
    )


def creates_an_upload(site: Site) -> Operation:
    return lambda: site.client.post(
        "/uploads", headers={**JSON, "Tus-Resumable": "1.0.0", "Upload-Length": "5"}
    )


def imports_a_model(site: Site) -> Operation:
    path = "/pretrained_models/upload_archive"
    return lambda: site.client.post(path, data={"archive": (io.BytesIO(b"archive"), "m.zip")}, headers=JSON)


def with_a_manifest(site: Site) -> Job:
    job = site.services.store.get(a_dataset(site), Job)
    manifest = {
        "width": 16,
        "height": 16,
        "channels": 3,
        "encoding": "png",
        "resize_mode": "squash",
        "kind": "image-classification",
        "target": {"feature": "image/class/label", "dtype": "int64", "names": ["a"], "classes": True},
        "groups": ["a"],
        "splits": {},
        "mean_pixel": [0.0, 0.0, 0.0],
    }
    (job.folder / "dataset.json").write_text(json.dumps(manifest))
    return job


def check_memory_matches_disk(site: Site) -> None:
    store = site.services.store
    assert store.maintain()
    assert store.problem is None
    with gevent.Timeout(30):
        while not store.maintain() or has_leftovers(store):
            gevent.sleep(0.001)  # they are deleted in the background
    on_disk = {folder.name: json.loads((folder / "job.json").read_text()) for folder in folders(store.folder)}
    assert on_disk == {job.id: json.loads(json.dumps(job.as_json())) for job in store.all(Job)}


def folders(jobs: Path) -> list[Path]:
    return [folder for folder in jobs.iterdir() if folder.name not in (".lock", ".server")]


def has_leftovers(store: Store) -> bool:
    patterns = ("*/.*.tmp", ".server/uploads/*", ".server/previews/*")
    return any(store.find(folder.name) is None for folder in folders(store.folder)) or any(
        any(store.folder.glob(pattern)) for pattern in patterns
    )


OPERATIONS = [
    creates_a_dataset, creates_a_model, creates_a_sweep, tries_a_sample, renames, deletes, deletes_many, resumes,
    visualizes, exports, classifies_an_upload,
]  # fmt: skip


def failing() -> Iterator[Any]:
    """All operations with all errors. A full disk fails other calls than too many open files."""
    for prepare, number in itertools.product(OPERATIONS, SAID):
        is_one_of_each = number in (errno.ENOSPC, errno.EMFILE) or prepare is creates_a_model
        marks = () if is_one_of_each else pytest.mark.nightly
        yield pytest.param(prepare, number, marks=marks, id=f"{prepare.__name__}-{errno.errorcode[number]}")


@pytest.mark.parametrize(("prepare", "number"), list(failing()))
def test_a_write_that_fails_is_reported_and_changes_nothing(
    idle: Site, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Site], Operation], number: int
) -> None:
    monkeypatch.setattr("digits.runtime.store.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("digits.runtime.trash.RETRY_SECONDS", 0.0)
    disk: FailingDisk

    def start(self: LocalExecutor, folder: Path, devices: Any, **arguments: Any) -> Any:
        raise OSError(number, os.strerror(number))  # no process may start

    monkeypatch.setattr(LocalExecutor, "start", start)
    first, failures = 0, 0
    while True:
        first += 1
        operation = prepare(idle)
        with failing_disk(idle.services.store.folder, number, first) as disk:
            answer = operation()
        if answer.status_code != 200:
            failures += 1
            status, words = SAID[number]
            assert answer.status_code == status, answer.text
            assert words in answer.get_json()["error"]["message"]
        check_memory_matches_disk(idle)
        if not disk.has_failed:
            break
    assert failures or number == errno.EMFILE  # A delete opens no file before it succeeds.


@pytest.mark.parametrize("number", SAID, ids=errno.errorcode.get)
def test_a_page_reports_disk_errors(idle: Site, number: int) -> None:
    with failing_disk(idle.services.store.folder, number):
        answer = idle.client.post("/try/mnist", headers={"Accept": "text/html"})
    status, words = SAID[number]
    assert (answer.status_code, answer.mimetype) == (status, "text/html")
    assert words in answer.text


def test_a_missing_jobs_folder_is_reported_on_pages_and_to_monitors(idle: Site, tmp_path: Path) -> None:
    store = idle.services.store
    a_dataset(idle)
    healthy = idle.get("/health")
    assert (healthy.status_code, list(healthy.get_json())) == (200, ["version"])
    check_memory_matches_disk(idle)
    away = store.folder.rename(tmp_path / "away")
    try:
        assert not store.maintain()
        sick, page = idle.get("/health"), idle.get("/")
        refused = [write(idle)() for write in (creates_a_dataset, creates_an_upload, imports_a_model)]
        assert not store.folder.exists()
    finally:
        away.rename(store.folder)
    assert [answer.status_code for answer in (sick, page, *refused)] == [503, 200, 503, 503, 503]
    messages = [answer.get_json()["error"]["message"] for answer in refused]
    for text in (sick.get_json()["problem"], page.text, *messages):
        assert "The jobs folder was removed or replaced" in text
    check_memory_matches_disk(idle)
    assert idle.get("/health").status_code == 200


def test_a_disk_filled_by_other_programs_is_reported_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, full = settings.jobs_dir, "The disk is full."
    with small_disk(jobs, "size=512k") as is_small:
        site = open_idle_site(settings)
        live = site.services.live.socketio.test_client(
            site.app, namespace="/jobs", flask_test_client=site.client
        )

        def published() -> list[Any]:
            site.services.runner.tick()
            received = live.get_received("/jobs")
            return [message["args"][0]["problem"] for message in received if message["name"] == "storage"]

        def joined() -> Any:
            return live.emit("join", {"room": "job_management"}, namespace="/jobs", callback=True)

        try:
            assert site.get("/health").status_code == 200 and published() == []
            if is_small:
                fill(jobs / "filler")
            else:
                state = list(os.statvfs(jobs))
                state[3:5] = 0, 0  # free blocks
                monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(state))
            sick = site.get("/health")
            assert (sick.status_code, sick.get_json()["problem"]) == (507, full)
            ready = site.get("/ready")
            assert (ready.status_code, ready.get_json()["problem"]) == (200, full)
            assert full in site.get("/").text
            ((problem,), again) = published(), published()
            assert problem["message"] == full and "Free up space" in problem["hint"] and again == []
            assert joined()["storage_problem"] == problem
            (jobs / "filler").unlink(missing_ok=True)
            monkeypatch.undo()
            assert site.get("/health").status_code == 200
            assert published() == [None] and joined()["storage_problem"] is None
        finally:
            live.disconnect("/jobs")
            site.services.stop()


def test_monitors_see_that_pages_cannot_open_files(idle: Site) -> None:
    with few_descriptors(8):
        sick, unready = idle.get("/health"), idle.get("/ready")
    assert unready.status_code == 503
    assert (sick.status_code, sick.get_json()["problem"]) == (503, "The server has too many open files.")
    assert idle.get("/health").status_code == 200


def test_a_logout_that_cannot_be_saved_still_ends_the_session(tmp_path: Path) -> None:
    ended_file = tmp_path / "ended.json"
    sessions = Sessions("k" * 32, ended_file)
    cookies = [sessions.start("ada"), sessions.start("grace")]
    read = [sessions.read(cookie) for cookie in cookies]
    with failing_disk(tmp_path, errno.ENOSPC):
        sessions.end(cast(Session, read[0]))
    assert sessions.read(cookies[0]) is None
    sessions.end(cast(Session, read[1]))
    again = Sessions("k" * 32, ended_file)
    assert [again.read(cookie) for cookie in cookies] == [None, None]


def test_a_secret_that_could_not_be_written_is_created_at_the_next_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "state", "size=4k") as is_small:
        key = tmp_path / "state" / "key"
        if is_small:
            fill(tmp_path / "state" / "filler")
            with pytest.raises(OSError, match="No space"):
                read_or_make_secret(key)
            (tmp_path / "state" / "filler").unlink()
        else:
            with failing_disk(tmp_path, errno.ENOSPC), pytest.raises(OSError, match="No space"):
                read_or_make_secret(key)
        secret = read_or_make_secret(key)
        assert secret == read_or_make_secret(key) != ""


def test_other_os_errors_are_server_errors() -> None:
    assert explain(OSError(errno.ECONNRESET, "reset")) is None
    assert explain(OSError("no number")) is None


def test_the_server_survives_a_full_disk(settings: Settings) -> None:
    with small_disk(settings.jobs_dir, "size=512k") as is_small:
        site = open_idle_site(settings)
        try:
            renamed = renames(site)
            if is_small:
                fill(settings.jobs_dir / "filler")
                answers = [creates_a_dataset(site)(), renamed()]
                (settings.jobs_dir / "filler").unlink()
            else:
                with failing_disk(settings.jobs_dir, errno.ENOSPC):
                    answers = [creates_a_dataset(site)(), renamed()]
            assert [answer.status_code for answer in answers] == [507, 507]
            check_memory_matches_disk(site)
            assert [creates_a_dataset(site)().status_code, renamed().status_code] == [200, 200]
            check_memory_matches_disk(site)
        finally:
            site.services.stop()


def test_exhausted_inodes_and_a_read_only_disk_are_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=1m,nr_inodes=4") as is_small:
        if is_small:
            with pytest.raises(OSError, match="No space") as error:
                for name in range(9):
                    (tmp_path / "disk" / str(name)).touch()
            known = explain(error.value)
            assert known is not None and "no free inodes" in known.message
            command = ["mount", "-o", "remount,ro", str(tmp_path / "disk")]
            subprocess.run(command, check=True)
            with pytest.raises(OSError, match="Read-only") as error:
                (tmp_path / "disk" / "0").unlink()
            number = error.value.errno
        else:
            number = errno.EROFS
    known = explain(OSError(number, os.strerror(number)))
    assert known is not None and known.message == "The disk is read-only."
