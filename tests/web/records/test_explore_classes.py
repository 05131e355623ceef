"""Filtering records by each class that they contain, for kinds whose records can contain several."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data import manifest
from digits.data.records.index import classes_path, names_path
from digits.kinds.jobs import DatasetJob
from tests.site import Site
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site

CLASSES = ["cat", "dog"]
# Every image by name, and the classes that it contains. Dogs are in most images, so they are never the rarest class.
CONTENTS = {
    f"{number}-{'-'.join(found) or 'empty'}": found
    for number, found in enumerate([["cat", "dog"]] * 4 + [["dog"]] * 5 + [["cat"]] * 2 + [[]] * 3)
}


def write_images(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    for number, name in enumerate(CONTENTS):
        Image.fromarray(np.full((16, 16), 10 * number, np.uint8)).save(folder / "images" / f"{name}.png")
    return folder / "images"


def write_labels(folder: Path) -> dict[str, str]:
    rows = [f"images/{name}.png,{' '.join(found)}" for name, found in CONTENTS.items()]
    (folder / "labels.csv").write_text("\n".join(["image,animals", *rows]))
    return {"table_train": str(folder / "labels.csv")}


def write_boxes(folder: Path) -> dict[str, str]:
    (folder / "boxes").mkdir()
    for name, found in CONTENTS.items():
        boxes = [f"{animal} 0 0 0 {2 + 6 * place} 2 {7 + 6 * place} 9" for place, animal in enumerate(found)]
        (folder / "boxes" / f"{name}.txt").write_text("\n".join(f"{box} 0 0 0 0 0 0 0" for box in boxes))
    return {
        "train_image_folder": str(folder / "images"),
        "train_label_folder": str(folder / "boxes"),
        "custom_classes": "cat, dog",
        "val_min_box_size": "0",
    }


def write_masks(folder: Path) -> dict[str, str]:
    (folder / "masks").mkdir()
    for name, found in CONTENTS.items():
        mask = np.full((16, 16), 255, np.uint8)
        for animal in found:
            mask[8 * CLASSES.index(animal) :][:4] = CLASSES.index(animal)
        Image.fromarray(mask).save(folder / "masks" / f"{name}.png")
    (folder / "classes.txt").write_text("cat\ndog\n")
    return {
        "feature_folder": str(folder / "images"),
        "label_folder": str(folder / "masks"),
        "class_labels_file": str(folder / "classes.txt"),
    }


def create(site: Site, kind: str, fields: dict[str, str]) -> str:
    size = {"resize_width": 16, "resize_height": 16, "resize_channels": 1}
    answer = site.post(f"/datasets/images/{kind}.json", dataset_name=kind, seed=1, **size, **fields)
    assert answer.status_code == 200, answer.get_json()
    job_id = str(answer.get_json()["id"])
    assert site.wait_for_end(job_id) == "Done", site.json(f"/datasets/{job_id}.json")
    return job_id


def names(body: Any) -> set[str]:
    return {Path(record["filename"]).stem for record in body["records"]}


@pytest.mark.parametrize(
    ("kind", "write"),
    [("multilabel", write_labels), ("detection", write_boxes), ("segmentation", write_masks)],
)
def test_records_are_found_by_every_class_that_they_contain(site: Site, kind: str, write: Any) -> None:
    folder = site.data / kind
    write_images(folder)
    job_id = create(site, kind, write(folder))
    explore = f"/datasets/images/{kind}/explore"
    about = manifest.load(site.services.store.folder / job_id)
    order = about.target.names
    assert sorted(order) == CLASSES
    present = names(site.json(f"{explore}.json?job_id={job_id}&db=all"))
    expected = {
        number: {name for name in present if animal in CONTENTS[name]} for number, animal in enumerate(order)
    }
    expected[len(order)] = {name for name in present if not CONTENTS[name]}
    for number, found in expected.items():
        body = site.json(f"{explore}.json?job_id={job_id}&db=all&contain={number}")
        assert names(body) == found and body["total"] == len(found), number
    assert len(expected[order.index("dog")]) > 4  # images with cats as well
    counts = np.sum([split.class_counts for split in about.splits.values()], axis=0)
    assert counts.tolist() == [len(found) for found in expected.values()]

    dog = order.index("dog")
    page = site.get(f"{explore}?job_id={job_id}&db=all&contain={dog}&q=cat").text
    assert "4 of" in page and re.search(rf'<option value="{dog}"[^>]* selected', page)
    chips = dict(re.findall(r'id="filter-(\w+)" href="([^"]+)"', page))
    assert list(chips) == ["q", "contain"]
    assert "contain=" not in html.unescape(chips["contain"])
    assert site.get(f"{explore}?job_id={job_id}&contain={len(order) + 1}").status_code == 404

    if kind == "multilabel":
        version = site.post(f"/datasets/{job_id}/versions.json", dataset_name="half", keep=50)
        assert version.status_code == 200, version.get_json()
        assert site.wait_for_end(version.get_json()["id"]) == "Done"
        half = site.json(f"{explore}.json?job_id={version.get_json()['id']}&db=all&contain={dog}")
        assert half["total"] and all("dog" in CONTENTS[name] for name in names(half))


def test_a_dataset_without_lists_of_classes_and_names_is_filtered_by_groups(site: Site) -> None:
    folder = site.data / "older"
    write_images(folder)
    job_id = create(site, "multilabel", write_labels(folder))
    job_folder = site.services.store.folder / job_id
    about = site.services.store.get(job_id, DatasetJob).manifest()
    assert about
    for split in about.splits.values():
        split.class_counts.clear()
        for shard in split.shards:
            classes_path(job_folder / shard).unlink()
            names_path(job_folder / shard).unlink()
    explore = f"/datasets/images/multilabel/explore?job_id={job_id}"
    page = site.get(explore).text
    assert 'name="label"' in page and "File names are not searchable" in page
    assert site.get(f"{explore}&label=0").status_code == 200
    for argument in ("contain=0", "q=cat"):
        answer = site.client.get(f"{explore}&{argument}")
        assert answer.status_code == 404 and "create a new version" in answer.text.lower()
