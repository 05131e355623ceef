"""Kills of the server at random moments while it deletes, unpacks, imports and exports: the next one always starts.

``DIGITS_FILE_KILLS`` sets the number, and ``DIGITS_DESCRIPTORS`` how many files a server may open; both tests print a
summary.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import time
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from digits.core import snapshot_list
from digits.core.files import remove_tree
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.snapshot_list import Snapshot
from digits.core.status import Status
from digits.data.models import export as model_export
from digits.data.models import predictions
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import JOB_TYPES, DatasetJob
from digits.runtime.store import Store
from tests.deep_folder import make_deep
from tests.real_server import RealServer, assert_all_end, processes_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

KILLS = int(os.environ.get("DIGITS_FILE_KILLS", "2"))
SEED = int(os.environ.get("DIGITS_SEED", "1"))
DESCRIPTORS = int(os.environ.get("DIGITS_DESCRIPTORS", "256"))
# More than can be open at once.
FOLDERS = DESCRIPTORS + 50
TUS = {"Tus-Resumable": "1.0.0"}

# Sends the requests of an operation.
Operation = Callable[[RealServer], object]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "data").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, limits[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for process in processes_of(tmp_path):
        process.kill()
    remove_tree(tmp_path / "jobs")  # pytest could not


@pytest.fixture(scope="module")
def archive() -> bytes:
    """A zip archive of many folders, with an image in each."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for number in range(FOLDERS):
            packed.writestr(f"{number}/picture.png", b"picture")
    return file.getvalue()


class Files:
    """Prepares operations on the files of a server that is not running."""

    def __init__(self, folder: Path, archive: bytes = b"") -> None:
        self.jobs = folder / "jobs"
        self.archive = archive
        # The addresses of uploads of which all data was sent.
        self.sent: list[str] = []
        self.dataset = self.add(DatasetJob, recipe=CreateClassification(train=FolderSplit(folder="/data")))

    def deletes_an_upload(self) -> Operation:
        upload = self.jobs / ".server" / "archives" / os.urandom(16).hex()
        make_wide(upload / "files")
        record = {"name": "files", "length": 1, "state": "ready", "content": "files", "at": time.time()}
        (upload / "upload.json").write_text(json.dumps(record))
        return lambda server: send(server, "DELETE", f"/uploads/{upload.name}")

    def deletes_a_job(self) -> Operation:
        job = self.add(DatasetJob, recipe=CreateClassification(train=FolderSplit(folder="/data")))
        make_deep(job.folder / "deep")
        make_wide(job.folder / "wide")
        return lambda server: send(server, "DELETE", f"/jobs/{job.id}")

    def unpacks_an_upload(self) -> Operation:
        def upload(server: RealServer) -> None:
            length = {"Upload-Length": str(len(self.archive))}
            address = send(server, "POST", "/uploads", headers={**TUS, **length})["Location"]
            chunk = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
            self.sent.append(address)
            send(server, "PATCH", address, self.archive, {**TUS, **chunk})

        return upload

    def unpacks_images(self) -> Operation:
        recipe = Train(dataset=str(self.dataset.folder), epochs=1)
        model = self.add(ModelJob, recipe=recipe, dataset_id=self.dataset.id)
        for suffix in snapshot_list.SUFFIXES:
            (model.folder / f"snapshot_1.ckpt{suffix}").touch()
        snapshot_list.append(model.folder, Snapshot(1.0, "snapshot_1.ckpt"), "")
        return lambda server: self._send_archive(
            server, f"/models/{model.id}/predictions.json", "image_archive"
        )

    def unpacks_a_model(self) -> Operation:
        return lambda server: self._send_archive(server, "/pretrained_models/upload_archive", "archive")

    def _send_archive(self, server: RealServer, path: str, field: str) -> None:
        head = f'--end\r\nContent-Disposition: form-data; name="{field}"; filename="files.zip"\r\n\r\n'
        form = head.encode() + self.archive + b"\r\n--end--\r\n"
        send(server, "POST", path, form, {"Content-Type": "multipart/form-data; boundary=end"})

    def add(self, type_: type[Any], **fields: Any) -> Any:
        """Add a finished job."""
        store = Store(self.jobs, JOB_TYPES)
        folder = store.new_folder()
        job = type_.create(folder, name="job", **fields)
        for status in (Status.WAIT, Status.RUN, Status.DONE):
            job.tasks[0].move(status)
        job.update_status()
        store.add(job)
        store.close()
        return job


