"""Changes of records that wait for a new version: shared by all browsers, and part of its form."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from digits.kinds.versions.pending_edits import PENDING_FILE
from tests.site import Site, bars
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site


@pytest.fixture(scope="module")
def dataset(site: Site) -> str:
    job_id = site.dataset(folder_train=str(bars(site.data / "bars", each=6)), folder_pct_val=20)
    assert site.wait_for_end(job_id) == "Done"
    return job_id


def post(site: Site, job_id: str, changes: Any) -> Any:
    return site.post(f"/datasets/{job_id}/pending-edits.json", changes=json.dumps(changes))


def test_changes_wait_on_the_server_until_a_version_is_created(site: Site, dataset: str) -> None:
    address = f"/datasets/{dataset}/pending-edits.json"
    assert site.json(address) == {"changes": {}, "words": ""}
    changes = {"train/0": {"exclude": True}, "train/1": {"label": 2, "split": "val"}, "val/0": {"label": 1}}
    assert post(site, dataset, changes).get_json()["words"] == (
        "1 image excluded, 2 images relabeled, 1 image moved"
    )
    assert post(site, dataset, {"val/0": None, "train/0": {"label": 1}}).status_code == 200
    left = {"train/0": {"label": 1}, "train/1": {"label": 2, "split": "val"}}
    assert site.json(address) == {"changes": left, "words": "2 images relabeled, 1 image moved"}
    words = "2 images relabeled, 1 image moved, not yet in a version."
    assert words in site.get(f"/datasets/{dataset}").text
    edits = {"relabel": [["train", 0, 1], ["train", 1, 2]], "move": [["train", 1, "val"]]}

    # A version with other changes leaves them.
    for given, kept in (({"exclude": [["train", 3]]}, left), (edits, {})):
        fields = {"dataset_name": "better", "edits": json.dumps(given)}
        version = site.post(f"/datasets/{dataset}/versions.json", **fields)
        assert version.status_code == 200, version.get_json()
        assert site.json(address)["changes"] == kept
        site.wait_for_end(version.get_json()["id"])
    assert "not yet in a version" not in site.get(f"/datasets/{dataset}").text


def test_the_form_of_a_version_names_the_changes(site: Site, dataset: str) -> None:
    def edits_in(page: str) -> str:
        found = re.search(r'name="edits"[^>]*value="([^"]*)"', page)
        assert found
        return html.unescape(found[1])

    changes = {"train/0": {"exclude": True}, "train/1": {"label": 2, "split": "val"}}
    post(site, dataset, changes)
    url = f"/datasets/{dataset}/versions"
    page = site.get(f"{url}/new").text
    edits = edits_in(page)
    assert edits.startswith("pending:")
    assert "1 image excluded, 1 image relabeled, 1 image moved" in page
    before, after = re.search(r"Images: (\d+) training, .* → (\d+) training", page).groups()
    assert int(after) == int(before) - 2 and "aria-disabled" not in page
    fields = {"edits": edits, "keep": 50, "pct_val": 20}
    changed = site.post(f"{url}/form", **fields).text
    assert "→ about " in changed and "test" not in re.search("Images: .*", changed)[0]
    assert (
        "Add images or change something first."
        in site.post(f"{url}/form", resize_width=16, resize_height=16).text
    )
    post(site, dataset, {"train/2": {"exclude": True}})
    refused = site.post(f"{url}.json", dataset_name="better", edits=edits)
    assert "edited in the meantime" in refused.get_data(as_text=True)
    edits = edits_in(site.post(f"{url}/form", edits=edits).text)
    version = site.post(f"{url}.json", dataset_name="better", edits=edits).get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    assert site.json(f"/datasets/{dataset}/pending-edits.json")["changes"] == {}

    # A clone of the version has the same changes.
    page = site.get(f"{url}/new?clone={version}").text
    assert edits_in(page) == f"version:{version}" and "2 images excluded" in page
    clone = site.post(f"{url}.json", dataset_name="again", edits=edits_in(page)).get_json()["id"]
    assert site.wait_for_end(clone) == "Done"
    first, second = (site.json(f"/datasets/{job}.json") for job in (version, clone))
    assert first["splits"] == second["splits"] if "splits" in first else True
    missing = site.post(f"{url}.json", dataset_name="again", edits="version:nothing")
    assert missing.status_code in (400, 404)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train/999": {"exclude": True}}, "There is no record 999"),
        ({"other/0": {"exclude": True}}, "not valid"),
        ({"train/0": {"label": 7}}, "has no class 7"),
        ({"train/0": {"color": "red"}}, "unknown field `color`"),
        ("nothing", "not valid"),
    ],
)
def test_impossible_changes_are_refused(site: Site, dataset: str, changes: Any, message: str) -> None:
    refused = post(site, dataset, changes)
    assert refused.status_code == 400 and message in refused.get_json()["error"]["message"]


def test_damaged_changes_are_reported(site: Site, dataset: str) -> None:
    file = site.services.store.folder / dataset / PENDING_FILE
    file.write_text("{\n")
    assert f"the line at byte 0 of {PENDING_FILE} is damaged" in site.get(f"/datasets/{dataset}").text
    refused = site.get(f"/datasets/{dataset}/pending-edits.json")
    assert refused.status_code == 400 and PENDING_FILE in refused.get_json()["error"]["hint"]
    file.unlink()


@pytest.mark.parametrize(
    "text", ['{"train/0": {"odd": ' + "[" * 3000 + "]" * 3000 + "}}", r'{"train/0": "\ud800"}']
)
def test_odd_json_is_refused(site: Site, dataset: str, text: str) -> None:
    refused = site.post(f"/datasets/{dataset}/pending-edits.json", changes=text)
    assert refused.status_code == 400 and "not valid" in refused.get_json()["error"]["message"]
    refused = site.post(f"/datasets/{dataset}/versions.json", dataset_name="a", edits=text)
    assert refused.status_code == 400 and "edits" in refused.get_json()["errors"]
