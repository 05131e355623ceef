"""The first records in the form of a dataset: images, boxes, masks and labels as creation would store them."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.kinds.forms import previews, scanning
from digits.kinds.forms.previews import MAX_PREVIEWS
from tests.kinds.dataset_forms import Forms

pytestmark = pytest.mark.integration  # every form is read by another program
SIZE = {"resize_width": 24, "resize_height": 16}


def save(path: Path, level: int, size: tuple[int, int] = (48, 32)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path)
    return path


def pixels(uri: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(b64decode(uri.partition(",")[2]))).convert("RGBA"))


def scan(kind: str, root: Path, **fields: Any) -> list[dict[str, Any]]:
    """The lines of the stream that the form reads; the last one has the first records."""
    sent = [(name, str(value)) for name, value in {**SIZE, **fields}.items()]
    lines = [json.loads(line) for line in scanning.scan(scanning.Request(kind, sent, [str(root)]))]
    assert lines[-1]["finished"] and lines[-2]["finished"] and not lines[-2]["previews"]
    return lines


def first(kind: str, root: Path, **fields: Any) -> list[dict[str, Any]]:
    return list(scan(kind, root, **fields)[-1]["previews"])


def test_classes_are_under_resized_images_and_every_class_is_shown(tmp_path: Path) -> None:
    for name, level in {"cat": 10, "dog": 200, "owl": 90}.items():
        for number in range(4 if name == "owl" else 20):
            save(tmp_path / "images" / name / f"{number}.png", level)
    found = first("image-classification", tmp_path, folder_train=tmp_path / "images")
    assert len(found) == MAX_PREVIEWS and [item["label"] for item in found[:3]] == ["cat", "dog", "owl"]
    assert {(item["width"], item["height"]) for item in found} == {(24, 16)}
    levels = {item["label"]: int(pixels(item["url"])[8, 12, 0]) for item in found}
    assert levels == {"cat": 10, "dog": 200, "owl": 90}


def test_boxes_are_drawn_where_they_are_stored(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "images" / f"{number}.png", 50)
        path = tmp_path / "labels" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("0 0.5 0.25 0.5 0.5\n")
    folders = {"train_image_folder": tmp_path / "images", "train_label_folder": tmp_path / "labels"}
    found = first("image-object-detection", tmp_path, **folders, train_classes="cup")
    assert len(found) >= 2
    for item in found:
        (box,) = item["boxes"]
        assert (box["left"], box["top"], box["width"], box["height"]) == (25, 0, 50, 50)
        assert box["color"].startswith("#") and item["label"].startswith("1 ")


def test_objects_that_almost_vanish_are_named_with_a_larger_size(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    for number in range(3):
        save(root / f"{number}.png", 50, (400, 400))
        (root / f"{number}.txt").write_text("0 0.5 0.5 0.02 0.02\n0 0.3 0.3 0.4 0.4\n1 0.6 0.6 0.4 0.4\n")
    words = (
        "Objects smaller than 2 pixels in images of 48×48: 3 of 9, such as 1.0×1.0. 112×112 keeps them all."
    )
    size = {"resize_width": 48, "resize_height": 48}
    last = scan("image-object-detection", root, train_image_folder=root, **size)[-1]
    (remedy,) = last["remedies"]
    assert remedy["text"] == words and not remedy["stops"]
    assert remedy["fields"] == {"resize_width": "112", "resize_height": "112", "resize_mode": "squash"}
    assert not scan("image-object-detection", root, train_image_folder=root, **remedy["fields"])[-1][
        "remedies"
    ]
    made = Forms("image-object-detection", root).create(train_image_folder=root, pct_val=0, **size)
    assert words in made.remarks


def test_areas_that_almost_vanish_are_named(tmp_path: Path) -> None:
    mask = np.zeros((400, 400), np.uint8)
    mask[:8, :8], mask[100:, 100:] = 1, 2
    for number in range(3):
        save(tmp_path / "images" / f"{number}.png", 50, (400, 400))
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
    size = {"resize_width": 48, "resize_height": 48}
    (remedy,) = scan("image-segmentation", tmp_path, feature_folder=tmp_path, **size)[-1]["remedies"]
    assert remedy["text"].startswith(
        "Areas of a class in an image smaller than 2 pixels in images of 48×48: 3 of 6"
    )


def test_masks_have_the_colors_of_their_classes(tmp_path: Path) -> None:
    mask = np.zeros((32, 48), np.uint8)
    mask[:, 24:] = 1
    for number in range(3):
        save(tmp_path / "images" / f"{number}.png", 50)
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
    folders = {"feature_folder": tmp_path / "images", "label_folder": tmp_path / "masks"}
    for item in first("image-segmentation", tmp_path, **folders):
        drawn = pixels(item["mask"])
        assert drawn.shape[:2] == (16, 24)
        assert len(np.unique(drawn[:, 12:].reshape(-1, 4), axis=0)) == 1
        assert tuple(drawn[0, 0]) != tuple(drawn[0, -1])
    request = scanning.Request("image-segmentation", [("feature_folder", str(tmp_path))], [str(tmp_path)])
    *_, last = map(json.loads, scanning.scan(request))
    assert [pixels(item["mask"]).shape[:2] for item in last["previews"]] == [(32, 48)] * 3


def test_labels_numbers_and_target_images(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for number in range(8):
        save(images / f"{number}.png", 20 * number)
        save(tmp_path / "targets" / f"{number}.png", 255 - 20 * number)
    (tmp_path / "tags.csv").write_text("image,tags\n" + "".join(f"{n}.png,big red\n" for n in range(8)))
    (tmp_path / "angles.csv").write_text("image,angle\n" + "".join(f"{n}.png,{n}.5\n" for n in range(8)))
    tags = first("image-multilabel", tmp_path, table_train=tmp_path / "tags.csv", image_folder=images)
    assert {item["label"] for item in tags} == {"big, red"}
    angles = first("image-regression", tmp_path, table_train=tmp_path / "angles.csv", image_folder=images)
    assert all(
        int(pixels(item["url"])[0, 0, 0]) / 20 + 0.5 == float(item["label"].split()[-1]) for item in angles
    )
    folders = {"feature_folder": images, "label_folder": tmp_path / "targets"}
    for item in first("image-processing", tmp_path, **folders):
        assert int(pixels(item["url"])[0, 0, 0]) + int(pixels(item["target"])[0, 0, 0]) == 255


def test_images_in_parquet_files(tmp_path: Path) -> None:
    encoded = [save(tmp_path / f"{number}.png", 10 * number).read_bytes() for number in range(8)]
    pq.write_table(pa.table({"image": encoded, "size": [1.5] * 8}), tmp_path / "train.parquet")
    found = first("image-regression", tmp_path, table_train=tmp_path / "train.parquet")
    assert found and all("1.5" in item["label"] for item in found)


def test_a_few_bad_files_are_one_click_away_from_a_dataset(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", number)
    (tmp_path / "data" / "a" / "4.png").write_bytes(b"")
    last = scan("image-classification", tmp_path, folder_train=tmp_path / "data")[-1]
    (remedy,) = last["remedies"]
    assert remedy["fields"] == {"max_unusable_percent": "9"} and "limit of 5%" in remedy["text"]
    assert remedy["stops"]
    assert any("a/4.png: the file is empty" in text for text in last["problems"])
    forms = Forms("image-classification", tmp_path / "data")
    made = forms.create(folder_train=tmp_path / "data", **SIZE, **remedy["fields"])
    assert made.manifest.skipped == 1
    last = scan("image-classification", tmp_path, folder_train=tmp_path / "data", **remedy["fields"])[-1]
    assert last["remedies"] == [] and len(last["previews"]) == last["total"] - 1 == 11


def test_rows_over_the_limit_do_not_hide_the_images(tmp_path: Path) -> None:
    rows = [f"{save(tmp_path / f'{n}.png', n).name},{'x' if n < 2 else n}" for n in range(10)]
    (tmp_path / "train.csv").write_text("\n".join(["image,angle", *rows]))
    last = scan("image-regression", tmp_path, table_train=tmp_path / "train.csv")[-1]
    (remedy,) = last["remedies"]
    limit = float(remedy["fields"]["max_unusable_percent"])
    assert limit >= 20 and last["previews"]
    forms = Forms("image-regression", tmp_path)
    assert forms.plan(table_train=tmp_path / "train.csv", max_unusable_percent=limit)


def test_a_source_that_takes_too_long_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        save(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", number)
    forms, fields = Forms("image-classification", tmp_path / "data"), {"folder_train": tmp_path / "data"}

    def stop(*arguments: object) -> None:
        raise previews._TimeIsUp

    found = forms.summary(**fields)
    assert found.previews
    monkeypatch.setattr(previews, "_make", stop)
    assert forms.summary(**fields) == replace(found, previews=[])


def test_unknown_settings_are_recommended_and_the_splits_of_the_source_are_counted(tmp_path: Path) -> None:
    for split, count in {"train": 20, "test": 4}.items():
        for number in range(count):
            save(tmp_path / "data" / split / "ab"[number % 2] / f"{number}.png", number, (50 + number, 50))
    root = [("folder_train", str(tmp_path / "data"))]
    *_, line = scanning.scan(scanning.Request("image-classification", root, [str(tmp_path)]))
    last = json.loads(line)
    assert last["splits"] == {"train": 20, "test": 4} and last["total"] == 24 and last["errors"] == {}
    advice, colors = last["advice"]
    assert colors["fields"] == {"resize_channels": "1"}
    assert advice["fields"] == {"resize_width": "64", "resize_height": "64", "resize_mode": "squash"}
    assert {(item["width"], item["height"]) for item in last["previews"]} == {(64, 64)}
    own = first("image-classification", tmp_path, folder_train=tmp_path / "data", resize_width=10)
    assert {(item["width"], item["height"]) for item in own} == {(10, 16)}


def test_what_creation_would_refuse_is_an_error_and_a_similar_path_is_offered(tmp_path: Path) -> None:
    save(tmp_path / "small_crops" / "only" / "0.png", 1)
    request = scanning.Request(
        "image-classification", [("folder_train", str(tmp_path / "small_crops"))], [str(tmp_path)]
    )
    (last,) = map(json.loads, scanning.scan(request))
    assert "at least two are required" in last["errors"]["folder_train"][0] and not last["previews"]
    request = scanning.Request(
        "image-classification", [("folder_train", str(tmp_path / "small_crp"))], [str(tmp_path)]
    )
    (refused,) = map(json.loads, scanning.scan(request))
    assert refused["refused"].endswith("small_crp does not exist.")
    assert refused["suggestion"]["fields"] == {"folder_train": str(tmp_path / "small_crops")}
    assert refused["suggestion"]["action"] == "Use small_crops"
