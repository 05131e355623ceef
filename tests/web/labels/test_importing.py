"""Labels that begin with what exists: folders of classes, annotations, masks, tables, and datasets."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core import append_log
from digits.core.files import write_json
from digits.kinds.labeling.answers import Proposal
from digits.kinds.labeling.proposals import ROWS_FILE, RUNS, Run
from tests.labels import create, frozen, image, photo, rows_of, save
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


def by_path(site: Site, job: str) -> dict[str, Any]:
    return {row["path"]: row for row in rows_of(site, job)}


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
    assert any("1 image ignored directly in" in text for text in labels["warnings"])
    assert any("left/99.png" in text and "not imported" in text for text in labels["warnings"])
    for path, row in by_path(site, job).items():
        if row["state"] == "labeled":
            entry = image(site, job, row["n"])
            assert (entry["by"], entry["rev"]) == ("imported", 1)
            assert entry["label"] == {"right": 1, "left": 2, "middle": 3}[path.split("/")[0]]
    dataset = site.json(f"/datasets/{frozen(site, job)}.json")
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
    rows = by_path(site, job)
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


def test_folders_of_splits_contain_the_classes(site: Site) -> None:
    splits = site.data / "splits"
    for name in ("train", "val"):
        bars(splits / name)
    job = create(site, "classification", folder=str(splits), classes=[], folders_are_classes=True)
    labels = site.json(f"/labels/{job}.json")
    assert [item["name"] for item in labels["classes"]] == ["left", "middle", "right"]
    assert labels["states"]["labeled"] == 48


def test_images_with_crowds_stay_open(site: Site) -> None:
    folder = site.data / "crowds"
    file = annotated(folder)
    body = json.loads(file.read_text())
    body["annotations"][1]["iscrowd"] = 1
    file.write_text(json.dumps(body))
    job = create(site, folder=str(folder), annotations=str(file))
    rows = by_path(site, job)
    assert [rows[f"{n}.png"]["state"] for n in range(3)] == ["unlabeled", "labeled", "none"]
    assert image(site, job, rows["0.png"]["n"])["objects"] == [{"class": 1, "box": [1.25, 2.0, 11.25, 22.5]}]
    warnings = "\n".join(site.json(f"/labels/{job}.json")["warnings"])
    assert "1 image with regions to ignore" in warnings and "0.png" in warnings
    opened = site.json(f"/labels/{job}/next.json?count=20")["images"]
    assert rows["0.png"]["n"] in [each["n"] for each in opened]
    # A proposal would replace the other objects.
    run = Run(id="20260101-000000-abcdef", model="m", name="m", snapshot="s", epoch=1, at=1)
    target = RUNS.folder_of(site.services.store.folder / job, run.id)
    target.mkdir(parents=True)
    append_log.append(target / ROWS_FILE, [Proposal(image=n, score=0.9, objects=[]) for n in range(4)])
    write_json(target / RUNS.file, run)
    for row in rows.values():
        is_proposed = "predicted" in image(site, job, row["n"])
        assert is_proposed == (row["state"] == "none" and row["split"] == "train")
    sample = site.client.post(f"/labels/{job}/accept.json", json={"threshold": 0.5, "dry_run": True})
    assert sample.get_json()["count"] == sum(
        row["state"] == "none" and row["split"] == "train" for row in rows.values()
    )


def masks(folder: Path) -> Path:
    """Write three images, one of them turned, and their masks of colors, one of which has another size."""
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    turned = Image.Exif()
    turned[0x112] = 6
    for number in range(3):
        photo(number).save(folder / "images" / f"{number}.jpg", exif=turned if number == 1 else b"")
        pixels = np.zeros((40, 60), np.uint8)
        pixels[:20, :30], pixels[30:, 50:] = 1, 2
        pixels[0, 0] = 255
        Image.fromarray(pixels if number < 2 else pixels[:30]).save(folder / "masks" / f"{number}.png")
    (folder / "classes.txt").write_text("background\nroad\nsky\n")
    return folder


def test_images_begin_with_masks(site: Site) -> None:
    folder = masks(site.data / "segments")
    job = create(
        site,
        "segmentation",
        folder=str(folder / "images"),
        annotations=str(folder / "masks"),
        classes=["sky"],
    )
    labels = site.json(f"/labels/{job}.json")
    assert [item["name"] for item in labels["classes"]] == ["background", "sky", "class 1", "class 2"]
    rows = by_path(site, job)
    assert [rows[f"{n}.jpg"]["state"] for n in range(3)] == ["labeled", "labeled", "none"]
    expected = np.zeros((40, 60), np.uint8)
    expected[:20, :30], expected[30:, 50:] = 2, 3
    expected[0, 0] = 255
    for number in range(2):
        body = site.client.get(f"/labels/{job}/images/{rows[f'{number}.jpg']['n']}/mask").data
        drawn = np.asarray(Image.open(io.BytesIO(body)))
        assert np.array_equal(drawn, np.rot90(expected, -1) if number == 1 else expected)
    assert "2.png" in "\n".join(labels["warnings"])
    assert labels["images_of_classes"] == {"0": 2, "1": 0, "2": 2, "3": 2}


def table(folder: Path, head: str, *rows: str) -> str:
    """Write a table of photos, and return its path."""
    folder.mkdir()
    for number in range(len(rows)):
        photo(number).save(folder / f"{number}.png")
    lines = [head, *(f"{number}.png,{row}" for number, row in enumerate(rows))]
    (folder / "table.csv").write_text("\n".join(lines))
    return str(folder / "table.csv")


@pytest.mark.parametrize(
    ("kind", "head", "rows", "classes", "expected"),
    [
        ("classification", "image,label", ("dog", "Cat", "dog"), ["cat", "dog"], {"label": [1, 0, 1]}),
        (
            "multilabel",
            "image,red,round",
            ("1,0", "1,1", "0,0"),
            ["round", "red"],
            {"labels": [[1], [0, 1], []]},
        ),
        (
            "regression",
            "image,age,price",
            ("3,0.1", "-4.5,1e6", "5,7"),
            ["age", "price"],
            {"numbers": [{"0": 3, "1": 0.1}, {"0": -4.5, "1": 1e6}, {"0": 5, "1": 7}]},
        ),
    ],
)
def test_images_begin_with_tables(
    site: Site, kind: str, head: str, rows: tuple[str, ...], classes: list[str], expected: dict[str, Any]
) -> None:
    file = table(site.data / f"table-{kind}", head, *rows)
    given = classes[:1]
    job = create(site, kind, folder=str(Path(file).parent), annotations=file, classes=given)
    assert [item["name"] for item in site.json(f"/labels/{job}.json")["classes"]] == classes
    found = by_path(site, job)
    ((name, values),) = expected.items()
    assert [image(site, job, found[f"{n}.png"]["n"])[name] for n in range(3)] == values


def test_labels_begin_with_a_dataset(site: Site) -> None:
    folder = bars(site.data / "bars of a dataset")
    dataset = site.dataset(dataset_name="bars", folder_train=str(folder), folder_pct_val=25)
    page = site.get(f"/labels/new?dataset={dataset}", headers={"Accept": "text/html"}).text
    assert f'name="dataset" value="{dataset}"' in page and 'value="bars"' in page
    job = create(site, "classification", folder="", classes=[], dataset=dataset)
    labels = site.json(f"/labels/{job}.json")
    assert (labels["kind"], labels["folder"]) == ("images/classification", str(folder))
    assert [item["name"] for item in labels["classes"]] == ["left", "middle", "right"]
    assert labels["states"]["labeled"] == 24
    assert "“bars” is for image classification" in refused(site, kind="images/detection", dataset=dataset)


def test_boxes_are_the_same_after_a_dataset_from_labels(site: Site) -> None:
    job = create(site)  # two of whose images are turned
    rows = [row for row in by_path(site, job).values() if not row.get("reason")]
    for place, row in enumerate(rows):
        edges = [0.3 + place / 7, 1.25, row["width"] - place / 11, row["height"] - 0.125]
        objects = [{"class": place % 2, "box": edges}] if place else []
        assert save(site, job, row["n"], 0, "a", objects=objects).status_code == 200
    again = create(site, folder="", classes=[], dataset=frozen(site, job))
    found = by_path(site, again)
    for row in rows[1:]:
        (before,), (after,) = (
            image(site, labels, n)["objects"]
            for labels, n in ((job, row["n"]), (again, found[row["path"]]["n"]))
        )
        assert after["class"] == before["class"] and after["box"] == pytest.approx(before["box"], abs=0.001)
    assert found[rows[0]["path"]]["state"] == "none"


def test_sources_that_are_not_clear_are_refused(site: Site) -> None:
    bars(site.data / "bars")
    assert "Only for image classification" in refused(site, kind="images/detection", folders_are_classes=1)
    both = {"annotations": str(site.data / "bars"), "folders_are_classes": True}
    assert "only one of" in refused(site, **both)
    detection = {"kind": "images/detection", "annotations": str(site.data / "bars")}
    assert "no annotations" in refused(site, **detection)


def test_labels_that_cannot_be_imported_are_imported_when_their_source_is_corrected(site: Site) -> None:
    cases = site.data / "cases"
    for name in ("Cat", "cat"):
        shutil.copytree(bars(site.data / "bars of cases") / "left", cases / name)
    sent = {"name": "a", "kind": "images/classification", "folder": str(cases), "folders_are_classes": True}
    answer = site.client.post("/labels.json", json={**sent, "classes": "dog"})
    job = answer.get_json()["id"]
    assert site.wait_for_end(job) == "Error"
    assert "“Cat” and “cat” are the same class" in site.json(f"/jobs/{job}/status")["error"]
    page = site.get(f"/labels/{job}", headers={"Accept": "text/html"}).text
    assert "are the same class" in page and "List again" in page
    # Its class would have the number of one that is imported.
    refused = site.client.post(f"/labels/{job}/classes.json", json={"name": "bird"})
    assert refused.status_code == 409 and "not imported yet" in refused.get_json()["error"]["message"]
    (cases / "Cat").rename(cases / "bird")
    assert site.post(f"/labels/{job}/list").status_code == 302
    site.wait_until_done(job)
    labels = site.json(f"/labels/{job}.json")
    assert [item["name"] for item in labels["classes"]] == ["dog", "bird", "cat"]
    assert labels["states"]["labeled"] == 16
    assert site.client.post(f"/labels/{job}/classes.json", json={"name": "fish"}).get_json()["id"] == 3
