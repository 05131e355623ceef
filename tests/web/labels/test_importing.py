"""Labels that begin with the folders of classes or with annotations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.labels import create, image, photo
from tests.site import Site, bars
from tests.web.trained import shared_site

pytestmark = pytest.mark.integration
site = shared_site


def refused(site: Site, **fields: Any) -> str:
    sent = {"name": "a", "kind": "images/classification", "folder": str(site.data / "bars"), **fields}
    answer = site.client.post("/labels.json", json=sent)
    assert answer.status_code == 400, answer.get_json()
    message: str = answer.get_json()["error"]["message"]
    return message


def rows_of(site: Site, job: str) -> dict[str, Any]:
    return {row["path"]: row for row in site.json(f"/labels/{job}/images.json?size=500")["images"]}


def test_images_begin_with_the_names_of_their_folders(site: Site) -> None:
    folder = bars(site.data / "bars")
    photo(0).save(folder / "loose.png")
    (folder / "left" / "99.png").write_text("text")
    job = create(
        site, "classification", folder=str(folder), classes=["other", "Right"], folders_are_classes=True
    )
    labels = site.json(f"/labels/{job}.json")
    assert [item["name"] for item in labels["classes"]] == ["other", "Right", "left", "middle"]
    assert (labels["states"]["labeled"], labels["states"]["none"]) == (24, 1)
    assert labels["images_of_classes"] == {"0": 0, "1": 8, "2": 8, "3": 8}
    assert any("1 image outside of the folders" in text for text in labels["warnings"])
    assert any("left/99.png" in text and "not imported" in text for text in labels["warnings"])
    for path, row in rows_of(site, job).items():
        if row["state"] == "labeled":
            entry = image(site, job, row["n"])
            assert (entry["by"], entry["rev"]) == ("imported", 1)
            assert entry["label"] == {"right": 1, "left": 2, "middle": 3}[path.split("/")[0]]
    frozen = site.client.post(f"/labels/{job}/datasets.json", json={"name": "d", "width": 16, "height": 16})
    dataset = site.json(f"/datasets/{site.wait_until_done(frozen.get_json()['id'])}.json")
    assert sum(task["entries"] for task in dataset["CreateDbTasks"]) == 24
    photo(1).save(folder / "left" / "new.png")
    site.client.post(f"/labels/{job}/list.json")
    site.wait_until_done(job)
    assert site.json(f"/labels/{job}.json")["states"]["labeled"] == 24
    answer = site.client.post(f"/labels/{job}/accept/undo.json", json={"batch": "imported"})
    assert answer.get_json()["count"] == 24


def annotated(folder: Path) -> Path:
    """Write a COCO file of three images of 60×40 pixels, one of them without objects, and one that is missing."""
    folder.mkdir()
    for number in range(4):
        photo(number).save(folder / f"{number}.png")
    images = [{"id": n, "file_name": f"{n}.png", "width": 60, "height": 40} for n in (0, 1, 2, 9)]
    boxes = [
        (0, 1, [1.25, 2, 10, 20.5]),
        (0, 2, [45, 10, 20, 20]),
        (1, 2, [0, 0, 5, 5]),
        (9, 1, [1, 1, 5, 5]),
    ]
    objects = [
        {"id": place, "image_id": number, "category_id": category, "bbox": box, "iscrowd": 0}
        for place, (number, category, box) in enumerate(boxes, 1)
    ]
    categories = [{"id": 1, "name": "Dog"}, {"id": 2, "name": "bird"}]
    file = folder / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return file


def test_images_begin_with_the_boxes_of_annotations(site: Site) -> None:
    folder = site.data / "annotated"
    file = annotated(folder)
    job = create(site, folder=str(folder), annotations=str(file))
    labels = site.json(f"/labels/{job}.json")
    assert [item["name"] for item in labels["classes"]] == ["cat", "dog", "bird"]
    rows = rows_of(site, job)
    assert [rows[f"{n}.png"]["state"] for n in range(4)] == ["labeled", "labeled", "none", "none"]
    # The second box extends beyond the image, which a warning says.
    assert image(site, job, rows["0.png"]["n"])["objects"] == [
        {"class": 1, "box": [1.25, 2.0, 11.25, 22.5]},
        {"class": 2, "box": [45.0, 10.0, 60.0, 30.0]},
    ]
    warnings = "\n".join(labels["warnings"])
    assert "1 image not found" in warnings and "clipped" in warnings and "has no objects" in warnings
    assert "imported" in site.get(f"/labels/{job}", headers={"Accept": "text/html"}).text


def test_boxes_beside_the_images_are_in_pixels_of_the_upright_image(site: Site) -> None:
    folder = site.data / "yolo"
    folder.mkdir()
    photo(0).save(folder / "a.png")
    (folder / "a.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (folder / "classes.txt").write_text("cat\ndog\n")
    job = create(site, folder=str(folder), annotations=str(folder), classes=[])
    assert [item["name"] for item in site.json(f"/labels/{job}.json")["classes"]] == ["cat", "dog"]
    assert image(site, job, 0)["objects"] == [{"class": 1, "box": [15.0, 10.0, 45.0, 30.0]}]


def test_sources_that_are_not_clear_are_refused(site: Site) -> None:
    bars(site.data / "bars")
    assert "Only for image classification" in refused(site, kind="images/detection", folders_are_classes=1)
    assert "Only for object detection" in refused(site, annotations=str(site.data / "bars"))
    splits = site.data / "splits"
    for name in ("train", "val"):
        shutil.copytree(site.data / "bars", splits / name)
    assert "not classes but splits" in refused(site, folder=str(splits), folders_are_classes=True)
    cases = site.data / "cases"
    for name in ("Cat", "cat"):
        shutil.copytree(site.data / "bars" / "left", cases / name)
    assert "the same class" in refused(site, folder=str(cases), folders_are_classes=True)
    detection = {"kind": "images/detection", "annotations": str(site.data / "bars")}
    assert "no annotations" in refused(site, **detection)
