"""Datasets for image classification from text files, CSV files and dataset folders, through the form's requests."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from digits.kinds.jobs import DatasetJob
from tests.site import Site, bars

pytestmark = pytest.mark.integration

CREATE = "/datasets/images/classification.json"
SCAN = "/datasets/images/classification/scan"
BASE = {"dataset_name": "bars", "resize_width": 8, "resize_height": 8}


def lists(folder: Path) -> dict[str, str]:
    """Return the texts of a text file, its labels file, and a CSV file of the images in ``folder``."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    classes = sorted({path.parts[0] for path in paths})
    return {
        "lines": "".join(f"{path} {classes.index(path.parts[0])}\n" for path in paths),
        "labels": "".join(f"{name}\n" for name in classes),
        "csv": "image,label\n" + "".join(f"{path},{path.parts[0]}\n" for path in paths),
    }


def upload(text: str, name: str = "file.txt") -> tuple[io.BytesIO, str]:
    return io.BytesIO(text.encode()), name


def create(site: Site, **fields: Any) -> str:
    answer = site.post(CREATE, **BASE, **fields)
    assert answer.status_code == 200, answer.get_json()
    return str(answer.get_json()["id"])


def entries(site: Site, job_id: str) -> dict[str, int]:
    assert site.wait_for_end(job_id) == "Done", site.json(f"/datasets/{job_id}.json")["error"]
    tasks = site.json(f"/datasets/{job_id}.json")["CreateDbTasks"]
    return {task["name"]: task["entries"] for task in tasks}


def errors(site: Site, **fields: Any) -> dict[str, list[str]]:
    answer = site.post(CREATE, **BASE, **fields)
    assert answer.status_code == 400
    found: dict[str, list[str]] = answer.get_json()["errors"]
    return found


def summary(site: Site, **fields: Any) -> dict[str, Any]:
    answer = site.post(SCAN, **fields)
    assert answer.status_code == 200, answer.text
    last: dict[str, Any] = json.loads(answer.text.splitlines()[-1])
    return last


def test_uploaded_text_files_become_a_dataset_that_can_be_cloned(site: Site) -> None:
    folder = bars(site.data / "bars")
    texts = lists(folder)
    job_id = create(
        site,
        method="textfile",
        textfile_train_images=upload(texts["lines"], "../../train.txt"),
        textfile_labels_file=upload(texts["labels"]),
        textfile_train_folder=str(folder),
        textfile_use_val="y",
        textfile_val_images=upload("".join(texts["lines"].splitlines(True)[:6])),
    )
    assert entries(site, job_id) == {"Create DB (train)": 24, "Create DB (val)": 6}
    assert site.json(f"/datasets/{job_id}.json")["labels"] == ["left", "middle", "right"]
    job = site.services.store.get(job_id, DatasetJob)
    assert (job.folder / "uploads" / "textfile_train_images.txt").read_text() == texts["lines"]
    page = site.get(f"/datasets/images/classification/new?clone={job_id}").text
    assert f'value="{job_id}"' in page and str(job.folder) not in page
    twin = create(site, clone=job_id)
    site.post(f"/jobs/{job_id}/delete")
    assert entries(site, twin) == {"Create DB (train)": 24, "Create DB (val)": 6}


def test_uploaded_lists_of_absolute_paths_need_no_folder(site: Site) -> None:
    folder = bars(site.data / "bars")
    texts = lists(folder)
    lines, table = (
        re.sub("(?m)^(?=(left|middle|right)/)", f"{folder}/", texts[name]) for name in ("lines", "csv")
    )
    fields: dict[str, Any] = {"method": "textfile", "textfile_use_val": "0"}
    uploads = {"textfile_train_images": lines, "textfile_labels_file": texts["labels"]}
    found = summary(site, **fields, **{name: upload(text) for name, text in uploads.items()})
    assert found["facts"][0] == "24 rows with the index of a class each." and not found["problems"]
    job_id = create(site, **fields, **{name: upload(text) for name, text in uploads.items()})
    assert entries(site, job_id) == {"Create DB (train)": 24}
    assert entries(site, create(site, clone=job_id)) == {"Create DB (train)": 24}
    fields = {"method": "csv", "folder_pct_val": 0}
    job_id = create(site, **fields, table_train_file=upload(table))
    assert entries(site, job_id) == {"Create DB (train)": 24}
    # On the server, the list can be in another folder than the images.
    (site.data / "lists").mkdir()
    path = site.data / "lists" / "table.csv"
    path.write_text(table)
    job_id = create(site, **fields, table_train=str(path))
    assert entries(site, job_id) == {"Create DB (train)": 24}


def test_uploaded_lists_of_relative_paths_without_a_folder_are_refused(site: Site) -> None:
    texts = lists(bars(site.data / "bars"))
    fields: dict[str, Any] = {"method": "textfile", "textfile_use_val": "0"}
    found = errors(
        site,
        **fields,
        textfile_train_images=upload(texts["lines"]),
        textfile_labels_file=upload(texts["labels"]),
    )
    assert (
        list(found) == ["textfile_train_folder"]
        and "contains the images" in found["textfile_train_folder"][0]
    )
    outside = texts["csv"].replace("left/", "/etc/")
    for table in (texts["csv"], outside):
        found = errors(site, method="csv", table_train_file=upload(table))
        assert list(found) == ["image_folder"] and "contains the images" in found["image_folder"][0]


def test_an_uploaded_csv_file_is_previewed_and_becomes_a_dataset(site: Site) -> None:
    folder = bars(site.data / "bars")
    texts = lists(folder)
    fields = {"method": "csv", "image_folder": str(folder)}
    found = summary(site, **fields, table_train_file=upload(texts["csv"]))
    assert found["table_head"] == ["image (image)", "label (label)"]
    assert found["table"][0] == ["left/00.png", "left"] and len(found["table"]) == 5
    assert found["bars"] == [["left", 8], ["middle", 8], ["right", 8]]
    job_id = create(site, **fields, table_train_file=upload(texts["csv"]), folder_pct_test=25)
    assert entries(site, job_id) == {"Create DB (train)": 12, "Create DB (val)": 6, "Create DB (test)": 6}
    assert sum(entries(site, create(site, clone=job_id)).values()) == 24