class Kills:
    """Kills a server during ``operations``, and checks that the next one starts and leaves nothing behind."""

    def __init__(
        self, folder: Path, operations: Sequence[Callable[[], Operation]], longest_pause: float
    ) -> None:
        self.folder, self.operations, self.longest_pause = folder, operations, longest_pause
        self.chance = random.Random(SEED)
        self.kills: Counter[str] = Counter()

    def run(self, count: int) -> RealServer:
        """Kill the server ``count`` times; return the last one."""
        for prepare in islice(cycle(self.operations), count):
            operation = prepare()
            server = self.start()
            with ThreadPoolExecutor(1) as pool:
                request = pool.submit(operation, server)
                time.sleep(self.chance.uniform(0, self.chance.choice([0.1, self.longest_pause])))
                server.kill()
                # The connection is lost, unless the answer was faster.
                with contextlib.suppress(OSError):
                    request.result()
            self.kills[prepare.__name__] += 1
        return self.start()

    def start(self) -> RealServer:
        server = RealServer(self.folder, "--no-standby")
        assert server.ask("/health")
        assert {job["name"] for job in server.ask("/index.json")["datasets"]} == {"job"}
        return server

    def check_leftovers(self, server: RealServer) -> None:
        while left := self.leftovers():  # as many as the killed servers could not delete
            server.wait(lambda left=left: self.leftovers() != left)
        server.stop()
        assert_all_end(processes_of(self.folder))
        assert "Traceback" not in (self.folder / "digits.log").read_text()
        print(f"{self.kills.total()} kills: {dict(self.kills)}")

    def leftovers(self) -> list[Path]:
        jobs = self.folder / "jobs"
        unborn = (path for path in jobs.iterdir() if path.name[0] != "." and not (path / "job.json").exists())
        patterns = (
            ".deleted-*",
            ".server/uploads/*",
            ".server/previews/*",
            f"*/{predictions.FOLDER}/*/archive",
        )
        return [*unborn, *(path for pattern in patterns for path in jobs.glob(pattern))]


def make_wide(folder: Path) -> None:
    for number in range(FOLDERS):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "picture.png").touch()


def send(
    server: RealServer, verb: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> Any:
    """Return the headers of the response."""
    fields = {"Accept": "application/json", **(headers or {})}
    request = urllib.request.Request(server.address + path, body or None, fields, method=verb)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.headers


def test_a_server_starts_after_every_kill_of_a_deletion_or_unpacking(folder: Path, archive: bytes) -> None:
    files = Files(folder, archive)
    operations = (
        files.deletes_an_upload,
        files.deletes_a_job,
        files.unpacks_an_upload,
        files.unpacks_images,
        files.unpacks_a_model,
    )
    kills = Kills(folder, operations, longest_pause=1.0)
    server = kills.run(KILLS)
    for address in files.sent:
        state = server.ask(address)
        if state["offset"] == state["length"]:  # otherwise, the client would resume it
            server.wait(lambda address=address: server.ask(address)["state"] == "ready")
    kills.check_leftovers(server)


def save_keras(path: str) -> None:
    import keras

    layers = [
        keras.layers.Input((16, 16, 3)),
        keras.layers.Flatten(),
        keras.layers.Dense(3, activation="softmax"),
    ]
    keras.Sequential(layers).save(path)


# test_restart.py kills a server that checks networks, whose folders are like those of imports.
@pytest.mark.nightly
def test_a_server_starts_after_every_kill_of_an_import_or_export(
    folder: Path, in_child: Callable[..., Any]
) -> None:
    files = Files(folder)
    source = folder / "data" / "model.keras"
    in_child(save_keras, str(source))

    def imports(server: RealServer) -> str:
        fields = {"job_name": "job", "source": source, "labels": "a\nb\nc"}
        return str(server.ask("/pretrained_models/new.json", **fields)["id"])

    first = RealServer(folder, "--no-standby")
    model = imports(first)
    first.stop()

    def imports_a_model() -> Operation:
        return imports

    def exports_a_model() -> Operation:
        shutil.rmtree(files.jobs / model / model_export.FOLDER, ignore_errors=True)
        return lambda server: server.ask(f"/models/{model}/export.json", format="savedmodel")

    kills = Kills(folder, (imports_a_model, exports_a_model), longest_pause=8.0)
    server = kills.run(max(1, KILLS // 4))
    server.ask(f"/models/{model}/export.json", format="savedmodel")
    server.wait(lambda: server.ask(f"/models/{model}/export.json")["exports"])
    kills.check_leftovers(server)
