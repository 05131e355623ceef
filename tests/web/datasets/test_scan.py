"""Summaries of the source of a dataset while its form is filled in."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from digits.data.records.records import masked_checksum
from digits.kinds.forms import scanning
from digits.kinds.sources import coco
from tests.real_server import RealServer
from tests.site import Site, bars
from tests.tfrecord_files import example, write_records

pytestmark = pytest.mark.integration

FOLDER = "/datasets/images/classification/scan"


def lines(site: Site, path: str = FOLDER, **fields: Any) -> list[dict[str, Any]]:
    answer = site.post(path, **fields)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def summary(site: Site, path: str = FOLDER, **fields: Any) -> dict[str, Any]:
    *_, last = lines(site, path, **fields)
    assert last["finished"]
    return last


def test_paths_that_creation_refuses_are_refused(site: Site) -> None:
    os.mkfifo(site.data / "pipe")
    # tests/data/test_data_roots.py has all other reasons.
    for path in ("", f"{site.data}/pipe"):
        (found,) = lines(site, folder_train=path)
        assert found["refused"], path
        assert found["facts"] == found["problems"] == found["bars"] == [], path


def test_a_scan_ends_with_its_connection(site: Site) -> None:
    """The process of each ends with it, which the fixtures check."""
    folder = str(bars(site.data / "bars"))
    for _ in range(5):  # more than can run at the same time
        with site.client.post(FOLDER, data={"folder_train": folder}, buffered=False) as answer:
            assert next(answer.iter_encoded())
    assert summary(site, folder_train=folder)["facts"]


def test_an_unfinished_scan_is_killed_when_nobody_waits_for_it(tmp_path: Path) -> None:
    path = bars(tmp_path / "bars") / "train.csv"
    path.write_text("image,angle\n" + "left/00.png,1\n" * 400_000)
    fields = [("table_train", str(path))]
    before = set(psutil.Process().children())
    found = scanning.scan(scanning.Request("image-regression", fields, [str(tmp_path)]))
    assert not json.loads(next(found))["finished"]
    (process,) = set(psutil.Process().children()) - before
    found.close()
    assert not process.is_running()


def test_files_are_decoded_in_another_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes can contain gigabytes, and decoding a large file stalls all threads of a process."""
    monkeypatch.setattr(coco, "read", None)  # fails in this process
    images = bars(site.data / "bars") / "left"
    objects = [
        {"id": n, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12} for n in range(5_000)
    ]
    pictures, categories = [{"id": 1, "file_name": "00.png"}], [{"id": 1, "name": "bar"}]
    (images / "coco.json").write_text(
        json.dumps({"images": pictures, "annotations": objects, "categories": categories})
    )
    fields = {"train_image_folder": str(images), "train_label_folder": str(images / "coco.json")}
    found = summary(site, "/datasets/images/detection/scan", **fields)
    assert found["facts"][0] == "COCO annotations: 1 image with 5,000 objects of 1 class."


def test_a_source_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = bars(tmp_path / "bars") / "coco.json"
    with open(path, "wb") as file:
        file.truncate(2_000_000_000)
    fields = {"train_image_folder": str(path.parent), "train_label_folder": str(path)}
    asked = scanning.Request(
        kind="image-object-detection",
        fields=list(fields.items()),
        roots=[str(tmp_path)],
        memory_bytes=1_500_000_000,
    )
    (line,) = scanning.scan(asked)
    assert "too large to be summarized here" in json.loads(line)["refused"]


def test_the_first_images_follow_the_summary(site: Site) -> None:
    folder = bars(site.data / "bars")
    *_, contents, last = lines(site, folder_train=str(folder), resize_width=10, resize_height=8)
    assert contents["finished"] and contents["previews"] == []
    planned = ("previews", "total", "advice")
    assert last == {**contents, **{name: last[name] for name in planned}} and last["total"] == 24
    assert {item["label"] for item in last["previews"]} == {"left", "middle", "right"}
    assert {(item["width"], item["height"]) for item in last["previews"]} == {(10, 8)}


def test_the_preview_shows_an_image_of_the_source(site: Site, tmp_path: Path) -> None:
    preview = "/datasets/images/resize-example"
    size = {"resize_width": 20, "resize_height": 10, "encoding": "png"}
    folder = bars(site.data / "bars")
    own = site.post(preview, **size, example=str(folder / "left" / "00.png"))
    assert own.get_json()["image"] != site.post(preview, **size).get_json()["image"]
    (folder / "text.png").write_text("no image")
    (folder / "away.png").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe.png")
    for name in ("text.png", "away.png", "pipe.png", "missing.png", "../../x"):
        fields = {**size, "example": str(folder / name)}
        answer = site.client.post(preview, data=fields, headers={"Accept": "application/json"})
        assert answer.status_code in (400, 403), name
        assert answer.get_json()["error"]["message"]


