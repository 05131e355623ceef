"""The health checks of datasets over HTTP: started, shown, explored, and interrupted."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.kinds.jobs import DatasetJob
from tests.site import Site, bars
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
SITE = {"health_checks": True}
site = shared_site


def flawed(folder: Path) -> Path:
    """Create bars with a copy in the same class, a copy in another class, a blank image and a tiny one."""
    bars(folder, each=6)
    first = Image.open(folder / "left" / "00.png")
    first.save(folder / "left" / "copy.png")
    Image.open(folder / "middle" / "01.png").save(folder / "right" / "other.png")
    Image.new("RGB", (16, 16), "gray").save(folder / "right" / "blank.png")
    Image.fromarray(np.random.default_rng(5).integers(0, 255, (4, 4, 3), np.uint8)).save(
        folder / "right" / "tiny.png"
    )
    Image.effect_noise((16, 16), 90).convert("P").save(folder / "right" / "palette.png")
    return folder


@pytest.fixture(scope="module")
def checked(site: Site) -> str:
    job_id = site.dataset(folder_train=str(flawed(site.data / "flawed")), folder_pct_val=0)
    assert site.wait_for_end(job_id) == "Done"
    wait_for_check(site, job_id)
    return job_id


def health_of(site: Site, job_id: str) -> Any:
    return site.json(f"/datasets/{job_id}/health.json")


def wait_for_check(site: Site, job_id: str) -> Any:
    site.wait(lambda: health_of(site, job_id)["state"] in ("done", "failed"))
    return health_of(site, job_id)


def findings(body: Any) -> dict[str, Any]:
    return {finding["id"]: finding for finding in body["result"]["findings"]}


def explore(site: Site, job_id: str, **arguments: Any) -> Any:
    words = "".join(f"&{name}={value}" for name, value in arguments.items())
    return site.get(f"/datasets/images/classification/explore?job_id={job_id}{words}")


def test_a_dataset_is_checked_once_it_is_done(site: Site, checked: str) -> None:
    body = health_of(site, checked)
    assert (body["state"], body["error"]) == ("done", None)
    found = findings(body)
    assert (found["exact_duplicates"]["count"], found["conflicting_targets"]["count"]) == (4, 2)
    assert found["blank"]["count"] == found["tiny_sources"]["count"] == found["odd_mode"]["count"] == 1
    assert body["result"]["findings"][0]["severity"] == "error"


def test_the_page_shows_the_findings_and_explore_their_images(site: Site, checked: str) -> None:
    page = site.get(f"/datasets/{checked}").text
    links = re.findall(r'href="([^"]+finding=\w+)"', page)
    assert "Exact duplicates in a split" in page and len(links) >= 5
    for link in links:
        assert "<figure>" in site.get(link.replace("&amp;", "&")).text
    duplicates = explore(site, checked, finding="exact_duplicates").text
    assert 'id="set-0"' in duplicates and "copy.png" in duplicates
    url = f"/datasets/images/classification/explore.json?job_id={checked}&db=all&finding=exact_duplicates"
    assert {record["set"] for record in site.json(url)["records"]} == {0, 1}
    blank = explore(site, checked, finding="blank").text
    assert blank.count("<figure>") == 1
    assert "blank.png" in blank
    assert explore(site, checked, finding="unknown").status_code == 404


def test_explore_filters_by_ranges(site: Site, checked: str) -> None:
    tiny = explore(site, checked, source_size=":8").text
    assert "tiny.png" in tiny and tiny.count("<figure>") == 1
    everything = explore(site, checked, brightness="0:", aspect="0.9:1.1", size=100).text
    assert everything.count("<figure>") == 23
    assert explore(site, checked, brightness="wrong").status_code == 400
    of_class = explore(site, checked, source_size=":8", label=0).text
    assert "No images" in of_class


def test_the_bars_of_histograms_select_all_their_images(site: Site, checked: str) -> None:
    page = site.get(f"/datasets/{checked}").text
    bars_of_page = re.findall(r'class="bin" href="([^"]+)" title="[^:"]+: (\d+) images', page)
    assert len(bars_of_page) >= 4
    for url, count in bars_of_page:
        answer = site.get(url.replace("&amp;", "&") + "&size=100").text
        assert answer.count("<figure>") == int(count)


def test_findings_become_a_cleaned_version(site: Site, checked: str) -> None:
    page = site.get(f"/datasets/{checked}").text
    link = re.search(r'href="([^"]+)">Create cleaned version', page)
    assert link is not None
    form = site.get(html.unescape(link[1])).text
    edits = re.search(r'name="edits"[^>]* value="([^"]+)"', form)[1]
    found = findings(health_of(site, checked))
    removable = [record for name in ("exact_duplicates", "blank") for record in found[name]["removable"]]
    assert edits.startswith("cleaning:") and f"{len(removable)} images excluded" in form
    url = f"/datasets/{checked}/versions.json"
    version = site.post(url, dataset_name="clean", edits=edits).get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    assert not {"exact_duplicates", "blank"} & findings(wait_for_check(site, version)).keys()
    before, after = (
        site.services.store.get(job, DatasetJob).manifest().splits["train"].count
        for job in (checked, version)
    )
    assert before - after == len(removable)
    assert "1 image excluded" in site.get(f"/datasets/{checked}/versions/new?clean=blank").text
    assert site.get(f"/datasets/{checked}/versions/new?clean=nothing").status_code == 400
    assert site.post(url, dataset_name="clean", edits="cleaning:nothing").status_code == 400


def test_a_damaged_result_is_reported_and_replaced(site: Site, checked: str) -> None:
    path = site.services.store.folder / checked / "health.json"
    whole = path.read_text()
    for text in ("{", "[]", whole.replace('"content_hash": "', '"content_hash": "x'), "{}"):
        path.write_text(text)
        body = health_of(site, checked)
        assert body["state"] == "failed" and "damaged" in body["error"]["message"]
        assert "damaged" in site.get(f"/datasets/{checked}").text
        assert explore(site, checked, finding="blank").status_code == 404
    assert site.post(f"/datasets/{checked}/health").status_code == 202
    site.wait(lambda: health_of(site, checked)["state"] == "done")
    assert json.loads(path.read_text())["findings"] == json.loads(whole)["findings"]


def test_damaged_arrays_do_not_break_explore(site: Site, checked: str) -> None:
    folder = site.services.store.folder / checked
    for name, arguments in (
        ("health-records.npy", {"finding": "blank"}),
        ("health-train.npy", {"brightness": "0:10"}),
    ):
        whole = (folder / name).read_bytes()
        for data in (b"", whole[: len(whole) // 2], whole.replace(b"<u4", b"<i4"), b"\x93NUMPY" * 9):
            (folder / name).write_bytes(data)
            assert explore(site, checked, **arguments).status_code == 404
        (folder / name).write_bytes(whole)


def test_opening_the_page_starts_a_missing_check(site: Site, checked: str) -> None:
    path = site.services.store.folder / checked / "health.json"
    path.unlink()
    site.get(f"/datasets/{checked}", headers={"Sec-Fetch-Site": "cross-site"})
    assert health_of(site, checked)["state"] == "none"
    site.get(f"/datasets/{checked}")
    assert health_of(site, checked)["state"] in ("running", "done")
    assert wait_for_check(site, checked)["state"] == "done"


def test_a_check_fails_if_the_records_are_damaged(site: Site) -> None:
    job_id = site.dataset()
    site.wait_for_end(job_id)
    wait_for_check(site, job_id)
    shard = next((site.services.store.folder / job_id).glob("train-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[100] ^= 255
    shard.write_bytes(data)
    site.post(f"/datasets/{job_id}/health")
    site.wait(lambda: health_of(site, job_id)["state"] == "failed")
    assert "damaged" in health_of(site, job_id)["error"]["message"]


def test_a_dataset_is_deleted_while_it_is_checked(site: Site) -> None:
    job_id = site.dataset()
    site.wait_for_end(job_id)
    folder = site.services.store.folder / job_id
    assert health_of(site, job_id)["state"] in ("running", "done")
    assert site.client.delete(f"/datasets/{job_id}").status_code == 200
    assert site.get(f"/datasets/{job_id}/health.json").status_code == 404
    site.wait(lambda: not folder.exists())


def test_an_unfinished_dataset_is_not_checked(site: Site) -> None:
    job_id = site.dataset()
    site.post(f"/datasets/{job_id}/abort")
    site.wait_for_end(job_id)
    assert site.post(f"/datasets/{job_id}/health").status_code == 400
    assert health_of(site, job_id)["state"] == "none"
