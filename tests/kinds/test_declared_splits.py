"""Folders that declare their splits, given by their root only."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import UnusableSource
from tests.kinds import annotation_files
from tests.kinds.dataset_forms import Created, Forms

SIZE = {"resize_width": 16, "resize_height": 8}
CLASSES = ("cat", "dog")


def save(path: Path, number: int) -> None:
    """Save an image of 16×8 pixels whose brightness is ``number``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 16, 3), number, np.uint8)).save(path)


def class_folders(root: Path, each: int, first: int) -> None:
    for place, name in enumerate(CLASSES):
        for number in range(each):
            save(root / name / f"{number}.png", first + place * each + number)


def brightness(made: Created, split: str) -> list[int]:
    """The numbers of the images in a split, sorted."""
    images = (Image.open(io.BytesIO(record.data)) for record in made.records(split))
    return sorted(int(np.asarray(image)[0, 0, 0]) for image in images)


@pytest.mark.parametrize(
    "names",
    [
        ("train", "val", "test"),
        ("Training", "valid", "Testing"),
        ("train_set", "val_set", "test_set"),
        ("trainData", "valData", "testData"),
    ],
)
@pytest.mark.parametrize("inner", ["", "archive"])
def test_class_folders(tmp_path: Path, names: tuple[str, ...], inner: str) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for place, (name, each) in enumerate(zip(names, (4, 3, 2), strict=True)):
        class_folders(forms.data / inner / name, each, first=50 * place)
    made = forms.create(folder_train=forms.data, **SIZE)
    assert made.counts == {"train": 8, "val": 6, "test": 4}
    assert made.manifest.groups == list(CLASSES)
    assert max(brightness(made, "train")) < 50 <= min(brightness(made, "val"))
    assert made.remarks[0].startswith(f"The splits of the source are used: {names[0]} for training")


