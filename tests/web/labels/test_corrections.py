"""What becomes of a dataset from labels: corrections in Explore, versions and clones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.labels import ADA, GRACE, create, frozen, image, number_of, photo, save
from tests.site import Site
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site

IMAGES = 12


def labeled(site: Site, kind: str, answer: Any, classes: str = "cat\ndog") -> str:
    """Return labels of new images, all with an ``answer`` that depends on the number."""
    folder = site.data / f"corrected-{kind}"
    if not folder.is_dir():
        folder.mkdir()
        for number in range(IMAGES):
            photo(number).save(folder / f"{number:02}.png")
    job = create(site, kind, folder=str(folder), classes=classes)
    for number in range(IMAGES):
        assert save(site, job, number, 0, f"first-{number}", ADA, **answer(number)).status_code == 200
    return job


def records(site: Site, dataset: str, kind: str) -> dict[str, tuple[str, str]]:
    """Return the record, such as ``train/7``, and the description of each image by its path."""
    path = f"/datasets/images/{kind}/explore.json?job_id={dataset}&db=all&size=100"
    found = site.json(path)["records"]
    return {each["filename"]: (f"{each['split']}/{each['number']}", each["label"]) for each in found}


def correct(site: Site, dataset: str, changes: dict[str, Any], who: str = GRACE) -> Any:
    fields = {"changes": json.dumps(changes)}
    return site.client.post(f"/datasets/{dataset}/corrections.json?username={who}", data=fields)


def test_a_relabeled_image_is_corrected_in_the_labels(site: Site) -> None:
    job = labeled(site, "classification", lambda number: {"label": number % 2})
    dataset = frozen(site, job)
    before = records(site, dataset, "classification")
    record, label = before["04.png"]
    assert label == "cat"
    explore = site.get(f"/datasets/images/classification/explore?job_id={dataset}").text
    assert f'data-edits-url="/datasets/{dataset}/corrections.json"' in explore
    assert correct(site, dataset, {record: {"label": 1}}).get_json()["words"] == "1 image relabeled"
    n = number_of(site, job, "04.png")
    entry = image(site, job, n)
    assert (entry["label"], entry["by"], entry["rev"], entry["state"]) == (1, GRACE, 2, "labeled")
    # Sent again, it has no effect; excluded images are skipped, and restored ones are as they were.
    assert correct(site, dataset, {record: {"label": 1}}).status_code == 200
    assert image(site, job, n)["rev"] == 2
    other = before["05.png"][0]
    assert correct(site, dataset, {record: None, other: {"exclude": True}}).status_code == 200
    assert (image(site, job, n)["label"], image(site, job, n)["rev"]) == (0, 3)
    assert image(site, job, number_of(site, job, "05.png"))["state"] == "skipped"
    assert correct(site, dataset, {record: {"label": 1}}).status_code == 200
    again = records(site, frozen(site, job, "again"), "classification")
    assert again["04.png"][1] == "dog" and "05.png" not in again and len(again) == IMAGES - 1


def test_images_that_were_labeled_again_are_in_conflict(site: Site) -> None:
    job = labeled(site, "classification", lambda number: {"label": number % 2})
    dataset = frozen(site, job)
    before = records(site, dataset, "classification")
    n = number_of(site, job, "07.png")
    assert save(site, job, n, 1, "again", ADA, label=0).status_code == 200
    changes = {before["07.png"][0]: {"label": 0}, before["08.png"][0]: {"label": 1}}
    answer = correct(site, dataset, changes)
    assert answer.status_code == 409
    assert answer.get_json()["records"] == [before["07.png"][0]]
    assert "07.png, by ada" in answer.get_json()["error"]["message"]
    # Nothing is saved, neither in the labels nor for a version.
    assert image(site, job, number_of(site, job, "08.png"))["rev"] == 1
    assert site.json(f"/datasets/{dataset}/pending-edits.json")["changes"] == {}
    site.client.post(f"/labels/{job}/classes.json", json={"id": 1, "name": "wolf"})
    answer = correct(site, dataset, {before["08.png"][0]: {"label": 1}})
    assert answer.status_code == 400 and "“dog”" in answer.get_json()["error"]["message"]


def test_labels_and_numbers_are_corrected(site: Site) -> None:
    job = labeled(site, "multilabel", lambda number: {"labels": [number % 2]})
    dataset = frozen(site, job)
    record = records(site, dataset, "multilabel")["02.png"][0]
    assert correct(site, dataset, {record: {"labels": {"0": False, "1": True}}}).status_code == 200
    assert image(site, job, number_of(site, job, "02.png"))["labels"] == [1]

    numbers = labeled(site, "regression", lambda number: {"numbers": {"0": number, "1": number / 4}}, "a\nb")
    dataset = frozen(site, numbers)
    record = records(site, dataset, "regression")["03.png"][0]
    assert correct(site, dataset, {record: {"numbers": {"1": -2.5}}}).status_code == 200
    assert image(site, numbers, number_of(site, numbers, "03.png"))["numbers"] == {"0": 3, "1": -2.5}


def test_datasets_without_labels_are_not_corrected(site: Site) -> None:
    dataset = site.wait_until_done(site.dataset(folder_pct_val=25))
    answer = correct(site, dataset, {"train/0": {"label": 1}})
    assert answer.status_code == 400 and "was not made from labels" in answer.get_json()["error"]["message"]


def test_versions_and_clones_of_a_dataset_from_labels(site: Site) -> None:
    job = labeled(site, "detection", lambda number: {"objects": [{"class": 0, "box": [1, 2, 20, 30]}]})
    dataset = frozen(site, job)
    link = f'<a href="/labels/{job}">'
    assert link in site.get(f"/datasets/{dataset}", headers={"Accept": "text/html"}).text
    record = next(iter(records(site, dataset, "detection").values()))[0]
    edits = json.dumps({"exclude": [[record.split("/")[0], int(record.split("/")[1])]]})
    page = site.get(f"/datasets/{dataset}/versions/new")
    assert page.status_code == 200
    made = site.post(f"/datasets/{dataset}/versions.json", dataset_name="v", edits=edits)
    version = site.wait_until_done(made.get_json()["id"])
    assert len(records(site, version, "detection")) == IMAGES - 1
    assert link in site.get(f"/datasets/{version}", headers={"Accept": "text/html"}).text
    # A clone would read files in the folder of the dataset.
    cloned = site.get(f"/clone/{dataset}")
    assert cloned.status_code == 302 and cloned.headers["Location"].endswith(f"/labels/{job}")
    refused = site.get(f"/datasets/images/detection/new?clone={dataset}")
    assert refused.status_code == 400 and "Create a new dataset from these labels" in refused.text
    assert site.get(f"/clone/{version}").status_code == 302


def test_images_are_added_to_a_dataset_from_labels(site: Site, tmp_path: Path) -> None:
    job = labeled(site, "detection", lambda number: {"objects": [{"class": 0, "box": [1, 2, 20, 30]}]})
    dataset = frozen(site, job)
    added = site.data / "added"
    added.mkdir()
    photo(77).save(added / "new.png")
    (added / "new.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (added / "classes.txt").write_text("cat\n")
    page = site.get(f"/datasets/{dataset}/add")
    assert page.status_code == 200
    made = site.post(f"/datasets/{dataset}/versions.json", dataset_name="v", added_folder=str(added))
    assert made.status_code == 200, made.get_json()
    version = site.wait_until_done(made.get_json()["id"])
    assert len(records(site, version, "detection")) == IMAGES + 1
