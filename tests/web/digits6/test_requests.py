"""Requests of scripts for DIGITS 6 that need no training."""

from __future__ import annotations

import inspect
import io
from typing import Any

import pytest
from PIL import Image

from tests.site import Site
from tests.web.digits6.script import CLASSES, EACH, SIDE, Script, upload

pytestmark = pytest.mark.integration

JSON = {"Accept": "application/json"}
CREATE = "/datasets/images/classification"


@pytest.mark.parametrize(
    ("method", "path", "keys"),
    [
        ("get", "/", {"version", "jobs_dir", "datasets", "models"}),
        ("get", "/datasets/{dataset}", {"id", "CreateDbTasks", "ParseFolderTasks"}),
        ("get", "/jobs/{dataset}", {"id", "directory"}),
        ("get", f"{CREATE}/explore?job_id={{dataset}}", {"records", "total"}),
        ("get", "/datasets/{dataset}/results", {"models"}),
        ("post", CREATE, {"errors"}),
        ("post", "/datasets/images/generic", {"errors"}),
        ("post", "/datasets/generic/create/image-gradients", {"errors"}),
        ("post", "/models/images/classification", {"errors"}),
        ("post", "/models/images/generic", {"errors"}),
        ("post", "/models/images/genericimage-gradients", {"errors"}),
    ],
)
def test_pages_return_json_to_clients_that_prefer_it(
    site: Site, dataset: str, method: str, path: str, keys: set[str]
) -> None:
    path = path.format(dataset=dataset)
    answer = site.client.open(path, method=method.upper(), headers=JSON, follow_redirects=True)
    assert answer.is_json, answer.text
    assert keys <= answer.get_json().keys()
    page = site.client.open(path, method=method.upper(), headers={"Accept": "text/html,*/*;q=0.8"})
    assert not page.is_json


def test_titles_of_forms_name_the_kind(site: Site) -> None:
    assert "<title>New image classification dataset" in site.get(f"{CREATE}/new").text
    assert "<title>New image gradients dataset" in site.get("/datasets/images/gradients/new").text


def test_a_part_of_a_page_is_no_json(site: Site) -> None:
    answer = site.client.get("/", headers={**JSON, "X-Fragment": "jobs"})
    assert answer.mimetype == "text/html"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "/jobs/foo/status", 404),
        ("post", "/models/foo/abort", 404),
        ("put", "/jobs/foo", 404),
        ("delete", "/datasets/foo", 404),
        ("delete", "/pretrained_models/foo", 404),
        ("post", "/models/customize", 400),
        ("post", "/models/visualize-network", 400),
        ("post", "/abort_jobs", 400),
        ("post", "/group", 400),
        ("get", "/datasets/summary", 400),
        ("post", "/models/images/classification/classify_one.json", 400),
        ("post", "/models/images/classification/classify_many.json", 400),
        ("post", "/models/images/generic/infer_db.json", 400),
    ],
)
def test_errors_of_json_routes_are_json(site: Site, method: str, path: str, status: int) -> None:
    answer = site.client.open(path, method=method.upper())
    assert answer.status_code == status
    if "summary" not in path:  # a part of a page for browsers
        assert answer.get_json()["error"]["message"]


def test_views_without_pages_are_marked_as_json_only(site: Site) -> None:
    for rule in site.app.url_map.iter_rules():
        view = site.app.view_functions[rule.endpoint]
        path = rule.rule
        source = inspect.getsource(view)
        returns_pages = "render" in source or "redirect(" in source or "make_response" in source
        if "jsonify(" not in source or returns_pages or path.endswith((".json", "/upload_archive")):
            continue
        by_method = not rule.methods or rule.methods.isdisjoint({"GET", "POST"})
        assert by_method or path.startswith("/serve/") or hasattr(view, "is_json_only"), rule.endpoint


def test_errors_contain_a_hint(site: Site) -> None:
    error = site.client.post("/models/images/generic/infer_one.json").get_json()["error"]
    assert error["message"] == "The job_id is missing." and error["hint"] == "Specify the id of a model."


def test_the_mean_image_has_the_size_of_the_dataset(site: Site, dataset: str) -> None:
    with Image.open(io.BytesIO(site.get(f"/files/{dataset}/mean.jpg").data)) as picture:
        assert (picture.format, picture.size) == ("JPEG", (SIDE, SIDE))


def test_the_summary_contains_the_name(site: Site, dataset: str) -> None:
    site.client.put(f"/jobs/{dataset}", data={"job_name": "new name"})
    assert "new name" in site.get(f"/datasets/summary?job_id={dataset}").text


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_folder_of_its_own_has_a_task_of_its_own(site: Site, script: Script, split: str) -> None:
    folder = str(site.data / "colors")
    fields = {f"has_{split}_folder": "True", f"folder_{split}": folder, f"folder_{split}_max_per_class": 5}
    job_id = script.finish(script.dataset(folder_pct_val=20, folder_pct_test=10, **fields))
    first, second = site.json(f"/datasets/{job_id}.json")["ParseFolderTasks"]
    assert (first["train_count"], first[f"{split}_count"], first["label_count"]) == (
        (27, 0, 3) if split == "val" else (24, 0, 3)
    )
    assert (second["train_count"], second[f"{split}_count"], second["label_count"]) == (0, 15, 3)


def test_several_jobs_move_to_a_group(site: Site, script: Script) -> None:
    made = [script.dataset(), script.dataset()]
    answer = site.client.post("/group", data={"job_ids[]": made, "group_name": " sorted "})
    assert answer.status_code == 200
    assert {site.json(f"/jobs/{job_id}/table_data.json")["job"]["group"] for job_id in made} == {"sorted"}
    answer = site.client.post("/group", data={"job_ids[]": [*made, "foo"], "group_name": ""})
    assert answer.status_code == 400 and "1 of 3 jobs" in answer.get_json()["error"]["message"]
    assert not any(site.json(f"/jobs/{job_id}/table_data.json")["job"]["group"] for job_id in made)


def test_lists_are_uploads_or_files_with_absolute_or_relative_paths(site: Site, script: Script) -> None:
    lines = [
        f"{script.picture(name, number)} {place}\n"
        for place, name in enumerate(CLASSES)
        for number in range(EACH)
    ]
    lists: list[dict[str, Any]] = []
    absolute, labels = "".join(lines), "\n".join(CLASSES)
    relative = absolute.replace(f"{site.data / 'colors'}/", "")
    for number, text in enumerate((absolute, relative)):
        folder = str(site.data / "colors") if number else None
        path = site.data / f"list-{number}.txt"
        path.write_text(text)
        names = site.data / "labels.txt"
        names.write_text(labels)
        folders = {"textfile_train_folder": folder, "textfile_val_folder": folder}
        lists.append(
            {
                "textfile_use_local_files": "True",
                "textfile_local_train_images": str(path),
                "textfile_local_val_images": str(path),
                "textfile_local_labels_file": str(names),
                **folders,
            }
        )
        if folder:
            lists.append(
                {
                    "textfile_train_images": upload(text),
                    "textfile_val_images": upload(text),
                    "textfile_labels_file": upload(labels),
                    **folders,
                }
            )
    made = [
        script.dataset(method="textfile", textfile_use_val="y", folder_train=None, **fields)
        for fields in lists
    ]
    for job_id in made:
        script.finish(job_id)
        counts = {
            task["name"]: task["entries"] for task in site.json(f"/datasets/{job_id}.json")["CreateDbTasks"]
        }
        assert set(counts.values()) == {EACH * len(CLASSES)}