def test_folders_of_splits_in_folders_of_the_same_name(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for name in ("training_set", "test_set"):
        class_folders(forms.data / name / name, 4, 0)
    made = forms.create(folder_train=forms.data, folder_pct_val=0, **SIZE)
    assert made.counts == {"train": 8, "test": 8} and made.manifest.groups == list(CLASSES)


def test_a_second_folder_of_a_split_is_named(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for name in ("train", "val", "validation"):
        class_folders(forms.data / name, 4, 0)
    made = forms.create(folder_train=forms.data, **SIZE)
    assert made.counts == {"train": 8, "val": 8}
    assert made.remarks[0].endswith("train for training, val for validation. Not used: validation.")


def test_a_flat_test_folder_is_left_out(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    class_folders(forms.data / "train", 8, 0)
    save(forms.data / "test" / "1.png", 200)
    made = forms.create(folder_train=forms.data, folder_pct_val=25, **SIZE)
    assert made.counts == {"train": 12, "val": 4} and made.manifest.groups == list(CLASSES)
    assert "test contains no folders of classes: not used." in made.remarks[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("cat_train", "cat_test", "dog_train", "dog_test"),
            "splits instead of classes.* one folder for each split",
        ),
        (
            ("fold1", "fold2", "fold3"),
            "folds instead of classes.* as the validation folder, and the others for training",
        ),
    ],
)
def test_splits_are_no_classes(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for name in names:
        class_folders(forms.data / name, 2, 0)
    with pytest.raises(UnusableSource) as caught:
        forms.plan(folder_train=forms.data, **SIZE)
    assert re.search(message, caught.value.sentences)


def test_mixing_the_splits(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for place, name in enumerate(("train", "val")):
        class_folders(forms.data / name, 4, 50 * place)
    suggestion = forms.summary(folder_train=forms.data).suggestion
    assert suggestion and suggestion.action == "Mix them"
    made = forms.create(**suggestion.fields, folder_pct_val=25, **SIZE)
    assert made.counts == {"train": 12, "val": 4} and not made.remarks


def masks(folder: Path, image_folder: str, mask_folder: str, count: int) -> None:
    for number in range(count):
        save(folder / image_folder / f"{number}.png", number)
        mask = np.zeros((8, 16), np.uint8)
        mask[2:4] = 255
        (folder / mask_folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(folder / mask_folder / f"{number}.png")


PLACES = [
    ("{}/images", "{}/masks"),
    ("images/{}", "masks/{}"),
    ("{}_set/images", "{}_set/masks"),
    ("images/{}_set", "masks/{}_set"),
    ("images_{}", "masks_{}"),
    ("{}_images", "{}_masks"),
    ("{}", "{}_masks"),
]


@pytest.mark.parametrize(("images", "targets"), PLACES)
def test_masks(tmp_path: Path, images: str, targets: str) -> None:
    forms = Forms("image-segmentation", tmp_path / "data")
    for name, count in (("train", 6), ("val", 3)):
        masks(forms.data, images.format(name), targets.format(name), count)
    made = forms.create(feature_folder=forms.data, **SIZE)
    assert made.counts == {"train": 6, "val": 3}
    assert "used" in made.remarks[0]
    assert made.remarks[0] in forms.summary(feature_folder=forms.data).facts


def test_images_without_targets(tmp_path: Path) -> None:
    forms = Forms("image-processing", tmp_path / "data")
    for name, count in (("train", 4), ("validation", 2)):
        for number in range(count):
            save(forms.data / name / f"{number}.png", number)
    made = forms.create(feature_folder=forms.data, **SIZE)
    assert made.counts == {"train": 4, "val": 2}


def yolo(images: Path, labels: Path, count: int) -> None:
    labels.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        save(images / f"{number}.png", number)
        (labels / f"{number}.txt").write_text("0 0.5 0.5 0.25 0.25\n")


def coco(images: Path, file: Path, count: int) -> None:
    names = [f"{number}.png" for number in range(count)]
    for number, name in enumerate(names):
        save(images / name, number)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(annotation_files.coco((name, [("bolt", 4, 2, 8, 6)]) for name in names))


@pytest.mark.parametrize(
    "layout", ["images_{0} labels_{0}", "{0}_images {0}_labels", "{0}Data/images {0}Data/labels"]
)
def test_boxes_in_folders_with_other_words(tmp_path: Path, layout: str) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    for name, count in (("train", 6), ("val", 3)):
        images, labels = layout.format(name).split()
        yolo(forms.data / images, forms.data / labels, count)
    made = forms.create(train_image_folder=forms.data, **SIZE)
    assert made.counts == {"train": 6, "val": 3} and "used" in made.remarks[0]


@pytest.mark.parametrize("layout", ["roboflow", "ultralytics", "roboflow coco", "coco", "coco in images"])
def test_boxes(tmp_path: Path, layout: str) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    root = forms.data
    for name, count in (("train", 6), ("val", 3)):
        if layout == "roboflow":
            yolo(root / name / "images", root / name / "labels", count)
        elif layout == "ultralytics":
            yolo(root / "images" / name, root / "labels" / name, count)
        elif layout == "roboflow coco":
            coco(root / name, root / name / "_annotations.coco.json", count)
        elif layout == "coco":
            coco(root / f"{name}2017", root / "annotations" / f"instances_{name}2017.json", count)
            (root / "annotations" / f"captions_{name}2017.json").write_text("{}")
        else:
            coco(root / "images" / name, root / f"{name}.json", count)
    made = forms.create(train_image_folder=root, **SIZE)
    assert made.counts == {"train": 6, "val": 3}
    for split in ("train", "val"):
        for record in made.records(split):
            left, right = (record.features[f"image/object/bbox/x{end}"][0] for end in ("min", "max"))
            assert (left, right) in [(0.25, 0.5), (0.375, 0.625)]
    assert "used" in made.remarks[0]
    suggestion = forms.summary(train_image_folder=root).suggestion
    assert bool(suggestion) == ("coco" not in layout)
    if suggestion:
        assert suggestion.action == "Mix them"
        assert forms.create(**suggestion.fields, pct_val=0, **SIZE).counts == {"train": 9}


def test_the_folder_of_a_split_is_enough(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    for name, count in (("a", 4), ("b", 2)):
        yolo(forms.data / name / "images", forms.data / name / "labels", count)
    made = forms.create(train_image_folder=forms.data / "a", val_image_folder=forms.data / "b", **SIZE)
    assert made.counts == {"train": 4, "val": 2}
    (forms.data / "c").mkdir()
    errors = forms.errors(train_image_folder=forms.data / "a", val_image_folder=forms.data / "c")
    assert errors == {"val_label_folder": ["Enter the annotations of the validation images."]}


def test_a_column_of_a_table_of_masks(tmp_path: Path) -> None:
    forms = Forms("image-segmentation", tmp_path / "data")
    masks(forms.data, "images", "masks", 6)
    rows = [f"images/{number}.png,masks/{number}.png,{('train', 'val')[number > 3]}\n" for number in range(6)]
    (forms.data / "table.csv").write_text("image,mask,phase\n" + "".join(rows))
    made = forms.create(method="csv", table_train=forms.data / "table.csv", **SIZE)
    assert made.counts == {"train": 4, "val": 2} and brightness(made, "val") == [4, 5]
    assert "The column “phase” declares the splits." in made.remarks


def test_a_column_of_metadata(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    class_folders(forms.data, 3, 0)
    rows = [
        f"{name}/{number}.png,{name},{('train', 'test')[number > 1]}\n"
        for name in CLASSES
        for number in range(3)
    ]
    (forms.data / "metadata.csv").write_text("file_name,label,subset\n" + "".join(rows))
    made = forms.create(method="huggingface", dataset_folder=forms.data, folder_pct_val=0, **SIZE)
    assert made.counts == {"train": 4, "test": 2}
    assert brightness(made, "test") == [2, 5]


@pytest.mark.parametrize("key", [{"split": "test"}, {"is_test": True}])
def test_keys_of_json_lines(tmp_path: Path, key: dict[str, Any]) -> None:
    other = {"split": "train"} if "split" in key else {"is_test": False}
    items = [
        {"file_name": f"{name}/{number}.png", "label": [name], **(key if number > 1 else other)}
        for name in CLASSES
        for number in range(3)
    ]
    classes = Forms("image-classification", tmp_path / "classes")
    class_folders(classes.data, 3, 0)
    (classes.data / "metadata.jsonl").write_text("\n".join(map(json.dumps, items)))
    made = classes.create(method="huggingface", dataset_folder=classes.data, folder_pct_val=0, **SIZE)
    assert made.counts == {"train": 4, "test": 2} and brightness(made, "test") == [2, 5]
    boxes = Forms("image-object-detection", tmp_path / "boxes")
    class_folders(boxes.data, 3, 0)
    objects = {"objects": {"bbox": [[4, 2, 4, 4]], "categories": ["bolt"]}}
    (boxes.data / "metadata.jsonl").write_text("\n".join(json.dumps(item | objects) for item in items))
    made = boxes.create(train_image_folder=boxes.data, pct_val=0, **SIZE)
    assert made.counts == {"train": 4, "test": 2} and brightness(made, "test") == [2, 5]


def test_classes_in_the_names_of_images_in_the_only_folder(tmp_path: Path) -> None:
    forms = Forms("image-classification", tmp_path / "data")
    for number in range(8):
        save(forms.data / "train" / f"{CLASSES[number % 2]}.{number}.png", number)
    (error,) = forms.errors(folder_train=forms.data)["folder_train"]
    assert "The names of the images contain classes: cat, dog." in error
    made = forms.create(folder_train=forms.data, classes_from_names=True, folder_pct_val=0, **SIZE)
    assert made.manifest.groups == list(CLASSES) and made.counts == {"train": 8}


def test_pairs_of_class_folders(tmp_path: Path) -> None:
    forms = Forms("image-pairs", tmp_path / "data")
    for name in ("train", "val", "test"):
        class_folders(forms.data / name, 4, 0)
    fields = {"pair_count": 40, **SIZE}
    whole = forms.create(pair_source=forms.data, **fields)
    assert whole.counts == {"train": 40, "val": 10, "test": 10}
    assert whole.remarks[0].startswith("The splits of the source are used: train for training")
    beside = forms.summary(pair_source=forms.data / "train", **fields, beside="y").suggestion
    assert beside and beside.text == "Also used: val/ for validation and test/ for test, beside train/."
    assert forms.create(pair_source=forms.data / "train", **fields, beside="y").counts == whole.counts
    script = forms.create(pair_source=forms.data / "train", pct_val=50, **fields)
    assert script.counts.keys() == {"train", "val"}
    entered = {"pair_source": forms.data / "train", "val_source": forms.data / "test"}
    found = forms.summary(**entered, **fields, beside="y").suggestion
    assert found and found.text == "Also used: test/ for test, beside train/."
