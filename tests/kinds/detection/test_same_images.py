"""Annotations of the same image in several places, and of images that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from digits.data.sources.plan import UnusableSource
from tests.kinds.annotation_files import Box, Images, coco, cvat, json_lines, kitti, voc
from tests.kinds.dataset_forms import Forms

WIDTH, HEIGHT = 40, 20
BOX, OTHER = (2, 4, 12, 14), (20, 5, 30, 15)


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-object-detection", tmp_path / "data")


def save(path: Path, content: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        Image.new("L", (WIDTH, HEIGHT)).save(path)
    else:
        path.write_text(content)


def boxes_of(forms: Forms, split: str = "train", **fields: Any) -> dict[str, list[Any]]:
    """Return the name of the class and the edges of each object, by image."""
    fields = {"resize_width": WIDTH, "resize_height": HEIGHT, "pct_val": 0} | fields
    plan = forms.plan(train_image_folder=forms.data / "images", **fields)
    names = plan.target.names
    assert len(set(plan.splits[split].files)) == len(plan.splits[split])
    return {
        file: sorted((names[int(row[4])], *row[:4].tolist()) for row in rows)
        for file, rows in zip(plan.splits[split].files, plan.splits[split].targets, strict=True)
    }


FILES: Mapping[str, Callable[[Images], str]] = {
    "labels.json": coco,
    "labels.jsonl": json_lines,
    "labels.xml": cvat,
}


@pytest.mark.parametrize("name", FILES)
def test_entries_for_the_same_image_are_one_record(forms: Forms, name: str) -> None:
    save(forms.data / "images" / "a.png")
    save(forms.data / name, FILES[name]([("a.png", [("cat", *BOX)]), ("a.png", [("dog", *OTHER)])]))
    assert boxes_of(forms, train_label_folder=forms.data / name) == {
        "a.png": [("cat", *BOX), ("dog", *OTHER)]
    }


def test_equal_objects_of_the_same_image_are_one_object(forms: Forms) -> None:
    save(forms.data / "images" / "a.png")
    entries = [("a.png", [(name, *BOX)]) for name in ("cat", "dog", "cat")]
    save(forms.data / "labels.xml", cvat(entries))
    assert boxes_of(forms, train_label_folder=forms.data / "labels.xml") == {
        "a.png": [("cat", *BOX), ("dog", *BOX)]
    }


def test_an_image_belongs_to_the_split_that_labels_it(forms: Forms) -> None:
    for number, split in enumerate(("train", "val")):
        save(forms.data / "images" / f"{number}.png")
        edges = [7 / WIDTH, 9 / HEIGHT, 10 / WIDTH, 10 / HEIGHT]
        save(forms.data / split / f"{number}.txt", f"0 {' '.join(map(str, edges))}\n")
    fields = {"train_label_folder": forms.data / "train", "val_label_folder": forms.data / "val"}
    assert list(boxes_of(forms, "train", **fields)) == ["0.png"]
    assert list(boxes_of(forms, "val", **fields)) == ["1.png"]


def test_an_image_with_other_objects_in_another_split_is_refused(forms: Forms) -> None:
    save(forms.data / "images" / "a.png")
    save(forms.data / "images" / "b.png")
    save(forms.data / "train.json", coco([("a.png", [("cat", *BOX)]), ("b.png", [("cat", *BOX)])]))
    fields = {"train_label_folder": forms.data / "train.json", "val_label_folder": forms.data / "val.json"}
    save(forms.data / "val.json", coco([("a.png", [("cat", *BOX)])]))
    assert list(boxes_of(forms, "val", **fields)) == ["a.png"]
    save(forms.data / "val.json", coco([("a.png", [("cat", *OTHER)])]))
    with pytest.raises(UnusableSource, match=r"a\.png has other objects in train\.json than in val\.json"):
        boxes_of(forms, **fields)


@pytest.mark.parametrize(("ending", "write"), [(".txt", kitti), (".xml", lambda box: voc([box]))])
def test_labels_of_an_absent_image_belong_to_no_other(
    forms: Forms, ending: str, write: Callable[[Box], str]
) -> None:
    save(forms.data / "images" / "a" / "0.png")
    save(forms.data / "labels" / "a" / f"0{ending}", write(("car", *BOX)))
    save(forms.data / "labels" / "b" / f"0{ending}", write(("car", *OTHER)))
    fields = {"train_label_folder": forms.data / "labels"}
    assert boxes_of(forms, **fields) == {"a/0.png": [("car", *BOX)]}


@pytest.mark.parametrize("name", FILES)
def test_entries_of_an_absent_image_belong_to_no_other(forms: Forms, name: str) -> None:
    save(forms.data / "images" / "a" / "0.png")
    save(forms.data / name, FILES[name]([("a/0.png", [("cat", *BOX)]), ("b/0.png", [("dog", *OTHER)])]))
    found = boxes_of(forms, train_label_folder=forms.data / name, max_unusable_percent=60)
    assert found.pop("a/0.png") == [("cat", *BOX)]
    assert not found.get("b/0.png")


def test_files_of_labels_are_called_like_images_with_or_without_their_ending(forms: Forms) -> None:
    for number, label in enumerate(("0.png.txt", "1.txt", "2.PNG.txt")):
        save(forms.data / "images" / f"{number}.png")
        save(forms.data / "labels" / label, kitti(("car", *BOX)))
    found = boxes_of(forms, train_label_folder=forms.data / "labels")
    assert found == {f"{number}.png": [("car", *BOX)] for number in range(3)}