def peak_memory(server: RealServer) -> int:
    """Return the most memory that the server's process has used, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def large_record(path: Path, size: int) -> Path:
    """Write a TFRecord file of one record of zeros, whose checksum is wrong."""
    length = size.to_bytes(8, "little")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(length + masked_checksum(length))
        file.truncate(12 + size + 4)
    return path


def large_table(path: Path, size: int) -> Path:
    """Write a small Parquet file with one text of ``size`` characters."""
    pq.write_table(pa.table({"image": ["x" * size], "angle": [1.0]}), path)
    assert path.stat().st_size < size / 10
    return path


def check_form(folder: Path, kind: str, memory_bytes: int, **fields: Path) -> scanning.Draft:
    (folder / "new").mkdir()
    request = scanning.Request(
        kind=kind,
        fields=[("dataset_name", "large"), *((name, str(path)) for name, path in fields.items())],
        roots=[str(folder)],
        memory_bytes=memory_bytes,
        new=scanning.NewJob(folder=str(folder / "new")),
    )
    return scanning.check(request)


# The next tests check and limit sources in the same process.
@pytest.mark.nightly
def test_submitted_sources_are_opened_in_another_process(tmp_path: Path) -> None:
    size = 90_000_000
    records = large_record(tmp_path / "data" / "large.tfrecord", size)
    table = large_table(tmp_path / "data" / "large.parquet", size)
    server = RealServer(tmp_path, "--no-standby")
    try:
        forms: list[tuple[str, dict[str, Any]]] = [
            ("generic", {"record_train": "", "dataset_name": "records"}),
            ("generic", {"record_train": records, "dataset_name": "records"}),
            ("regression", {"table_train": table, "dataset_name": "table"}),
        ]
        before = 0
        for kind, fields in forms:
            with contextlib.suppress(urllib.error.HTTPError):
                server.ask(f"/datasets/images/{kind}.json", **fields)
            before = before or peak_memory(server)
        assert peak_memory(server) - before < size / 3
    finally:
        server.stop()


def test_a_submitted_source_that_takes_too_much_memory_is_an_error(tmp_path: Path) -> None:
    path = large_record(tmp_path / "large.tfrecord", 200_000_000)
    assert (
        "too large to be checked" in check_form(tmp_path, "generic", 300_000_000, record_train=path).problem
    )


def test_a_submitted_table_that_takes_too_much_memory_is_an_error_of_its_field(tmp_path: Path) -> None:
    path = large_table(tmp_path / "large.parquet", 150_000_000)
    draft = check_form(tmp_path, "image-regression", 600_000_000, table_train=path)
    assert draft.errors == {
        "table_train": [
            "large.parquet, after row 0: its next rows need more memory than there is. "
            "Write the file with smaller values."
        ]
    }


def test_a_crash_while_a_form_is_checked_is_an_error_of_its_source(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records(site.data / "small.tfrecord", [example(image=b"x")])
    missing = {"upload": scanning.Upload("upload", str(site.data / "missing"))}
    check = scanning.check
    monkeypatch.setattr(scanning, "check", lambda request: check(structs.replace(request, uploads=missing)))
    answer = site.post("/datasets/images/generic.json", dataset_name="records", record_train=str(path))
    assert answer.status_code == 400
    assert answer.get_json()["errors"] == {
        "record_train": ["The source could not be checked; the log of the server has the reason."]
    }
    assert not site.json("/index.json")["datasets"]


def test_a_form_can_be_a_json_object(site: Site) -> None:
    path = large_record(site.data / "broken.tfrecord", 10)
    fields = {"dataset_name": "records", "record_train": str(path), "pct_val": 20}
    answer = site.client.post("/datasets/images/generic.json", json=fields)
    assert answer.get_json()["errors"].keys() == {"record_train"}
    assert "broken.tfrecord" in answer.get_json()["errors"]["record_train"][0]


def test_scripts_can_leave_the_size_and_the_test_split_to_the_recommendation(site: Site) -> None:
    fields = {
        "dataset_name": "bars",
        "folder_train": str(bars(site.data / "bars", each=110)),
        "recommended": 1,
    }
    created = site.post("/datasets/images/classification.json", **fields).get_json()
    assert created["warnings"] == [
        "All images have 16×16 pixels.",
        "10% of the 330 images are kept for testing: the model never sees them.",
    ]
    own = site.post("/datasets/images/classification.json", **fields, resize_width=8).get_json()
    assert created["warnings"][1:] == own["warnings"]
    for job, size in ((created, (16, 16)), (own, (8, 256))):
        assert site.wait_for_end(job["id"]) == "Done"
        tasks = site.json(f"/datasets/{job['id']}.json")["CreateDbTasks"]
        assert {(task["image_width"], task["image_height"]) for task in tasks} == {size}
        assert tasks[2]["entries"] == 30
