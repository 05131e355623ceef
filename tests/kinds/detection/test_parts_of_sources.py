"""The form of object detection, given only the images or only the annotations of a usual layout of folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from tests.kinds import annotation_files
from tests.kinds.dataset_forms import Forms

SIZE = (40, 20)
BOX = ("dog", 4, 5, 24, 15)


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE).save(path)


def yolo(root: Path, images: str = "images", labels: str = "labels", count: int = 4) -> None:
    for number in range(count):
        picture(root / images / f"{number}.jpg")
        (root / labels).mkdir(parents=True, exist_ok=True)
        (root / labels / f"{number}.txt").write_text("0 0.35 0.5 0.5 0.5")
    (root / "data.yaml").write_text("names: [dog]")


def yolo_splits(root: Path) -> None:
    yolo(root, "images/train", "labels/train")
    yolo(root, "images/val", "labels/val", count=2)


def roboflow(root: Path) -> None:
    yolo(root, "train/images", "train/labels")
    yolo(root, "valid/images", "valid/labels", count=2)


def voc(root: Path) -> None:
    for number in range(4):
        picture(root / "JPEGImages" / f"{number}.jpg")
        (root / "Annotations").mkdir(exist_ok=True)
        (root / "Annotations" / f"{number}.xml").write_text(annotation_files.voc([BOX]))


def coco_splits(root: Path) -> None:
    (root / "annotations").mkdir(parents=True)
    for split, count in (("train", 4), ("val", 2)):
        names = [f"{number}.jpg" for number in range(count)]
        for name in names:
            picture(root / f"{split}2017" / name)
        text = annotation_files.coco([(name, [BOX]) for name in names], [SIZE] * count)
        (root / "annotations" / f"instances_{split}2017.json").write_text(text)


def one_file(root: Path) -> None:
    names = [f"{number}.jpg" for number in range(4)]
    for name in names:
        picture(root / "photos" / name)
    (root / "boxes.json").write_text(annotation_files.coco([(name, [BOX]) for name in names], [SIZE] * 4))


def metadata(root: Path) -> None:
    names = [f"photos/{number}.jpg" for number in range(4)]
    for name in names:
        picture(root / name)
    (root / "metadata.jsonl").write_text(annotation_files.json_lines([(name, [BOX]) for name in names]))


ONE, TWO = {"train": 4}, {"train": 4, "val": 2}
CASES = [
    (yolo, "", ONE, "Annotations: labels."),
    (yolo, "images", ONE, "Used: images/ and labels/."),
    (yolo, "labels", ONE, "Used: images/ and labels/."),
    (yolo_splits, "images", TWO, "train for training, val for validation"),
    (yolo_splits, "labels", TWO, "train for training, val for validation"),
    (yolo_splits, "images/train", TWO, "Also used: val/ for validation, beside train/."),
    (yolo_splits, "labels/train", TWO, "Also used: val/ for validation, beside train/."),
    (yolo_splits, "images/val", {"train": 2}, "Used: images/val/ and labels/val/."),
    (roboflow, "train/images", TWO, "Also used: valid/images/ for validation"),
    (roboflow, "train/labels", TWO, "Also used: valid/images/ for validation"),
    (voc, "JPEGImages", ONE, "Used: JPEGImages/ and Annotations/."),
    (voc, "Annotations", ONE, "Used: JPEGImages/ and Annotations/."),
    (coco_splits, "train2017", TWO, "Also used: annotations/instances_val2017.json for validation"),
    (coco_splits, "annotations", TWO, "instances_train2017.json for training"),
    (one_file, "photos", ONE, "Used: photos/ and boxes.json."),
    (metadata, "photos", ONE, "Used: photos/ and metadata.jsonl."),
]


@pytest.mark.parametrize(("write", "given", "counts", "words"), CASES)
def test_the_rest_is_around_the_given_folder(
    tmp_path: Path, write: object, given: str, counts: dict[str, int], words: str
) -> None:
    assert callable(write)
    forms = Forms("image-object-detection", tmp_path / "data")
    write(forms.data / "set")
    fields = {"train_image_folder": forms.data / "set" / given, "pct_val": 0, "beside": "y"}
    found = forms.summary(**fields)
    said: Sequence[str] = [*found.facts, *([found.suggestion.text] if found.suggestion else [])]
    assert words in " ".join(said) and not found.errors and not found.problems
    plan = forms.plan(**fields)
    assert {split: len(part) for split, part in plan.splits.items()} == counts
    assert all(len(boxes) for part in plan.splits.values() for boxes in part.targets)


def test_the_folder_of_another_split_can_be_given_by_its_images(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    roboflow(forms.data)
    train, other = (forms.data / split / "images" for split in ("train", "valid"))
    plan = forms.plan(train_image_folder=train, val_image_folder=other)
    assert {split: len(part) for split, part in plan.splits.items()} == TWO


def test_folders_outside_of_the_allowed_ones_are_not_searched(tmp_path: Path) -> None:
    yolo(tmp_path)
    (error,) = Forms("image-object-detection", tmp_path / "images").errors(
        train_image_folder=tmp_path / "images"
    )["train_label_folder"]
    assert "No annotations found" in error


def test_images_without_annotations_are_refused_beside_those_of_others(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    yolo(forms.data)
    picture(forms.data / "holiday" / "a.jpg")
    (error,) = forms.errors(train_image_folder=forms.data / "holiday")["train_label_folder"]
    assert "No annotations found" in error
