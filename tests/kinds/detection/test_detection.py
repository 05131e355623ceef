"""Object detection over HTTP, from the dataset form to drawn boxes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.worker.failure import UserFault
from tests.kinds.dataset_forms import Forms
from tests.site import Site


def write_table(folder: Path) -> Path:
    """Write noisy 32×32 images with one or two objects: bright squares and dark bars; return their table."""
    chance = np.random.default_rng(0)
    rows = ["image,left,top,right,bottom,class"]
    for number in range(64):
        pixels = chance.integers(90, 130, (32, 32), np.uint8)
        for half in range(1 + number % 2):
            name, width, height = (("square", 10, 10), ("bar", 12, 6))[(number >> 1 ^ half) & 1]
            left, top = int(chance.integers(0, 32 - width)), int(chance.integers(0, 16 - height) + 16 * half)
            pixels[top : top + height, left : left + width] = 240 if name == "square" else 10
            rows.append(f"{number}.png,{left},{top},{left + width},{top + height},{name}")
        Image.fromarray(pixels).save(folder / f"{number}.png")
    path = folder / "boxes.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-object-detection", tmp_path / "data")


@pytest.fixture
def table(forms: Forms) -> Path:
    return write_table(forms.data)


def fields_of(labels: Path, **fields: object) -> dict[str, Any]:
    """The fields of a dataset with the annotations ``labels`` of images in their folder."""
    size = {"resize_width": 32, "resize_height": 32, "resize_channels": 1}
    return {"train_image_folder": labels.parent, "train_label_folder": labels} | size | fields


KIND = "images/detection"


@pytest.mark.tensorflow
def test_boxes_become_a_model_that_detects_objects(site: Site) -> None:
    table = write_table(site.data)
    dataset = site.create(KIND, **fields_of(table))
    body = site.json(f"/datasets/{dataset}.json")
    assert body["classes"] == ["bar", "square"] and body["max_objects"] == 2
    assert "Objects per class" in site.get(f"/datasets/{dataset}").text
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}").text
    assert 'class="box"' in explored and "1 bar, 1 square" in explored

    settings = {"train_epochs": 12, "batch_size": 8, "learning_rate": 0.004, "lr_policy": "cosine"}
    settings |= {"use_mean": "pixel", "aug_flip": "fliplrud"}
    model = site.train(KIND, dataset, method="standard", standard_networks="detector", **settings)
    predicted, part = site.follow(model)
    assert any(item["score"] > 0.3 for item in predicted[0]) and 'class="box"' in part
    values = site.json(f"/models/{model}/metrics.json")["val"]["values"]
    assert all(0 <= value <= 1 for value in values["map"] + values["map50"])
    assert values["map50"][0] < 0.2 and values["map50"][-1] > 0.5
    assert values["map50"][-1] >= values["map"][-1]
    assert re.search(r"mAP \d+\.\d%", site.get("/").text)

    result, page = site.evaluate(model)
    assert result["metrics"]["map50"] == pytest.approx(max(values["map50"]), abs=1e-4)
    assert "Score threshold" in page and "Confusion matrix" in page and "AP@50" in page
    found = result["details"]["detections"]
    at_best = found["matrices"][found["thresholds"].index(found["best"])]
    higher = site.get(f"/models/{model}/evaluation?threshold=95").text
    assert "a score of at least 95%" in higher and "No object" in higher
    assert sum(map(sum, at_best[:-1])) == found["objects"] == sum(map(sum, found["matrices"][-1][:-1]))
    if "No mistakes." not in page:
        assert "Worst images" in page and 'data-status="found"' in page and re.search(r"F1 \d+% · ", page)
    _, page = site.compare_with_worse(model, dataset)
    assert (
        "is better by the most" in page and re.search(r">F1 \d+%[^<]* <bdi", page) and 'class="box"' in page
    )

    # Objects of a class that the model lacks are ignored, and boxes are resized with their images.
    renamed = table.with_name("rods.csv")
    renamed.write_text(table.read_text().replace("bar", "rod"))
    size = {"resize_width": 48, "resize_height": 48, "resize_channels": 3}
    other = site.create(KIND, **fields_of(renamed, **size))
    site.evaluate(model, dataset=other)
    evaluated = site.json(f"/models/{model}/evaluation.json")["evaluations"]
    (mapped,) = (item for item in evaluated if item["dataset_id"] == other)
    assert (mapped["classes"], mapped["lacking"]) == (["bar", "square"], ["rod"])
    before, after = (item["details"]["classes"] for item in (result, mapped))
    assert after[0]["support"] == 0 and after[1]["support"] == before[1]["support"] > 0
    assert after[1]["ap50"] == pytest.approx(before[1]["ap50"], abs=0.2)
    page = site.get(f"/models/{model}/evaluation?name={mapped['name']}").text
    assert "which are ignored: rod." in page and ('class="box"' in page or "No mistakes." in page)

    asked = {"image_path": str(wide_copy(table.parent / "1.png"))}
    answer, part = site.predict(KIND, model, **asked, view_extension_id="image-bounding-boxes")
    found, view = answer["predictions"], answer["view"]
    scores = [item["score"] for item in found]
    assert scores == sorted(scores, reverse=True) and 0 < scores[0] <= 1
    assert {item["label"] for item in found} <= {"bar", "square"}
    # The image is twice as wide as the one in the dataset.
    expected = np.array(line_of(table, "1.png")[:4]) * [2, 1, 2, 1]
    best = min(np.abs(np.array(item["box"]) - expected).max() for item in found if item["score"] > 0.2)
    assert best < 6
    assert sum(item["count"] for item in view["classes"]) == len(view["boxes"]) == len(found)
    _, part = site.predict(KIND, model, **asked)
    assert part.count('class="box"') == part.count("<li ") == len(found)
    assert 'type="range"' in part and "data:image/png;base64," in part


def wide_copy(path: Path) -> Path:
    copy = path.with_name(f"wide-{path.name}")
    with Image.open(path) as image:
        image.resize((64, 32)).save(copy)
    return copy


def test_records_contain_the_features_of_other_programs(forms: Forms, table: Path) -> None:
    made = forms.create(**fields_of(table, resize_width=16, encoding="png"))
    record = made.records()[0]
    left, top, right, bottom, name = line_of(table, record.filename)
    assert record.features["image/object/bbox/xmin"][0] == pytest.approx(left / 32)
    assert record.features["image/object/bbox/ymax"][0] == pytest.approx(bottom / 32)
    assert record.features["image/object/class/text"][0].decode() == name
    boxes = record.target(made.manifest.target)
    assert boxes[0, :4] == pytest.approx([left / 2, top, right / 2, bottom])


def line_of(table: Path, file: str) -> tuple[float, float, float, float, str]:
    """The edges and the class of the first object of an image."""
    line = next(line for line in table.read_text().splitlines() if line.startswith(f"{file},"))
    left, top, right, bottom, name = line.split(",")[1:]
    return float(left), float(top), float(right), float(bottom), name


def test_images_are_padded_before_they_are_resized(forms: Forms, table: Path) -> None:
    padding = {"padding_image_width": 64, "padding_image_height": 48}
    size = {"resize_image_width": 32, "resize_image_height": 24, "channel_conversion": "RGB"}
    source = {"train_image_folder": table.parent, "train_label_folder": table}
    made = forms.create(**source, **padding, **size)
    about = made.manifest
    assert (about.shape, about.padding) == ((24, 32, 3), (64, 48))
    record = made.records()[0]
    pixels = record.as_pixels()
    assert pixels[:15, :15].min() > 0 and not pixels[17:].any() and not pixels[:, 17:].any()
    assert record.source_size == (32, 32)
    edges = [edge / 2 for edge in line_of(table, record.filename)[:4]]
    assert record.target(about.target)[0, :4] == pytest.approx(edges)
    with pytest.raises(UserFault) as fault:
        forms.create(**fields_of(table, padding_image_width=64, padding_image_height=31))
    assert "64 images are larger than the padding of 64×31 pixels: 0.png (32×32)" in str(fault.value)


def test_pages_show_the_padding_and_regions_to_ignore(site: Site) -> None:
    """Regions to ignore are drawn but not counted."""
    table = write_table(site.data)
    box = {"category_id": 1, "bbox": [4, 4, 20, 20]}
    annotations = [{"id": n, "image_id": n % 6, "iscrowd": n // 6, **box} for n in range(12)]
    coco = {
        "images": [{"id": number, "file_name": f"{number}.png"} for number in range(6)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "thing"}],
    }
    path = table.with_name("crowds.json")
    path.write_text(json.dumps(coco))
    padding = {"padding_image_width": 64, "padding_image_height": 48}
    dataset = site.create(KIND, **fields_of(path, pct_val=0, **padding))
    explored = site.get(f"/datasets/images/detection/explore?job_id={dataset}").text
    assert explored.count('class="box"') == explored.count('class="box ignored"') == 6
    assert "1 box" in explored and "2 boxes" not in explored
    assert "<bdi>ignored</bdi>" in explored
    assert site.json(f"/datasets/{dataset}.json")["padding"] == [64, 48]
    assert "64×48, then resized" in site.get(f"/datasets/{dataset}").text


def test_errors_belong_to_their_fields(forms: Forms, table: Path) -> None:
    fields = {"train_image_folder": table.parent, "train_label_folder": table}
    assert list(forms.errors(**fields | {"train_label_folder": "/etc/passwd"})) == ["train_label_folder"]
    errors = forms.errors(**fields, val_image_folder=table.parent)
    assert errors["val_label_folder"] == ["Enter the annotations of the validation images."]


def test_the_form_summarizes_the_source(forms: Forms, table: Path) -> None:
    found = forms.summary(train_image_folder=table.parent, train_label_folder=table)
    assert found.facts[0] == "CSV annotations: 64 images with 96 objects of 2 classes."
    assert (found.bars_title, dict(found.bars)) == ("Objects per class", {"bar": 48, "square": 48})


def test_columns_of_a_csv_file_are_chosen_from_its_first_rows(forms: Forms, table: Path) -> None:
    table.write_text(table.read_text().replace("left", "gx").replace(",", "#"))
    fields = fields_of(table, delimiter="#")
    found = forms.summary(**fields)
    assert "has no column “left”" in found.problems[0]
    assert found.table[0][0] == "0.png" and ("gx", "gx") in found.options["left_column"]
    assert "has no column “left”" in forms.errors(**fields)["train_label_folder"][0]
    fields["left_column"] = "gx"
    assert forms.summary(**fields).table_head[:3] == ["image (image)", "gx (left)", "top (top)"]
    recipe = forms.create(**fields).recipe
    assert (recipe.table.left_column, recipe.table.delimiter) == ("gx", "#")


def test_the_classes_have_the_chosen_order(forms: Forms, table: Path) -> None:
    made = forms.create(**fields_of(table, format="csv", custom_classes="square, bar", val_min_box_size=3))
    assert made.manifest.target.names == ["square", "bar"]


def test_splits_of_a_hugging_face_folder_are_used(forms: Forms, table: Path) -> None:
    hub = forms.data / "hub"
    for split, numbers in (("train", range(4)), ("validation", range(4, 6))):
        (hub / split).mkdir(parents=True)
        lines = []
        for number in numbers:
            (forms.data / f"{number}.png").rename(hub / split / f"{number}.png")
            objects = {"bbox": [[2, 3, 10, 12]], "categories": ["thing"]}
            lines.append(json.dumps({"file_name": f"{number}.png", "objects": objects}))
        (hub / split / "metadata.jsonl").write_text("\n".join(lines))
    facts = " ".join(forms.summary(train_image_folder=hub).facts)
    assert "train/metadata.jsonl for training, validation/metadata.jsonl for validation." in facts
    made = forms.create(train_image_folder=hub, pct_test=25)
    assert made.counts == {"train": 3, "val": 2, "test": 1}
