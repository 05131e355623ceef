"""Object detection over HTTP, from the dataset form to drawn boxes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data import manifest, records
from tests.site import Site


@pytest.fixture
def table(site: Site) -> Path:
    """Noisy 32×32 images with one or two objects: bright squares and dark bars."""
    chance = np.random.default_rng(0)
    rows = ["image,left,top,right,bottom,class"]
    for number in range(64):
        pixels = chance.integers(90, 130, (32, 32), np.uint8)
        for half in range(1 + number % 2):
            name, width, height = (("square", 10, 10), ("bar", 12, 6))[(number >> 1 ^ half) & 1]
            left, top = int(chance.integers(0, 32 - width)), int(chance.integers(0, 16 - height) + 16 * half)
            pixels[top : top + height, left : left + width] = 240 if name == "square" else 10
            rows.append(f"{number}.png,{left},{top},{left + width},{top + height},{name}")
        Image.fromarray(pixels).save(site.data / f"{number}.png")
    path = site.data / "boxes.csv"
    path.write_text("\n".join(rows))
    return path


def create(site: Site, labels: Path, **fields: object) -> str:
    size = {"resize_width": 32, "resize_height": 32, "resize_channels": 1}
    answer = site.post(
        "/datasets/images/detection.json",
        **{"dataset_name": "shapes", "seed": 1, "train_image_folder": str(labels.parent), **size, **fields},
        train_label_folder=str(labels),
    )
    assert answer.status_code == 200, answer.get_json()
    return str(answer.get_json()["id"])


@pytest.mark.tensorflow
def test_boxes_become_a_model_that_detects_objects(site: Site, table: Path) -> None:
    dataset = create(site, table)
    assert site.wait_for_end(dataset) == "Done"
    body = site.json(f"/datasets/{dataset}.json")
    assert body["classes"] == ["bar", "square"] and body["max_objects"] == 2
    page = site.get(f"/datasets/{dataset}").text
    assert "Objects per class" in page
    explored = site.get(f"/datasets/images/detection/explore?job_id={dataset}").text
    assert 'class="box"' in explored and "1 bar, 1 square" in explored

    model = site.post(
        "/models/images/detection.json",
        model_name="shapes",
        dataset=dataset,
        method="standard",
        standard_networks="detector",
        train_epochs=12,
        random_seed=1,
        batch_size=8,
        solver_type="ADAM",
        learning_rate=0.004,
        lr_policy="cosine",
        use_mean="pixel",
        aug_flip="fliplrud",
    ).get_json()["id"]
    assert site.wait_for_end(model) == "Done", site.json(f"/models/{model}.json")
    predicted, part = site.follow(model)
    assert any(item["score"] > 0.3 for item in predicted[0]) and 'class="box"' in part
    values = site.json(f"/models/{model}/metrics.json")["val"]["values"]
    assert all(0 <= value <= 1 for value in values["map"] + values["map50"])
    assert values["map50"][0] < 0.2 and values["map50"][-1] > 0.5
    assert values["map50"][-1] >= values["map"][-1]
    assert re.search(r"mAP \d+\.\d\d%", site.get("/").text)

    result, page = site.evaluate(model)
    report = site.report(model)
    assert "Worst predictions" in report and "data:image/jpeg;base64," in report
    assert result["metrics"]["map50"] == pytest.approx(max(values["map50"]), abs=1e-4)
    assert page.count('alt="Prediction for') > 0 and 'class="box"' in page and "AP@50" in page
    assert re.search(r"F1 \d+% · ", page)
    _, page = site.compare_with_worse(model, dataset)
    assert "Most improved" in page and re.search(r"Second: F1 \d+%", page) and 'class="box"' in page

    # Objects of a class that the model lacks are ignored, and boxes are resized with their images.
    renamed = table.with_name("rods.csv")
    renamed.write_text(table.read_text().replace("bar", "rod"))
    other = create(site, renamed, resize_width=48, resize_height=48, resize_channels=3)
    assert site.wait_for_end(other) == "Done"
    site.evaluate(model, dataset=other)
    evaluated = site.json(f"/models/{model}/evaluation.json")["evaluations"]
    (mapped,) = (item for item in evaluated if item["dataset_id"] == other)
    assert (mapped["classes"], mapped["lacking"]) == (["bar", "square"], ["rod"])
    before, after = (item["details"]["classes"] for item in (result, mapped))
    assert after[0]["support"] == 0 and after[1]["support"] == before[1]["support"] > 0
    assert after[1]["ap50"] == pytest.approx(before[1]["ap50"], abs=0.2)
    page = site.get(f"/models/{model}/evaluation?name={mapped['name']}").text
    assert "which are ignored: rod." in page and 'class="box"' in page

    asked = {"job_id": model, "image_path": str(wide_copy(table.parent / "1.png"))}
    found = site.post("/models/images/detection/infer_one.json", **asked).get_json()["predictions"]
    scores = [item["score"] for item in found]
    assert scores == sorted(scores, reverse=True) and 0 < scores[0] <= 1
    assert {item["label"] for item in found} <= {"bar", "square"}
    true = next(line.split(",") for line in table.read_text().splitlines() if line.startswith("1.png"))
    # The image is twice as wide as the one in the dataset.
    expected = np.array(true[1:5], float) * [2, 1, 2, 1]
    best = min(np.abs(np.array(item["box"]) - expected).max() for item in found if item["score"] > 0.2)
    assert best < 6
    view = site.post(
        "/models/images/detection/infer_one.json", **asked, view_extension_id="image-bounding-boxes"
    ).get_json()["view"]
    assert sum(item["count"] for item in view["classes"]) == len(view["boxes"]) == len(found)
    part = site.client.post(
        "/models/images/detection/infer_one", data=asked, headers={"X-Fragment": "prediction"}
    ).text
    assert part.count('class="box"') == part.count("<li ") == len(found)
    assert 'type="range"' in part and "data:image/png;base64," in part and "<html" not in part


def wide_copy(path: Path) -> Path:
    copy = path.with_name(f"wide-{path.name}")
    with Image.open(path) as image:
        image.resize((64, 32)).save(copy)
    return copy


def test_records_contain_the_features_of_other_programs(site: Site, table: Path) -> None:
    dataset = create(site, table, resize_width=16, encoding="png")
    assert site.wait_for_end(dataset) == "Done"
    folder = site.services.store.folder / dataset
    about = manifest.load(folder)
    with records.SplitReader(folder, about.splits["train"]) as split:
        record = split.read(0)
    line = next(line for line in table.read_text().splitlines() if line.startswith(f"{record.filename},"))
    left, top, right, bottom = map(float, line.split(",")[1:5])
    assert record.features["image/object/bbox/xmin"][0] == pytest.approx(left / 32)
    assert record.features["image/object/bbox/ymax"][0] == pytest.approx(bottom / 32)
    assert record.features["image/object/class/text"][0].decode() == line.split(",")[5]
    assert record.target(about.target)[0, :4] == pytest.approx([left / 2, top, right / 2, bottom])


def test_images_are_padded_before_they_are_resized(site: Site, table: Path) -> None:
    padding = {"padding_image_width": 64, "padding_image_height": 48}
    size = {"resize_image_width": 32, "resize_image_height": 24, "channel_conversion": "RGB"}
    dataset = create(site, table, **padding, **size)
    assert site.wait_for_end(dataset) == "Done"
    folder = site.services.store.folder / dataset
    about = manifest.load(folder)
    assert (about.shape, about.padding) == ((24, 32, 3), (64, 48))
    with records.SplitReader(folder, about.splits["train"]) as split:
        record = split.read(0)
    pixels = record.as_pixels()
    assert pixels[:15, :15].min() > 0 and not pixels[17:].any() and not pixels[:, 17:].any()
    assert record.source_size == (32, 32)
    line = next(line for line in table.read_text().splitlines() if line.startswith(f"{record.filename},"))
    edges = [float(edge) / 2 for edge in line.split(",")[1:5]]
    assert record.target(about.target)[0, :4] == pytest.approx(edges)
    assert site.json(f"/datasets/{dataset}.json")["padding"] == [64, 48]
    assert "64×48, then resized" in site.get(f"/datasets/{dataset}").text
    page = site.get(f"/datasets/images/detection/new?clone={dataset}").text
    for name, value in padding.items():
        assert re.search(rf'name="{name}"[^>]*value="{value}"', page), name

    dataset = create(site, table, padding_image_width=64, padding_image_height=31)
    assert site.wait_for_end(dataset) == "Error"
    error = site.json(f"/datasets/{dataset}.json")["error"]
    assert "64 images are larger than the padding of 64×31 pixels: 0.png (32×32)" in error


def test_regions_to_ignore_are_drawn_but_not_counted(site: Site, table: Path) -> None:
    annotations = [
        {
            "id": number,
            "image_id": number % 6,
            "category_id": 1,
            "bbox": [4, 4, 20, 20],
            "iscrowd": number // 6,
        }
        for number in range(12)
    ]
    coco = {
        "images": [{"id": number, "file_name": f"{number}.png"} for number in range(6)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "thing"}],
    }
    path = table.with_name("crowds.json")
    path.write_text(json.dumps(coco))
    dataset = create(site, path, pct_val=0)
    assert site.wait_for_end(dataset) == "Done"
    explored = site.get(f"/datasets/images/detection/explore?job_id={dataset}").text
    assert explored.count('class="box"') == explored.count('class="box ignored"') == 6
    assert "1 thing" in explored and "2 thing" not in explored
    assert "<bdi>ignored</bdi>" in explored


def test_the_form_returns_with_the_errors_of_its_fields(site: Site, table: Path) -> None:
    fields = {
        "dataset_name": "no",
        "train_image_folder": str(site.data),
        "train_label_folder": str(site.data),
    }
    answer = site.client.post("/datasets/images/detection", data=fields)
    assert answer.status_code == 400 and "contains no annotations" in answer.text
    outside = site.post("/datasets/images/detection.json", **{**fields, "train_label_folder": "/etc/passwd"})
    assert outside.status_code == 400 and "train_label_folder" in outside.get_json()["errors"]
    lonely = {**fields, "train_label_folder": str(table), "val_image_folder": str(site.data)}
    errors = site.post("/datasets/images/detection.json", **lonely).get_json()["errors"]
    assert errors["val_label_folder"] == ["Enter the annotations of the validation images."]


def test_faulty_annotations_fail_the_task_and_name_the_line(site: Site, table: Path) -> None:
    table.write_text("0.png,1,1,9,9,cat\n1.png,1,one,9,9,cat\n")
    dataset = create(site, table)
    assert site.wait_for_end(dataset) == "Error"
    assert "line 2: “one” is not a number" in site.json(f"/datasets/{dataset}.json")["error"]


def test_the_form_summarizes_the_source(site: Site, table: Path) -> None:
    answer = site.client.post(
        "/datasets/images/detection/scan",
        data={"train_image_folder": str(site.data), "train_label_folder": str(table)},
    )
    assert "CSV annotations: 64 images with 96 objects of 2 classes." in answer.text
    assert "Objects per class" in answer.text


def test_columns_of_a_csv_file_are_chosen_from_its_first_rows(site: Site, table: Path) -> None:
    table.write_text(table.read_text().replace("left", "gx").replace(",", "#"))
    fields = {"train_image_folder": str(site.data), "train_label_folder": str(table), "delimiter": "#"}
    answer = site.client.post("/datasets/images/detection/scan", data=fields)
    summary = json.loads(answer.text.splitlines()[-1])
    assert "has no column “left”" in summary["problems"][0]
    assert summary["table"][0][0] == "0.png" and ["gx", "gx"] in summary["options"]["left_column"]
    refused = site.post("/datasets/images/detection.json", dataset_name="no", **fields).get_json()["errors"]
    assert "has no column “left”" in refused["train_label_folder"][0]

    chosen = {"delimiter": "#", "left_column": "gx"}
    answer = site.client.post("/datasets/images/detection/scan", data=fields | chosen)
    summary = json.loads(answer.text.splitlines()[-1])
    assert summary["table_head"][:3] == ["image (image)", "gx (left)", "top (top)"]
    dataset = create(site, table, **chosen)
    page = site.get(f"/datasets/images/detection/new?clone={dataset}").text
    assert '<option selected value="gx">' in page and re.search(r'name="delimiter"[^>]*value="#"', page)
    assert site.wait_for_end(dataset) == "Done"


def test_a_clone_is_filled_from_the_recipe(site: Site, table: Path) -> None:
    chosen = {"format": "csv", "custom_classes": "square, bar", "pct_val": 10, "val_min_box_size": 3}
    dataset = create(site, table, **chosen)
    page = site.get(f"/datasets/images/detection/new?clone={dataset}").text
    for name, value in {**chosen, "train_label_folder": table, "train_image_folder": table.parent}.items():
        if name == "format":
            assert re.search(r'<option selected value="csv">', page)
        else:
            assert re.search(rf'name="{name}"[^>]*value="{re.escape(str(value))}"', page), name
    assert site.wait_for_end(dataset) == "Done"
    assert site.json(f"/datasets/{dataset}.json")["classes"] == ["square", "bar"]


def test_splits_of_a_hugging_face_folder_are_used(site: Site, table: Path) -> None:
    for split, numbers in (("train", range(4)), ("validation", range(4, 6))):
        (site.data / "hub" / split).mkdir(parents=True)
        lines = []
        for number in numbers:
            (site.data / f"{number}.png").rename(site.data / "hub" / split / f"{number}.png")
            objects = {"bbox": [[2, 3, 10, 12]], "categories": ["thing"]}
            lines.append(json.dumps({"file_name": f"{number}.png", "objects": objects}))
        (site.data / "hub" / split / "metadata.jsonl").write_text("\n".join(lines))
    fields = {"train_image_folder": str(site.data / "hub"), "train_label_folder": ""}
    answer = site.client.post("/datasets/images/detection/scan", data=fields)
    summary = json.loads(answer.text.splitlines()[-1])
    assert "train/metadata.jsonl and validation/metadata.jsonl" in summary["suggestion"]["text"]
    assert summary["suggestion"]["fields"]["val_label_folder"] == str(
        site.data / "hub" / "validation" / "metadata.jsonl"
    )
    answer = site.post("/datasets/images/detection.json", dataset_name="hub", pct_test=25, **fields)
    dataset = answer.get_json()["id"]
    assert site.wait_for_end(dataset) == "Done"
    splits = manifest.load(site.services.store.folder / dataset).splits
    assert {name: split.count for name, split in splits.items()} == {"train": 3, "val": 2, "test": 1}
