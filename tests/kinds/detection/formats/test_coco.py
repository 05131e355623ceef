"""COCO files written by scripts: read unambiguous values, and skip and list the other annotations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from digits.data.sources.plan import Plan, Unusable
from tests.kinds.dataset_forms import Forms

WIDTH, HEIGHT = 48, 32
BOXES = {"1.png": [2, 3, 12, 13], "2.png": [20, 8, 30, 18]}
Item = dict[str, Any]


def content() -> dict[str, list[Item]]:
    return {
        "images": [
            {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT}
            for number, name in enumerate(BOXES, 1)
        ],
        "annotations": [
            {
                "id": number,
                "image_id": number,
                "category_id": 7,
                "bbox": [box[0], box[1], 10, 10],
                "iscrowd": 0,
            }
            for number, box in enumerate(BOXES.values(), 1)
        ],
        "categories": [{"id": 0, "name": "shapes"}, {"id": 7, "name": "square", "supercategory": "shapes"}],
    }


def write(folder: Path, file: dict[str, list[Item]], encoding: str = "utf-8") -> Path:
    for name in BOXES:
        Image.new("L", (WIDTH, HEIGHT)).save(folder / name)
    path = folder / "labels.json"
    path.write_text(json.dumps(file), encoding)
    return path


def plan(folder: Path, file: dict[str, list[Item]], encoding: str = "utf-8", **fields: Any) -> Plan:
    labels = write(folder, file, encoding)
    forms = Forms("image-object-detection", folder)
    return forms.plan(train_image_folder=folder, train_label_folder=labels, pct_val=0, **fields)


def boxes_of(found: Plan) -> dict[str, list[list[float]]]:
    train = found.splits["train"]
    assert found.target.names == ["square"]
    return {file: boxes.tolist() for file, boxes in zip(train.files, train.targets, strict=True)}


def each(part: str, change: Callable[[Item], Item]) -> dict[str, list[Item]]:
    file = content()
    file[part] = [change(item) for item in file[part]]
    return file


def without(*keys: str) -> Callable[[Item], Item]:
    return lambda item: {key: value for key, value in item.items() if key not in keys}


def polygon(item: Item) -> list[float]:
    left, top, width, height = item["bbox"]
    return [left, top, left + width, top, left + width, top + height]


def runs(item: Item, compressed: bool = True) -> Item:
    left, top, width, height = item["bbox"]
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8, "F")
    pixels[top : top + height, left : left + width] = 1
    counts = coco_masks.encode(pixels)["counts"].decode()
    if compressed:
        return {"size": [HEIGHT, WIDTH], "counts": counts}
    flat = pixels.ravel("F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    return {"size": [HEIGHT, WIDTH], "counts": np.diff([0, *changes, flat.size]).tolist()}


LIBERTIES = {
    "image ids of annotations are texts": each(
        "annotations", lambda item: item | {"image_id": str(item["image_id"])}
    ),
    "ids of images are texts": each("images", lambda item: item | {"id": str(item["id"])}),
    "category ids are texts": each("categories", lambda item: item | {"id": str(item["id"])}),
    "ids of annotations are floats": each(
        "annotations",
        lambda item: item | {key: float(item[key]) for key in ("id", "image_id", "category_id")},
    ),
    "ids of images are floats": each("images", lambda item: item | {"id": float(item["id"])}),
    "no ids of annotations": each("annotations", without("id")),
    "iscrowd is a boolean": each("annotations", lambda item: item | {"iscrowd": False}),
    "no iscrowd": each("annotations", without("iscrowd")),
    "nulls": each("annotations", lambda item: item | {"iscrowd": None, "id": None, "area": None}),
    "images without a size": each("images", lambda item: item | {"width": None, "height": "unknown"}),
    "sizes are floats": each("images", lambda item: item | {"width": 48.0, "height": 32.0}),
    "boxes of texts": each(
        "annotations", lambda item: item | {"bbox": [str(value) for value in item["bbox"]]}
    ),
    "numbers that are not finite": each(
        "annotations", lambda item: item | {"area": float("nan"), "score": -float("inf")}
    ),
    "an image is listed twice": content() | {"images": content()["images"] * 2},
    "names are numbers": each("images", lambda item: item | {"license": True, "id": item["id"]}),
}
SHAPES = {
    "polygons": each("annotations", lambda item: without("bbox")(item) | {"segmentation": [polygon(item)]}),
    "one polygon": each("annotations", lambda item: item | {"bbox": None, "segmentation": polygon(item)}),
    "pairs": each(
        "annotations",
        lambda item: item | {"bbox": [], "segmentation": np.reshape(polygon(item), (-1, 2)).tolist()},
    ),
    "compressed run lengths": each(
        "annotations", lambda item: without("bbox")(item) | {"segmentation": runs(item)}
    ),
    "run lengths": each(
        "annotations", lambda item: without("bbox")(item) | {"segmentation": runs(item, False)}
    ),
}


@pytest.mark.parametrize("liberty", LIBERTIES)
def test_liberties_without_two_meanings_are_read(tmp_path: Path, liberty: str) -> None:
    found = plan(tmp_path, LIBERTIES[liberty])
    assert boxes_of(found) == {name: [[*box, 0]] for name, box in BOXES.items()}
    assert not found.warnings and not found.unusable


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_the_encodings_of_editors_are_read(tmp_path: Path, encoding: str) -> None:
    assert len(boxes_of(plan(tmp_path, content(), encoding))) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_without_a_bbox_get_the_box_around_their_shape(tmp_path: Path, shape: str) -> None:
    found = plan(tmp_path, SHAPES[shape])
    assert boxes_of(found) == {name: [[*box, 0]] for name, box in BOXES.items()}
    assert found.warnings == [
        "labels.json: 2 objects without a bbox: the boxes around their shapes are used."
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bbox": ["2", "x", "10", "10"]}, "Expected `float`, got `str` - at `$.bbox[1]`"),
        ({"bbox": [float("nan"), 1, 2, 3]}, "Expected `float`, got `null` - at `$.bbox[0]`"),
        ({"image_id": 1.5}, "Expected `int | str`, got `float` - at `$.image_id`"),
        ({"category_id": None}, "Object missing required field `category_id`"),
        (
            {"bbox": None, "segmentation": [[1, 2, 3, 4]]},
            "a polygon has 4 coordinates: at least three pairs are required",
        ),
        (
            {"bbox": None, "segmentation": {"size": [2, 2], "counts": [1]}},
            "its run lengths do not add up to 4 pixels",
        ),
    ],
)
def test_annotations_that_cannot_be_read_are_listed(tmp_path: Path, change: Item, reason: str) -> None:
    file = content()
    file["annotations"].append(file["annotations"][0] | {"id": 31} | change)
    found = plan(tmp_path, file, max_unusable_percent=50)
    assert found.unusable == [Unusable("labels.json, annotation 31", reason, "train", is_image=False)]
    assert boxes_of(found) == {name: [[*box, 0]] for name, box in BOXES.items()}


def test_objects_without_a_shape_are_named(tmp_path: Path) -> None:
    file = content()
    file["annotations"].append({"image_id": 1, "category_id": 7, "caption": "a square"})
    found = plan(tmp_path, file)
    assert len(boxes_of(found)) == 2
    assert found.warnings == ["labels.json: 1 object without a bbox or polygon: not used (annotation 3)."]


def test_entries_of_the_same_image_are_one_image(tmp_path: Path) -> None:
    file = content()
    file["images"].append(file["images"][0] | {"id": 3})
    file["annotations"].append(file["annotations"][1] | {"id": 3, "image_id": 3})
    found = boxes_of(plan(tmp_path, file))
    assert found["1.png"] == [[*BOXES["1.png"], 0], [*BOXES["2.png"], 0]] and len(found) == 2
