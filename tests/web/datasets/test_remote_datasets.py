"""Datasets from remote addresses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import odd_web_server, s3_server
from tests.real_server import RealServer
from tests.site import Site, bars, open_site, site_settings
from tests.web.trained import shared_site

CREATE = "/datasets/images/classification.json"
ACCESS_KEY, SECRET_KEY = "AKIAFAMILIARNAME", "wJalrXUtnFEMIbPxRfiCYEXAMPLE"
SIZE = {"resize_width": 16, "resize_height": 16}


@pytest.fixture
def off(tmp_path: Path) -> Iterator[Site]:
    site = open_site(site_settings(tmp_path))
    yield site
    site.close()


def test_addresses_are_off_by_default(off: Site) -> None:
    answer = off.post(CREATE, dataset_name="d", folder_train="https://data.example/images", **SIZE)
    assert "--remote-address https://data.example" in answer.get_json()["errors"]["folder_train"][0]
    page = off.get("/datasets/images/classification/new").get_data(as_text=True)
    assert "Remote storage" not in page and "Cloud storage" not in page


SITE = {
    "remote_addresses": (
        "https://data.example/open",
        "s3://my-*",
        "https://minio.example",
        "sftp://host.example",
    )
}
site = shared_site


@pytest.mark.parametrize(
    ("kind", "fields", "field", "words"),
    [
        (
            "classification",
            {"folder_train": "https://data.example/closed"},
            "folder_train",
            "--remote-address",
        ),
        ("classification", {"folder_train": "https://data.example/open/../x"}, "folder_train", "“.”"),
        ("classification", {"folder_train": "https://me:pw@data.example/open"}, "folder_train", "password"),
        ("classification", {"folder_train": "https://data.example/open?token=1"}, "folder_train", "“?”"),
        ("classification", {"folder_train": "file:///etc"}, "folder_train", "“file:” are not supported"),
        (
            "classification",
            {"folder_train": "gopher::file:///etc"},
            "folder_train",
            "“gopher:” are not supported",
        ),
        ("classification", {"folder_train": "sftp://host.example/x"}, "folder_train", "fsspec[sftp]"),
        ("classification", {"method": "s3", "s3_bucket": "your-images"}, "s3_bucket", "does not allow"),
        (
            "classification",
            {"method": "s3", "s3_bucket": "my-images", "s3_endpoint_url": "http://127.0.0.1:9"},
            "s3_endpoint_url",
            "does not allow",
        ),
        (
            "classification",
            {"method": "s3", "s3_bucket": "my-images", "s3_accesskey": ACCESS_KEY},
            "s3_accesskey",
            "or neither",
        ),
        ("regression", {"table_train": "https://data.example/t.csv"}, "table_train", "does not allow"),
        ("detection", {"train_label_folder": "s3://x/labels"}, "train_label_folder", "does not allow"),
        ("pairs", {"pair_source": "s3://x/pairs.csv"}, "pair_source", "does not allow"),
    ],
)
def test_the_message_for_an_address(
    site: Site, kind: str, fields: dict[str, str], field: str, words: str
) -> None:
    answer = site.post(f"/datasets/images/{kind}.json", dataset_name="d", **SIZE, **fields)
    assert answer.status_code == 400
    assert words in " ".join(answer.get_json()["errors"][field])


def test_the_recipe_names_each_address_once(site: Site) -> None:
    fields = {"table_train": "s3://my-data/t.csv", "s3_keepcopiesondisk": "y"}
    answer = site.post("/datasets/images/regression.json", dataset_name="d", **SIZE, **fields)
    job = site.services.store.find(answer.get_json()["id"])
    remote = job.recipe.remote  # type: ignore[union-attr]
    # Images are in the folder of the table by default.
    assert (remote.files, remote.folders) == (["s3://my-data/t.csv"], ["s3://my-data"])
    assert remote.keep_copies and not remote.credentials
    site.services.scheduler.abort(job)  # type: ignore[arg-type]


def test_credentials_of_a_job_that_never_ran_are_deleted(tmp_path: Path) -> None:
    settings = site_settings(tmp_path, remote_addresses=("s3://*",))
    site = open_site(settings)
    fields = {"method": "s3", "s3_bucket": "my", "s3_accesskey": ACCESS_KEY, "s3_secretkey": SECRET_KEY}
    # A job that waits behind another one.
    first = site.dataset(folder_train=str(bars(site.data / "many", each=200)))
    waiting = site.post(CREATE, dataset_name="d", **SIZE, **fields).get_json()["id"]
    files = list((tmp_path / "state/credentials").iterdir())
    assert [path.name for path in files] == [waiting] and files[0].stat().st_mode & 0o777 == 0o600
    site.post(f"/jobs/{waiting}/abort")
    site.wait(lambda: not files[0].exists())
    site.post(f"/jobs/{first}/abort")
    site.close()


@pytest.mark.integration
def test_credentials_never_leave_the_request(tmp_path: Path) -> None:
    folder = bars(tmp_path / "images")
    (folder / "left" / "broken.png").write_bytes(b"no image")
    with s3_server.running() as endpoint, _Seen() as seen:
        s3_server.upload(endpoint, folder, "bars/train")
        server = RealServer(
            tmp_path, "--no-standby", "--no-login", "--remote-address", "s3://*", "--remote-address", endpoint
        )
        try:
            source = {
                "method": "s3",
                "s3_endpoint_url": endpoint,
                "s3_bucket": s3_server.BUCKET,
                "s3_path": "bars/train",
                "s3_accesskey": ACCESS_KEY,
                "s3_secretkey": SECRET_KEY,
                **SIZE,
            }
            summary = server.read("/datasets/images/classification/scan", **source)
            assert "25 files in 3 folders" in json.loads(summary.splitlines()[-1])["facts"][0]
            fields = {"dataset_name": "from S3", "s3_pct_val": 50, "max_unusable_percent": 10, **source}
            answers = [summary, server.read(CREATE, **fields)]
            dataset = json.loads(answers[0 + 1])["id"]
            server.wait(lambda: server.ask(f"/datasets/{dataset}/status")["status"] in ("Done", "Error"))
            body = server.ask(f"/datasets/{dataset}.json")
            assert body["status"] == "Done", body
            for path in (
                f"/datasets/{dataset}",
                f"/datasets/{dataset}.json",
                f"/datasets/images/classification/new?clone={dataset}",
                f"/jobs/{dataset}/output",
                f"/files/{dataset}/job.json",
            ):
                try:
                    answers.append(server.read(path))
                except OSError as error:
                    answers.append(str(error))
            job = tmp_path / "jobs" / dataset
            manifest = json.loads((job / "dataset.json").read_text())
            # The unusable image can be in either split.
            counts = sorted(split["count"] for split in manifest["splits"].values())
            assert counts in ([11, 13], [12, 12])
            assert manifest["source"]["train"] == f"s3://{s3_server.BUCKET}/bars/train"
            assert (job / "skipped.csv").read_text().splitlines()[1].startswith("left/broken.png,")
            assert not (job / "remote").exists()
            clone = answers[4]
            assert f'value="{endpoint}"' in clone and 'value="bars/train"' in clone
        finally:
            server.stop()
    places = [path for part in ("jobs", "state", "digits.log") for path in _files(tmp_path / part)]
    for text in (*answers, *seen.texts, *(path.read_bytes().decode("latin-1") for path in places)):
        assert ACCESS_KEY not in text and SECRET_KEY not in text
    assert any("digits.data.remote.fetch" in text for text in seen.texts)


@pytest.mark.integration
def test_datasets_from_a_web_server(tmp_path: Path) -> None:
    folder = bars(tmp_path / "images")
    rows = [f"{path.relative_to(folder)},{len(path.name)}" for path in sorted(folder.rglob("*.png"))]
    (folder / "numbers.csv").write_text("image,number\n" + "\n".join(rows))
    # Listed, but not found.
    (folder / "left" / "gone.png").symlink_to("nowhere.png")
    with odd_web_server.running(tmp_path / "images") as address:
        site = open_site(site_settings(tmp_path, remote_addresses=(address,)))
        try:
            train = f"{address}/files/"
            dataset = site.dataset(folder_train=train, s3_keepcopiesondisk="y", max_unusable_percent=10)
            broken = site.dataset(folder_train=f"{address}/slow/")
            table = {"table_train": f"{address}/files/numbers.csv", "dataset_name": "numbers", **SIZE}
            answer = site.post("/datasets/images/regression.json", **table).get_json()
            assert site.wait_for_end(dataset) == "Done"
            kept = tmp_path / "jobs" / dataset / "remote" / address.replace("://", "/") / "files/left/00.png"
            assert kept.is_file()
            skipped = (tmp_path / "jobs" / dataset / "skipped.csv").read_text().splitlines()
            assert skipped[1].startswith(f"{address}/files/left/gone.png,") and len(skipped) == 2
            assert site.json(f"/datasets/{dataset}.json")["skipped"] == 1
            page = site.get(f"/datasets/{dataset}").get_data(as_text=True)
            assert f"{address}/files" in page and str(tmp_path / "jobs" / dataset / "remote") not in page
            explore = site.get(f"/datasets/images/classification/explore?job_id={dataset}")
            assert "left/0" in explore.get_data(as_text=True)
            clone = site.get(f"/datasets/images/classification/new?clone={dataset}").get_data(as_text=True)
            assert f'value="{address}/files"' in clone
            # A page without folders: the message names the address.
            assert site.wait_for_end(broken) == "Error"
            assert f"{address}/slow" in site.json(f"/datasets/{broken}.json")["error"]
            assert site.wait_for_end(answer["id"]) == "Done"
        finally:
            site.close()


class _Seen:
    """Collects the command lines of all processes."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Seen:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.texts.add(path.read_bytes().decode("latin-1"))
                except OSError:
                    continue


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
