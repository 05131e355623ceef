"""Versions that add the records of another source of their kind, over HTTP."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.manifest import ADDED_FOLDER
from digits.data.records.records import Record, SplitReader
from digits.kinds.jobs import DatasetJob
from tests.datasets import photos
from tests.site import Site

SIZE = {"resize_width": 16, "resize_height": 16}


def boxes(folder: Path, count: int = 8, classes: tuple[str, ...] = ("car", "dog"), start: int = 0) -> Path:
    """Write images, with one more object in each than in the one before, and their COCO file."""
    names = [f"{number}.png" for number in range(start, start + count)]
    photos(folder, *names)
    found = [
        {"image_id": number, "category_id": number % len(classes), "bbox": [place, 2, 10, 12]}
        for number in range(count)
        for place in range(1 + number % 2)
    ]
    images = [
        {"id": number, "file_name": name, "width": 20, "height": 20} for number, name in enumerate(names)
    ]
    categories = [{"id": number, "name": name} for number, name in enumerate(classes)]
    body = {"images": images, "annotations": found, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(body))
    return folder


def masks(folder: Path, count: int = 8, classes: tuple[int, ...] = (0, 1), start: int = 0) -> Path:
    """Write images and label images with all ``classes`` in the right halves of half of them."""
    names = [f"{number}.png" for number in range(start, start + count)]
    photos(folder / "images", *names)
    (folder / "masks").mkdir()
    for number, name in enumerate(names):
        pixels = np.zeros((20, 20), np.uint8)
        pixels[:, 10:] = classes[number % len(classes)]
        Image.fromarray(pixels).save(folder / "masks" / name)
    return folder


def numbers(
    folder: Path, count: int = 8, columns: tuple[str, ...] = ("angle", "size"), start: int = 0
) -> Path:
    names = [f"{number}.png" for number in range(start, start + count)]
    photos(folder, *names)
    values = {"angle": 0.5, "size": 100.25, "weight": 7.5}
    rows = [[name, *(str(values[column] + start + n) for column in columns)] for n, name in enumerate(names)]
    table = folder / "table.csv"
    table.write_text("\n".join(",".join(row) for row in [["image", *columns], *rows]))
    return table


def targets(folder: Path, count: int = 8, start: int = 0) -> Path:
    names = [f"{number}.png" for number in range(start, start + count)]
    photos(folder / "images", *names)
    photos(folder / "targets", *names)
    return folder


def pairs(folder: Path, count: int = 8, start: int = 0) -> Path:
    names = [f"{number}.png" for number in range(start, start + count + 1)]
    photos(folder, *names)
    rows = [f"{names[n]},{names[n + 1]},{n % 2}" for n in range(count)]
    table = folder / "pairs.csv"
    table.write_text("\n".join(["image1,image2,same", *rows]))
    return table


# The route of each kind, the field of its source, and what writes a source.
KINDS: dict[str, tuple[str, str, Callable[..., Path]]] = {
    "detection": ("detection", "train_image_folder", boxes),
    "segmentation": ("segmentation", "feature_folder", masks),
    "regression": ("regression", "table_train", numbers),
    "image-to-image": ("processing", "feature_folder", targets),
    "pairs": ("pairs", "pair_source", pairs),
}


def create(site: Site, kind: str) -> str:
    """Create a dataset of eight records, and return its id."""
    route, field, write = KINDS[kind]
    return site.create(f"images/{route}", **{field: write(site.data / "first")}, **SIZE)


def records(site: Site, job_id: str) -> dict[str, dict[str, Record]]:
    job = site.services.store.get(job_id, DatasetJob)
    found = {}
    manifest = job.manifest()
    assert manifest
    for name, split in manifest.splits.items():
        with SplitReader(job.folder, split) as reader:
            found[name] = {(record := reader.read(n)).filename: record for n in range(len(reader))}
    return found


def target(site: Site, job_id: str) -> Any:
    manifest = site.services.store.get(job_id, DatasetJob).manifest()
    assert manifest
    return manifest.target


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_is_added_to_a_dataset_of_its_kind(site: Site, kind: str) -> None:
    parent = create(site, kind)
    _, field, write = KINDS[kind]
    assert f"/datasets/{parent}/add" in site.get(f"/datasets/{parent}").text
    page = site.get(f"/datasets/{parent}/add").text
    assert f'name="{field}"' in page and "Create version" in page and 'name="resize_width"' not in page
    source = write(site.data / "more", count=4, start=6)  # two of these are known, with other targets
    version = site.api.create_version(parent, "more", added_folder=source).id
    assert site.wait_for_end(version) == "Done", site.json(f"/datasets/{version}.json")
    before, after = records(site, parent), records(site, version)
    body = site.json(f"/datasets/{version}.json")
    noun = "pairs" if kind == "pairs" else "images"
    assert f"2 {noun} left out, which the dataset has already: 6.png" in str(body["warnings"])
    assert sum(map(len, after.values())) == 8 + 2
    for split, found in before.items():  # the images of the dataset keep their splits
        assert {name: record.data for name, record in found.items()}.items() <= {
            name: record.data for name, record in after[split].items()
        }.items()
    assert body["version_of"]["changes"] == "images added"
    rows = site.get(body["version_of"]["changes_url"]).text.splitlines()[1:]
    assert len(rows) == 2 and all(",added,," in row for row in rows)
    assert not (site.services.store.get(version, DatasetJob).folder / ADDED_FOLDER).exists()
    clone = site.client.get(f"/clone/{version}", follow_redirects=True).text
    assert f'name="{field}"' in clone and f'value="{source}' in clone


def test_classes_are_matched_by_name_and_new_ones_need_consent(site: Site) -> None:
    parent = create(site, "detection")
    source = boxes(site.data / "more", 4, ("emu", "dog", "car"), start=20)
    fields = {"dataset_name": "more", "train_image_folder": str(source), "added_split": "test"}
    refused = site.post(f"/datasets/{parent}/versions.json", **fields).get_json()["id"]
    assert site.wait_for_end(refused) == "Error"
    page = site.get(f"/datasets/{refused}").text
    assert "does not have 1 class of the new images: emu." in page
    (again,) = re.findall(r'href="([^"]+)">Add new classes and try again', page)
    clone = site.client.get(html.unescape(again), follow_redirects=True).text
    assert re.search(r'<input checked[^>]*name="new_classes"', clone) and f'value="{source}"' in clone

    scanned = site.post("/datasets/images/detection/scan", **fields, adds_to=parent)
    summary = json.loads(scanned.data.splitlines()[-1])
    (asked,) = [item for item in summary["remedies"] if item["stops"]]
    assert "1 class of the new images: emu." in asked["text"] and asked["fields"] == {"new_classes": True}
    shown = {"adds_to": parent, "found": json.dumps(summary), "own": "*"}
    page = site.post(f"/datasets/{parent}/versions/form", **fields, **shown).text
    assert ">Add new classes</button>" in page and 'aria-disabled="true"' in page
    page = site.post(f"/datasets/{parent}/versions/form", **fields, **shown, new_classes="y").text
    assert ">Add new classes</button>" not in page and 'aria-disabled="true"' not in page

    version = site.post(f"/datasets/{parent}/versions.json", **fields, new_classes="y").get_json()["id"]
    assert site.wait_for_end(version) == "Done"
    assert target(site, version).names == ["car", "dog", "emu"]
    added = records(site, version)["test"]
    words = {
        name: target(site, version).describe(record.target(target(site, version)))
        for name, record in added.items()
    }
    assert words == {"20.png": "1 emu", "21.png": "2 dog", "22.png": "1 car", "23.png": "2 emu"}


def test_an_image_with_more_objects_than_any_before_extends_all_records(site: Site) -> None:
    parent = create(site, "detection")
    source = boxes(site.data / "more", 2, start=20)
    file = source / "annotations.json"
    body = json.loads(file.read_text())
    body["annotations"] += [{"image_id": 0, "category_id": 1, "bbox": [n, n, 5, 5]} for n in range(6)]
    file.write_text(json.dumps(body))
    version = site.api.create_version(parent, "more", added_folder=source).id
    assert site.wait_for_end(version) == "Done"
    spec = target(site, version)
    assert spec.shape == [7, 5] and target(site, parent).shape == [2, 5]
    counts = {
        name: int(spec.count(record.target(spec)).sum())
        for split in records(site, version).values()
        for name, record in split.items()
    }
    assert counts["20.png"] == 7 and counts["0.png"] == 1 and counts["1.png"] == 2


def test_new_classes_of_masks_are_added_at_the_end(site: Site) -> None:
    parent = create(site, "segmentation")
    assert target(site, parent).names == ["background", "class 1"]
    source = masks(site.data / "more", 4, (1, 2), start=20)
    fields = {"added_folder": source, "new_classes": True, "added_split": "train"}
    version = site.api.create_version(parent, "more", **fields).id
    assert site.wait_for_end(version) == "Done", site.json(f"/datasets/{version}.json")
    spec = target(site, version)
    assert spec.names == ["background", "class 1", "class 2"] and len(spec.mean) == 3
    value = records(site, version)["train"]["21.png"].target(spec)
    assert value[0, 0] == 0 and value[0, -1] == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("angle",), "The new images have the numbers angle, those of the dataset angle, size."),
        (("angle", "size", "weight"), "numbers angle, size, weight, those of the dataset angle, size."),
    ],
)
def test_a_table_with_other_columns_is_refused(site: Site, columns: tuple[str, ...], message: str) -> None:
    parent = create(site, "regression")
    table = numbers(site.data / "more", 4, columns, start=20)
    fields = {"table_train": str(table), "method": "csv"}
    scanned = site.post("/datasets/images/regression/scan", **fields, adds_to=parent)
    summary = json.loads(scanned.data.splitlines()[-1])
    assert message in str(summary["errors"]["table_train"])
    version = site.api.create_version(parent, "more", added_folder=table).id
    assert site.wait_for_end(version) == "Error"
    page = site.get(f"/datasets/{version}").text
    assert message in page and "or choose its columns" in page


def test_columns_are_matched_by_name(site: Site) -> None:
    parent = create(site, "regression")
    table = numbers(site.data / "more", 3, ("size", "angle"), start=20)
    version = site.api.create_version(parent, "more", added_folder=table, added_split="val").id
    assert site.wait_for_end(version) == "Done"
    record = records(site, version)["val"]["20.png"]
    assert record.target(target(site, version)).tolist() == [20.5, 120.25]
    whole = np.array(
        [each.target(target(site, version)) for each in records(site, version)["train"].values()]
    )
    assert np.allclose(target(site, version).mean, whole.mean(axis=0))


def test_splits_of_the_source_are_kept(site: Site) -> None:
    parent = create(site, "detection")
    source = site.data / "more"
    boxes(source / "train", 3, start=20)
    boxes(source / "test", 2, start=30)
    version = site.api.create_version(parent, "more", added_folder=source).id
    assert site.wait_for_end(version) == "Done"
    found = records(site, version)
    assert {"20.png", "21.png", "22.png"} <= found["train"].keys() and {*found["test"]} == {
        "30.png",
        "31.png",
    }


def test_edits_of_records_and_a_new_size_apply_with_additions(site: Site) -> None:
    parent = create(site, "segmentation")
    source = masks(site.data / "more", 4, start=20)
    shutil.rmtree(site.data / "first")  # a version reads the records of its parent
    fields = {"added_folder": source, "edits": json.dumps({"exclude": [["train", 0]]}), "resize_width": 8}
    version = site.api.create_version(parent, "more", **fields).id
    assert site.wait_for_end(version) == "Done", site.json(f"/datasets/{version}.json")
    body = site.json(f"/datasets/{version}.json")
    assert body["version_of"]["changes"] == "1 image excluded, images added"
    assert sum(task["entries"] for task in body["CreateDbTasks"]) == 8 - 1 + 4
    spec = target(site, version)
    assert all(each.target(spec).shape == (16, 8) for each in records(site, version)["train"].values())


def test_impossible_sources_are_refused(site: Site) -> None:
    parent = create(site, "detection")
    bare, source = photos(site.data / "bare", "1.png"), site.data / "first"
    for fields, field, message in [
        ({"added_folder": "/etc"}, "train_image_folder", "outside the folders"),
        ({"adds_to": parent}, "train_image_folder", "Enter the folder of the images."),
        ({"added_folder": str(source), "added_split": "all"}, "added_split", "Not a valid choice"),
        ({"added_folder": str(bare)}, "train_label_folder", "No annotations found"),
        ({"adds_to": parent, "edits": "no"}, "dataset_name", "not valid"),
    ]:
        answer = site.post(f"/datasets/{parent}/versions.json", dataset_name="no", **fields)
        errors = answer.get_json()["errors"]
        assert answer.status_code == 400 and message in str(errors.get(field)), errors


def test_a_kind_that_cannot_add_says_what_to_do_instead(site: Site) -> None:
    folder = photos(site.data / "gan", *(f"{number}.png" for number in range(6)))
    parent = site.create("images/gan", image_folder=folder, center_crop=0, **SIZE)
    assert f"/datasets/{parent}/add" not in site.get(f"/datasets/{parent}").text
    refused = site.get(f"/datasets/{parent}/add")
    assert refused.status_code == 400 and "then clone it to create it again" in refused.text


def test_images_of_a_label_are_added_to_a_dataset_of_labels(site: Site) -> None:
    names = [f"{number}.png" for number in range(8)]
    folder = photos(site.data / "first", *names)
    rows = [f"{name},{'sea sky' if number % 2 else 'sky'}" for number, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["image,labels", *rows]))
    parent = site.create("images/multilabel", table_train=folder / "labels.csv", **SIZE)
    # The verdict on a model leads here.
    assert '<option selected value="sea">' in site.get(f"/datasets/{parent}/add?class=sea").text
    more = photos(site.data / "more", "new.png")
    version = site.api.create_version(parent, "more", added_folder=more, added_class="sea").id
    assert site.wait_for_end(version) == "Done"
    assert records(site, version)["train"]["new.png"].features["target/labels"] == [1, 0]
