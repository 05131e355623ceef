"""Versions of a dataset over HTTP: the form, its checks, the new dataset and its page."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from digits.kinds.jobs import DatasetJob
from tests.datasets import photos
from tests.site import Site, bars


@pytest.fixture
def parent(site: Site) -> str:
    fields = {
        "dataset_name": "bars",
        "folder_train": str(bars(site.data)),
        "resize_width": 16,
        "resize_height": 16,
    }
    job_id = site.post("/datasets/images/classification.json", **fields).get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    return str(job_id)


def test_a_version_is_created_shown_and_cloned(site: Site, parent: str) -> None:
    page = site.get(f"/datasets/{parent}/versions/new").text
    assert 'value="bars, version 2"' in page and 'name="resize_width"' in page and 'value="16"' in page
    edits = {"exclude": [["train", 0]], "relabel": [["train", 1, 2]], "move": [["val", 0, "train"]]}
    answer = site.post(
        f"/datasets/{parent}/versions.json",
        dataset_name="better bars",
        edits=json.dumps(edits),
        resize_width=8,
    )
    assert answer.status_code == 200, answer.get_json()
    version = answer.get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    before, body = site.json(f"/datasets/{parent}.json"), site.json(f"/datasets/{version}.json")
    assert body["version_of"]["id"] == parent
    assert body["version_of"]["changes"] == "1 image excluded, 1 image relabeled, 1 image moved"
    assert body["CreateDbTasks"][0]["entries"] == before["CreateDbTasks"][0]["entries"]
    assert (body["CreateDbTasks"][0]["image_width"], body["CreateDbTasks"][0]["image_height"]) == (8, 16)
    page = site.get(f"/datasets/{version}").text
    changes = site.get(body["version_of"]["changes_url"]).text.splitlines()
    assert len(changes) == 4 and changes[1].startswith("train,0,") and ",excluded," in changes[1]
    assert "Changed images" in page and f"/datasets/{parent}/records/train/0/thumbnail" in page
    assert "Version of" in page and f'href="/datasets/{parent}"' in page and "1 image excluded" in page

    clone = site.client.get(f"/clone/{version}", follow_redirects=True).text
    assert "New version" in clone and 'value="better bars"' in clone and "relabel" in clone
    assert site.get(f"/datasets/{parent}/versions/new?clone={parent}").status_code == 400
    for dataset in (parent, version):
        project = site.get(f"/projects/{dataset}").text
        assert "2 versions, 0 models" in project and ">bars</bdi></h1>" in project
        assert project.index(f'href="/datasets/{version}"') < project.index(f'href="/datasets/{parent}"')
        assert all(
            f'href="/projects/{dataset}"' in site.get(path).text for path in ("/", f"/datasets/{dataset}")
        )
        assert "1 image moved <span" in project and "(-1 images)" in project
    # The version does not depend on its parent.
    assert site.client.delete(f"/datasets/{parent}").status_code == 200
    assert site.json(f"/datasets/{version}.json")["version_of"]["name"] == "bars"
    assert ">bars</bdi></h1>" in site.get(f"/projects/{version}").text
    page = site.get(f"/datasets/{version}").text
    assert "1 image excluded" in page and "Changed images" in page and f"/{parent}/records/" not in page
    assert site.client.get(f"/clone/{version}", follow_redirects=True).status_code == 404


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"edits": "{"}, "edits", "not valid"),
        ({"edits": '{"exclude": [["train", -1]]}'}, "edits", "not valid"),
        ({"edits": '{"exclude": [["train", 99999]]}'}, "edits", "no record 99999"),
        ({"edits": '{"relabel": [["train", 0, 9]]}'}, "edits", "no class 9"),
        ({"keep": "0"}, "keep", "between"),
        ({"pct_val": "100"}, "pct_val", "0 to 99"),
        ({"pct_val": "60", "pct_test": "40"}, "pct_val", "nothing is left"),
        ({"resize_width": "0"}, "resize_width", "between"),
        ({"dataset_name": "", "keep": "50"}, "dataset_name", "name"),
        ({"keep": "100", "resize_width": "16"}, "edits", "Nothing would change"),
    ],
)
def test_impossible_versions_are_refused(
    site: Site, parent: str, fields: dict[str, str], field: str, message: str
) -> None:
    answer = site.post(f"/datasets/{parent}/versions.json", **({"dataset_name": "no"} | fields))
    assert answer.status_code == 400
    assert message in answer.get_json()["errors"][field][0]
    page = site.post(f"/datasets/{parent}/versions", **({"dataset_name": "no"} | fields))
    assert page.status_code == 400 and message in page.text
    assert len(list(site.services.store.all(DatasetJob))) == 1


def test_a_dataset_without_records_has_no_versions(site: Site) -> None:
    fields = {"dataset_name": "bad", "folder_train": str(site.data)}
    for name in "ab":
        (site.data / name).mkdir()
        (site.data / name / "broken.png").write_bytes(b"no image")
    job_id = site.post(
        "/datasets/images/classification.json", folder_train_min_per_class=1, **fields
    ).get_json()["id"]
    assert site.wait_for_end(job_id) == "Error"
    refused = site.get(f"/datasets/{job_id}/versions/new")
    assert refused.status_code == 400 and "has no records yet" in refused.text
    assert site.get("/datasets/20261120-093000-a1b2c3/versions/new").status_code == 404


def test_a_version_of_texts_keeps_what_its_kind_needs(site: Site) -> None:
    table = site.data / "texts.csv"
    table.write_text(
        "\n".join(f"{number % 2},{'good' if number % 2 else 'bad'} number {number}" for number in range(20))
    )
    fields = {"dataset_name": "texts", "train_data_file": str(table)}
    parent = site.post("/datasets/text/classification.json", **fields).get_json()["id"]
    assert site.wait_for_end(parent) == "Done"
    page = site.get(f"/datasets/{parent}/versions/new").text
    assert "resize_width" not in page and "Images to keep" in page
    version = site.post(f"/datasets/{parent}/versions.json", dataset_name="half", keep=50).get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    again = site.post(f"/datasets/{version}/versions.json", dataset_name="quarter", keep=50).get_json()["id"]
    assert site.wait_for_end(again) == "Done"
    explored = site.get(f"/datasets/text/classification/explore?job_id={again}").text
    assert "good number" in explored
    assert site.json(f"/datasets/{again}.json")["version_of"]["id"] == version


def test_images_are_added_to_a_class(site: Site, parent: str) -> None:
    assert f"/datasets/{parent}/add" in site.get(f"/datasets/{parent}").text
    page = site.get(f"/datasets/{parent}/add?class=right").text
    assert "<h1>Add images</h1>" in page and '<option selected value="right">' in page
    folder = photos(site.data / "new", "a.png", "b.png", "deeper/c.png")
    shutil.copy(site.data / "left" / "00.png", folder / "known.png")
    fields = {"dataset_name": "more bars", "added_folder": str(folder), "added_class": "right"}
    answered = site.post(f"/datasets/{parent}/versions/form", **fields).text
    assert "4 images added to right." in answered and 'aria-disabled="true"' not in answered

    version = site.api.create_version(parent, "more bars", added_folder=folder, added_class="right").id
    assert site.wait_for_end(version) == "Done"
    body = site.json(f"/datasets/{version}.json")
    assert body["version_of"]["changes"] == "images added to right"
    assert "1 image left out, which the dataset has already: known.png." in body["warnings"]
    assert sum(task["entries"] for task in body["CreateDbTasks"]) == 24 + 3
    rows = site.get(body["version_of"]["changes_url"]).text.splitlines()[1:]
    assert len(rows) == 3 and all(row.endswith(",added,,right") for row in rows)
    page = site.get(f"/datasets/{version}").text
    assert "Added" in page and "images added to right" in page
    clone = site.client.get(f"/clone/{version}", follow_redirects=True).text
    assert "<h1>Add images</h1>" in clone and f'value="{folder}"' in clone

    again = site.post(f"/datasets/{version}/versions.json", **fields).get_json()["id"]
    assert site.wait_for_end(again) == "Error"
    assert "The dataset has all 4 images already." in site.get(f"/datasets/{again}").text


def test_folders_become_new_classes_only_with_consent(site: Site, parent: str) -> None:
    folder = photos(site.data / "new", "left/a.png", "up/b.png")
    fields = {"dataset_name": "more bars", "added_folder": str(folder)}
    refused = site.post(f"/datasets/{parent}/versions.json", **fields)
    (message,) = refused.get_json()["errors"]["added_folder"]
    assert refused.status_code == 400 and "1 class of the new images: up." in message
    assert "add new classes (new_classes=y)" in message
    asked = site.post(f"/datasets/{parent}/versions/form", **fields).text
    assert "1 class of the new images: up." in asked and 'name="new_classes"' in asked
    assert "Fix the problem above first." in asked and 'aria-disabled="true"' in asked
    answered = site.post(f"/datasets/{parent}/versions/form", **fields, new_classes="y").text
    assert "2 images added to 2 classes, new: up." in answered and 'aria-disabled="true"' not in answered

    version = site.post(f"/datasets/{parent}/versions.json", **fields, new_classes="y").get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    manifest = site.services.store.get(version, DatasetJob).manifest()
    assert manifest and manifest.target.names[-1] == "up"
    clone = site.client.get(f"/clone/{version}", follow_redirects=True).text
    assert re.search(r'<input checked[^>]*name="new_classes"', clone)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "added_folder", "Choose the class of the images."),
        ({"added_class": "up"}, "added_class", "Not a valid choice"),
        ({"added_class": "left", "added_split": "all"}, "added_split", "Not a valid choice"),
        ({"added_class": "left", "added_folder": "/etc"}, "added_folder", "outside the folders"),
    ],
)
def test_impossible_additions_are_refused(
    site: Site, parent: str, fields: dict[str, str], field: str, message: str
) -> None:
    folder = photos(site.data / "new", "a.png")
    sent = {"dataset_name": "no", "added_folder": str(folder)} | fields
    answer = site.post(f"/datasets/{parent}/versions.json", **sent)
    assert answer.status_code == 400 and message in answer.get_json()["errors"][field][0]
    assert message in site.post(f"/datasets/{parent}/versions", **sent).text
