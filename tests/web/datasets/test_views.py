"""Create, show and explore datasets over HTTP, with the real task in a real process."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from digits.core.job import DeviceRequest
from digits.kinds import all_kinds
from digits.kinds.jobs import DatasetJob
from digits.runtime.executors.executor import place
from digits.web.jobs import serializers
from tests.site import Site, bars
from tests.web.trained import Finished

pytestmark = pytest.mark.integration

CREATE = "/datasets/images/classification.json"


def test_a_dataset_is_created_from_a_folder(site: Site) -> None:
    job_id = site.wait_until_done(site.dataset(folder_pct_val=25, folder_pct_test=25))
    body = site.json(f"/datasets/{job_id}.json")
    assert body["ParseFolderTasks"][0] == {
        "name": "Parse Folder (train/val/test)",
        "label_count": 3,
        "train_count": 12,
        "val_count": 6,
        "test_count": 6,
    }
    assert [task["entries"] for task in body["CreateDbTasks"]] == [12, 6, 6]
    assert body["CreateDbTasks"][0]["image_width"] == 16
    assert body["directory"].endswith(job_id)
    assert body["labels"] == ["left", "middle", "right"]


def test_width_and_height_are_not_swapped(site: Site) -> None:
    job_id = site.dataset(resize_width=20, resize_height=10)
    site.wait_for_end(job_id)
    task = site.json(f"/datasets/{job_id}.json")["CreateDbTasks"][0]
    assert (task["image_width"], task["image_height"]) == (20, 10)
    mean = site.get(f"/files/{job_id}/mean.png")
    assert Image.open(io.BytesIO(mean.data)).size == (20, 10)


def test_the_page_shows_classes_samples_and_the_mean_image(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)
    page = site.get(f"/datasets/{job_id}").text
    assert all(label in page for label in ("left", "middle", "right"))
    assert f"/files/{job_id}/mean.png" in page
    assert f"/datasets/{job_id}/records/train/" in page


@pytest.mark.parametrize("encoding", ["png", "jpg", "none"])
def test_records_are_served_as_images(site: Site, finished: Finished, encoding: str) -> None:
    job_id = finished.dataset(site, encoding=encoding)
    answer = site.get(f"/datasets/{job_id}/records/train/0")
    assert Image.open(io.BytesIO(answer.data)).size == (16, 16)
    assert site.get(f"/datasets/{job_id}/records/train/99999").status_code == 404
    assert site.get(f"/datasets/{job_id}/records/other/0").status_code == 404


def test_records_are_explored_by_page_and_class(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site, folder_pct_val=0)
    path = f"/datasets/images/classification/explore?job_id={job_id}&db=train_db"
    assert site.get(f"{path}&size=10").text.count('<img src="') == 10
    assert site.get(f"{path}&size=10&page=2").text.count('<img src="') == 4
    assert site.get(f"{path}&label=1").text.count('<img src="') == 8
    assert site.get(f"{path}&page=99&size=10").status_code == 200
    assert site.get(path.replace("train_db", "nothing")).status_code == 404
    assert "middle⁩ (8)" in site.get(path).text
    for label in (-1, 3):
        assert site.get(f"{path}&label={label}").status_code == 404


def test_an_unfinished_dataset_is_not_explored(site: Site) -> None:
    place(site.services.executor.ledger, DeviceRequest("dataset"))  # so that it waits
    job_id = site.dataset()
    site.post(f"/datasets/{job_id}/abort")
    assert site.wait_for_end(job_id) == "Aborted"
    answer = site.get(
        f"/datasets/images/classification/explore?job_id={job_id}", headers={"Accept": "application/json"}
    )
    assert answer.status_code == 400
    assert "not Done" in answer.get_json()["error"]["message"]


def test_corrupt_images_are_skipped_and_listed(site: Site) -> None:
    folder = bars(site.data / "bad")
    (folder / "left" / "text.jpg").write_text("this is no picture")
    whole = (folder / "right" / "00.png").read_bytes()
    (folder / "right" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "right" / "empty.png").touch()
    job_id = site.dataset(folder_train=str(folder), folder_pct_val=0, max_unusable_percent=12)
    assert site.wait_for_end(job_id) == "Done"
    body = site.json(f"/datasets/{job_id}.json")
    assert body["skipped"] == 3
    assert body["CreateDbTasks"][0]["entries"] == 24
    page = site.get(f"/datasets/{job_id}").text
    assert "text.jpg" in page
    assert f'href="/files/{job_id}/skipped.csv"' in page
    assert "cut.png" in site.get(f"/files/{job_id}/skipped.csv").text


def test_a_dataset_over_the_limit_is_cloned_with_one_that_is_enough(site: Site) -> None:
    folder = bars(site.data / "few", each=4)
    (folder / "left" / "00.png").write_bytes(b"")
    job_id = site.dataset(folder_train=str(folder), resize_width=16, resize_height=16)
    site.wait_for_end(job_id)
    body = site.json(f"/datasets/{job_id}.json")
    page = site.get(f"/datasets/{job_id}").text
    message = "1 of 12 images cannot be used, more than the limit of 5%: left/00.png: the file is empty."
    hint = "Raise “Limit of unusable images” (max_unusable_percent) to 9 to create the dataset without them."
    assert message in page and hint in page
    assert body["error"] == message and hint in body["hint"]
    found = re.search(r'href="([^"]*clone=[^"]*)">', page)
    assert found and "Skip up to 9% and try again" in page
    link = html.unescape(found[1])
    form = site.get(link).text
    assert re.search(r'name="max_unusable_percent"[^>]*value="9"', form)
    size = {"resize_width": 16, "resize_height": 16}
    twin = site.wait_until_done(site.dataset(folder_train=str(folder), max_unusable_percent=9, **size))
    warnings = site.json(f"/datasets/{twin}.json")["warnings"]
    assert any(text.startswith("1 image skipped: left/00.png: the file is empty.") for text in warnings)


def test_settings_without_effect_are_reported(site: Site) -> None:
    folder = bars(site.data / "bars")
    fields = {"dataset_name": "bars", "folder_train": str(folder), "seed": 4}
    answer = site.post(CREATE, **fields, backend="lmdb")
    assert answer.get_json()["warnings"] == [
        "backend=lmdb is ignored: records are stored in uncompressed TFRecord files."
    ]
    assert site.post(CREATE, **fields).get_json()["warnings"] == []


def test_the_same_seed_gives_the_same_records(site: Site) -> None:
    first = site.dataset(seed=4, max_unusable_percent=3)
    page = site.get(f"/datasets/images/classification/new?clone={first}").text
    assert re.search(r'name="seed"[^>]*value="4"', page)
    assert re.search(r'name="max_unusable_percent"[^>]*value="3"', page)
    twin = site.post(CREATE, clone=first).get_json()["id"]
    assert site.wait_for_end(first) == site.wait_for_end(twin) == "Done"
    contents = [
        {
            path.name: path.read_bytes()
            for path in site.services.store.get(job_id, DatasetJob).folder.glob("*.tfrecord")
        }
        for job_id in (first, twin)
    ]
    assert contents[0] == contents[1] and contents[0]


def test_a_form_is_cloned(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site, resize_mode="fill", folder_pct_val=10, group_name="a")
    page = site.get(site.get(f"/clone/{job_id}").headers["Location"]).text
    assert 'value="10"' in page
    answer = site.post(CREATE, clone=job_id)
    twin = answer.get_json()["id"]
    first = site.services.store.get(job_id, serializers.DatasetJob)
    second = site.services.store.get(twin, serializers.DatasetJob)
    assert {**first.recipe.as_json(), "seed": 0} == {**second.recipe.as_json(), "seed": 0}


def test_a_dataset_of_another_kind_is_not_cloned(site: Site, finished: Finished) -> None:
    job_id = finished.dataset(site)
    for answer in (
        site.get(f"/datasets/images/regression/new?clone={job_id}"),
        site.post("/datasets/images/regression", clone=job_id),
    ):
        assert answer.status_code == 400
        assert "is not a dataset for image regression" in answer.text


@pytest.mark.parametrize(("fields", "minimum"), [({}, 2), ({"folder_train_min_per_class": ""}, 1)])
def test_an_omitted_field_has_its_default_but_an_empty_one_does_not(
    site: Site, fields: dict[str, str], minimum: int
) -> None:
    job = site.services.store.get(site.dataset(**fields), serializers.DatasetJob)
    assert job.recipe.train.min_per_class == minimum


FORM_ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"dataset_name": " "}, "dataset_name", "name"),
    ({"folder_train": ""}, "folder_train", "required"),
    ({"folder_train": "/etc"}, "folder_train", "--data-root"),
    ({"folder_train": "/nonexistent"}, "folder_train", ""),
    ({"folder_train": "DATA/missing"}, "folder_train", "exist"),
    ({"folder_train": "DATA/../.."}, "folder_train", ""),
    ({"folder_train": "DATA/link"}, "folder_train", ""),
    ({"folder_train": "DATA/file"}, "folder_train", "folder"),
    ({"folder_train": "relative"}, "folder_train", ""),
    ({"folder_train": "DATA/a\0b"}, "folder_train", ""),
    ({"folder_train": "DATA/empty"}, "folder_train", "contains no files"),
    ({"folder_train": "DATA/bars/left"}, "folder_train", "has none"),
    ({"folder_train": "DATA/single"}, "folder_train", "contains no files"),
    ({"folder_pct_val": 101}, "folder_pct_val", "between"),
    ({"folder_pct_val": 80, "folder_pct_test": 40}, "folder_pct_test", "120%"),
    ({"folder_pct_val": 60, "folder_pct_test": 40}, "folder_pct_test", "nothing is left"),
    ({"resize_width": 0}, "resize_width", "between"),
    ({"resize_width": "wide"}, "resize_width", ""),
    ({"resize_mode": "magic"}, "resize_mode", ""),
    (
        {"folder_train_min_per_class": 9, "folder_train_max_per_class": 3},
        "folder_train_max_per_class",
        "less",
    ),
    ({"has_val_folder": "y", "folder_val": ""}, "folder_val", "required"),
    ({"method": "s3"}, "s3_bucket", "required"),
    ({"method": "s3", "s3_bucket": "images"}, "s3_bucket", "--remote-address s3://images"),
    ({"method": "lmdb"}, "method", "Not a valid choice"),
]


def test_a_form_error_names_its_field(site: Site) -> None:
    (site.data / "file").touch()
    (site.data / "empty").mkdir()
    (site.data / "single" / "one").mkdir(parents=True)
    (site.data / "link").symlink_to("/usr")
    usual = {"dataset_name": "kept name", "folder_train": bars(site.data / "bars")}
    for fields, field, words in FORM_ERRORS:
        filled = usual | {"resize_width": 16, "resize_height": 16} | fields
        filled = {name: str(value).replace("DATA", str(site.data)) for name, value in filled.items()}
        answer = site.post(CREATE, **filled)
        assert answer.status_code == 400, fields
        errors = answer.get_json()["errors"]
        assert field in errors and words in " ".join(errors[field]), (fields, errors)
        page = site.post("/datasets/images/classification", **filled)
        assert page.status_code == 400 and (field == "dataset_name" or "kept name" in page.text), fields
    assert site.json("/index.json")["datasets"] == []


def empty(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)


def one_class(folder: Path) -> None:
    bars(folder)
    for name in ("left", "right"):
        for path in (folder / name).iterdir():
            path.unlink()


def no_images(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "readme.txt").write_text("nothing here")


def only_corrupt(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            (folder / name / f"{index}.jpg").write_text("no picture")


@pytest.mark.parametrize("make", [empty, no_images])
def test_a_folder_without_images_is_refused(site: Site, make: Any) -> None:
    make(site.data / "odd")
    answer = site.post(CREATE, dataset_name="odd", folder_train=str(site.data / "odd"))
    assert answer.status_code == 400
    assert "No images found" in answer.get_json()["errors"]["folder_train"][0]


@pytest.mark.parametrize(("make", "words"), [(one_class, "one class"), (only_corrupt, "")])
def test_an_unusable_folder_fails_with_the_reason(site: Site, make: Any, words: str) -> None:
    make(site.data / "odd")
    job_id = site.dataset(folder_train=str(site.data / "odd"))
    assert site.wait_for_end(job_id) == "Error"
    body = site.json(f"/datasets/{job_id}.json")
    assert words in body["error"]
    assert body["error"] in site.json(f"/jobs/{job_id}/status")["error"]
    assert body["error"].split("\n")[0][:30] in site.get(f"/datasets/{job_id}").text.replace("&#39;", "'")


def test_the_example_image_is_resized(site: Site) -> None:
    answer = site.post(
        "/datasets/images/resize-example", width=40, height=20, channels=1, resize_mode="fill", encoding="png"
    )
    assert answer.get_json()["image"].startswith("data:image/png;base64,")
    assert answer.get_json()["bytes"] > 50
    wrong = site.post("/datasets/images/resize-example", resize_width=0, resize_height=20)
    assert wrong.status_code == 400
    assert "resize_width" in wrong.get_json()["errors"]


def test_many_models_of_a_dataset_are_paginated(
    site: Site, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.web.pages.dataset.SHOWN_MODELS", 2)
    job_id = finished.dataset(site)
    ids = [site.finished_model(job_id) for _ in range(5)]
    found = []
    for number, words in enumerate(["1–2 of 5", "3–4 of 5", "5–5 of 5"], 1):
        page = site.get(f"/datasets/{job_id}?models_page={number}").text
        table = page[page.index('id="job-children"') :]
        found += re.findall(r'<tr data-job="([^"]*)"', table)
        assert words in table
    assert found == ids[::-1]


def test_forms_link_to_their_pages_of_the_documentation(site: Site) -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    for kind in all_kinds().values():
        page = site.get(f"/datasets/{kind.route}/new").text
        links = re.findall(r'href="/docs/([\w-]+\.md)(?:#([\w-]+))?"', page)
        assert links, kind.name
        for name, topic in links:
            headings = re.findall(r"^#+ (.+)$", (docs / name).read_text(), re.MULTILINE)
            assert not topic or topic in [heading.lower().replace(" ", "-") for heading in headings]


def test_what_the_page_says_about_the_source_is_in_the_json(site: Site) -> None:
    folder = bars(site.data / "bars")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    rows = [f"{path},{path.parent},{number % 3 == 0}\n" for number, path in enumerate(files)]
    (folder / "train.csv").write_text("path,label,is_valid\n" + "".join([*rows, rows[0]]))
    size = {"resize_width": 16, "resize_height": 16}
    table = site.dataset(method="csv", table_train=str(folder / "train.csv"), **size)
    for path in files:
        split = site.data / "split" / ("train_set" if int(path.stem) % 2 else "val_set") / path
        split.parent.mkdir(parents=True, exist_ok=True)
        split.write_bytes((folder / path).read_bytes())
    folders = site.dataset(folder_train=str(site.data / "split"), **size)
    for job in (table, folders):
        site.wait_until_done(job)
        body, page = site.json(f"/datasets/{job}.json"), html.unescape(site.get(f"/datasets/{job}").text)
        sentences = [*body["notes"], *body["remarks"], *body["warnings"]]
        assert sentences and [text for text in sentences if text not in re.sub("</?bdi>", "", page)] == []
    body = site.json(f"/datasets/{table}.json")
    assert body["remarks"] == [
        "The column declares the splits: “is_valid” for validation, other rows for training.",
        f"1 line repeats an image with its label: {files[0]}.",
    ]
    note = "The splits of the source are used: train_set for training, val_set for validation."
    assert site.json(f"/datasets/{folders}.json")["notes"] == [note]


def test_the_form_of_a_kind_without_sources_opens(site: Site) -> None:
    assert site.get("/datasets/images/gradients/new").status_code == 200
