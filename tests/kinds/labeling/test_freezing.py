"""Datasets from labels: the readers of all kinds read what people said, at the same places."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from PIL import Image

from digits.core import append_log
from digits.core.errors import BadRequest
from digits.core.recipe import CreateDataset, Frozen
from digits.data.archives.writing import stream
from digits.data.sources.plan import Plan, Progress, SplitPlan
from digits.data.targets.boxes import MAX_OBJECTS
from digits.kinds.detection.formats.formats import open_annotations
from digits.kinds.labeling import freezing
from digits.kinds.labeling.answers import LabelClass, Object, Sent
from digits.kinds.labeling.export import LabelExport
from digits.kinds.labeling.forms import form_of
from digits.kinds.labeling.images import IMAGES_FILE, ListedImage
from digits.kinds.labeling.log import LabelLog
from digits.kinds.recipes import read_source

SPLITS = ("train", "train", "val", "test")
SIZE = (64, 48)
DETECTION, SEGMENTATION = "image-object-detection", "image-segmentation"


def classes(*names: str) -> list[LabelClass]:
    """Return classes with these names; those with a minus sign are deleted."""
    return [
        LabelClass(id=number, name=name.lstrip("-"), color="#000000", is_deleted=name.startswith("-"))
        for number, name in enumerate(names)
    ]


class Labels:
    """The labels of a kind in a folder, with ``turns``: an image for each EXIF orientation."""

    def __init__(self, folder: Path, kind: str, *names: str, turns: tuple[int, ...] = (1, 1, 1, 1)) -> None:
        self.folder, self.kind, self.classes = folder / "job", kind, classes(*names)
        self.root = folder / "pictures"
        self.root.mkdir()
        self.folder.mkdir()
        self.images = []
        for number, turn in enumerate(turns):
            exif = Image.Exif()
            exif[0x112] = turn
            path = f"{number}.jpg"
            Image.new("RGB", SIZE, (number, 0, 0)).save(self.root / path, exif=exif)
            width, height = SIZE if turn < 5 else SIZE[::-1]
            split: Any = SPLITS[number % len(SPLITS)]
            self.images.append(ListedImage(path, split, number, "00", width, height, turn))
        append_log.append(self.folder / IMAGES_FILE, self.images)
        self.log = LabelLog(self.folder)

    def save(self, image: int, drawn: bytes | None = None, **fields: Any) -> None:
        sent = Sent(rev=self.log.rev(image), edit=f"{self.log.cursor}", **fields)
        kept = [structs.replace(item, is_deleted=False) for item in self.classes]  # they are deleted later
        form_of(self.kind).check(sent, self.images[image].size, kept)
        self.log.save(image, sent, "ada", drawn)

    def freeze(self, *, until: int | None = None, **chosen: Any) -> CreateDataset:
        target = self.folder / "dataset"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        cursor = self.log.cursor if until is None else until
        frozen = Frozen(id="20260101-000000-abcdef", name="mine", cursor=cursor)
        request = freezing.Request(
            str(self.folder), str(target), self.kind, str(self.root), self.classes, frozen, chosen
        )
        return freezing.write(request)

    def export(self, name: str) -> dict[str, bytes]:
        archive = LabelExport(self.folder, self.classes, form_of(self.kind), self.log.cursor, name)
        data = b"".join(stream("zip", archive.entries()))
        archive.close()
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            return {name: opened.read(name) for name in opened.namelist()}


def plan(recipe: CreateDataset) -> Plan:
    recipe.processes = 1
    return read_source(recipe, Progress())


def targets(plan: Plan) -> dict[str, Any]:
    """Return the target of each image by split and path."""

    def pairs(split: SplitPlan) -> Iterator[tuple[str, Any]]:
        for file, target in zip(split.files, split.targets, strict=True):
            yield file, target.tolist() if isinstance(target, np.ndarray) else target

    return {f"{name}/{file}": target for name, split in plan.splits.items() for file, target in pairs(split)}


def png(*rows: list[int]) -> bytes:
    pixels = np.zeros(SIZE[::-1], np.uint8)
    for number, row in enumerate(rows):
        pixels[number, : len(row)] = row
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


EDGE = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
# Tiny boxes at the origin, too, and boxes that look like fractions or percent of larger images.
BOXES = st.lists(st.tuples(EDGE, EDGE, st.integers(0, 1), st.sampled_from([0.05, 0.3, 1.0])), max_size=4)


@settings(max_examples=50)
@given(st.lists(BOXES, min_size=4, max_size=4), st.lists(st.integers(1, 8), min_size=4, max_size=4))
def test_boxes_are_read_where_they_were_drawn(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], turns: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    labels = Labels(folder, DETECTION, "cat", "dog", turns=tuple(turns))
    expected: dict[str, list[Any]] = {}
    for number, image in enumerate(labels.images):
        boxes = []
        for (left, right), (top, bottom), place, part in drawn[number]:
            across, down = part * (image.width - 1), part * (image.height - 1)
            boxes.append((left * across, top * down, right * across + 1, bottom * down + 1, place))
        if number == 0:  # a dataset needs an object
            boxes.append((0.0, 0.0, 1.0, 1.0, 1))
        labels.save(number, objects=[Object(class_=place, box=box) for *box, place in boxes])
        expected[f"{image.split}/{image.path}"] = boxes
    made = plan(labels.freeze())
    names = list(made.target.names)
    found = targets(made)
    assert found.keys() == expected.keys()
    for name, boxes in expected.items():
        rows = [(*box, names.index(["cat", "dog"][place])) for *box, place in boxes]
        assert np.allclose(np.reshape(found[name], (-1, 5)), np.reshape(rows, (-1, 5)), rtol=0, atol=0.01), (
            name
        )
    assert not any("used as" in warning or "scaled" in warning for warning in made.warnings)
    # And so do other programs that read COCO.
    exported = labels.export("coco")
    for split in {image.split for image in labels.images}:
        content = json.loads(exported[f"annotations/instances_{split}.json"])
        paths = {item["id"]: f"{split}/{item['file_name']}" for item in content["images"]}
        for path in paths.values():
            boxes = [item["bbox"] for item in content["annotations"] if paths[item["image_id"]] == path]
            corners = [[left, top, left + width, top + height] for left, top, width, height in boxes]
            assert np.allclose(
                np.reshape(corners, (-1, 4)),
                np.reshape([box[:4] for box in expected[path]], (-1, 4)),
                rtol=0,
                atol=0.01,
            )
    shutil.rmtree(folder)


@pytest.fixture
def detection(tmp_path: Path) -> Labels:
    labels = Labels(tmp_path, DETECTION, "cat", "-mouse", "it's a: dog", turns=(1, 6, 3, 8))
    labels.save(0, objects=[Object(class_=0, box=(1, 2, 10.5, 20)), Object(class_=1, box=(0, 0, 9, 9))])
    labels.save(1, objects=[Object(class_=2, rings=[[1, 2, 30, 2, 30, 40.5], [5, 50, 9, 50, 9, 60]])])
    labels.save(2, objects=[])
    labels.save(3, state="unlabeled", objects=[Object(class_=0, box=(1, 2, 10, 20))])
    return labels


def test_negatives_polygons_and_deleted_classes(detection: Labels) -> None:
    recipe = detection.freeze()
    made = plan(recipe)
    assert targets(made) == {
        "train/0.jpg": [[1, 2, 10.5, 20, 0]],
        "train/1.jpg": [[1, 2, 30, 60, 1]],
        "val/2.jpg": [],
    }
    assert made.target.names == ["cat", "it's a: dog"]
    assert recipe.notes == ["No test image is labeled yet.", "1 object of a deleted class left out."]
    assert recipe.frozen == Frozen(id="20260101-000000-abcdef", name="mine", cursor=detection.log.cursor)
    assert msgspec.convert(recipe.as_json()["frozen"], Frozen) == recipe.frozen


def test_crowds_that_no_dataset_can_contain_are_left_out(detection: Labels) -> None:
    crowd = [Object(class_=0, box=(0, 0, 9, 9))] * (MAX_OBJECTS + 1)
    for number in (1, 2):
        detection.save(number, objects=crowd)
    recipe = detection.freeze()
    assert targets(plan(recipe)).keys() == {"train/0.jpg"}
    assert "2 images with more than 2,000 objects left out." in recipe.notes


def test_a_part_of_the_log_is_frozen(detection: Labels) -> None:
    place = detection.log.cursor
    detection.save(0, state="skipped")
    assert "train/0.jpg" not in targets(plan(detection.freeze()))
    assert "train/0.jpg" in targets(plan(detection.freeze(until=place)))


def test_an_image_that_was_replaced_is_not_used(detection: Labels) -> None:
    Image.new("RGB", (99, 99)).save(detection.root / "1.jpg")
    made = plan(detection.freeze(max_unusable_percent=60))
    assert "train/1.jpg" not in targets(made)
    assert any("changed since it was labeled" in warning for warning in made.warnings)


BOX_OF_A_CAT = [Object(class_=0, box=(0, 0, 9, 9))]


@pytest.mark.parametrize(
    ("kind", "answers", "reason"),
    [
        (DETECTION, {2: {"objects": []}}, "No training image is labeled yet; 1 others are"),
        (
            DETECTION,
            {0: {"objects": []}, 2: {"objects": BOX_OF_A_CAT}},
            "No labeled training image has an object",
        ),
        (
            "image-classification",
            {image: {"label": label} for image, label in enumerate((0, 2, 1, 1))},
            "All labeled training images have the class “cat”",
        ),
    ],
)
def test_training_images_need_something_to_learn(
    tmp_path: Path, kind: str, answers: dict[int, dict[str, Any]], reason: str
) -> None:
    """The third and fourth image are for validation and testing."""
    labels = Labels(tmp_path, kind, "cat", "dog", "-gone")
    for image, answer in answers.items():
        labels.save(image, **answer)
    with pytest.raises(BadRequest, match=reason):
        labels.freeze()


def test_downloads_of_boxes_are_read_again(detection: Labels, tmp_path: Path) -> None:
    for name, file in (("yolo", "labels"), ("voc", "Annotations")):
        folder = tmp_path / name
        for path, data in detection.export(name).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        (folder / "images").symlink_to(detection.root)
        annotations = open_annotations(folder / file, detection.root, name, [])
        found = {
            image.file: [(shape.name, shape.bounds) for shape in image.boxes]
            for image in annotations.images
            if image.file != "3.jpg"  # which is not in the lists
        }
        assert {path: [name for name, _ in boxes] for path, boxes in found.items()} == {
            "0.jpg": ["cat"], "1.jpg": ["it's a: dog"], "2.jpg": [],
        }  # fmt: skip
        factor = (1, 1) if name == "voc" else SIZE
        (_, box), *_ = found["0.jpg"]
        assert np.allclose((box.left * factor[0], box.bottom * factor[1]), (1, 20))
    rows = detection.export("csv")["train.csv"].decode().splitlines()
    assert rows == [
        "image,label,left,top,right,bottom",
        "0.jpg,cat,1,2,10.5,20",
        "1.jpg,it's a: dog,1,2,30,60",
    ]


def test_images_whose_names_differ_in_the_ending_do_not_replace_each_other(tmp_path: Path) -> None:
    labels = Labels(tmp_path, DETECTION, "cat")
    labels.root.joinpath("0.png").write_bytes(labels.root.joinpath("0.jpg").read_bytes())
    append_log.append(labels.folder / IMAGES_FILE, [ListedImage("0.png", "train", 4, "00", *SIZE)])
    labels.images.append(ListedImage("0.png", "train", 4, "00", *SIZE))
    for number in (0, 4):
        labels.save(number, objects=[Object(class_=0, box=(0, 0, 9, 9 + number))])
    assert targets(plan(labels.freeze())) == {
        "train/0.jpg": [[0, 0, 9, 9, 0]], "train/0.png": [[0, 0, 9, 13, 0]],
    }  # fmt: skip
    files = labels.export("yolo")
    assert files["left_out.csv"].decode().splitlines()[1].startswith("0.png,")


@pytest.mark.parametrize(
    "names", [("cat", "-x", "dog"), ("train", "-x", "test"), ("1", "-x", "0"), ('é, "a"', "-x", "b;c")]
)
def test_classes_of_images(tmp_path: Path, names: tuple[str, str, str]) -> None:
    labels = Labels(tmp_path, "image-classification", *names)
    for number, label in enumerate((0, 2, 2, 1)):
        labels.save(number, label=label)
    recipe = labels.freeze()
    made = plan(recipe)
    found = {path: made.target.names[place] for path, place in targets(made).items()}
    assert found == {"train/0.jpg": names[0], "train/1.jpg": names[2], "val/2.jpg": names[2]}
    assert "1 image of a deleted class left out." in recipe.notes


def test_images_of_the_first_labels_may_show_classes_that_no_training_image_shows(tmp_path: Path) -> None:
    labels = Labels(tmp_path, "image-classification", "zebra", "-gone", "cat", "dog", "emu")
    for image, label in enumerate((0, 2, 3, 2)):
        labels.save(image, label=label)
    found = plan(labels.freeze())
    assert found.target.names == ["zebra", "cat", "dog", "emu"]  # also one without any image, in this order
    assert targets(found) == {"train/0.jpg": 0, "train/1.jpg": 1, "val/2.jpg": 2, "test/3.jpg": 1}
    assert "Classes without training images: dog, emu." in found.warnings


@pytest.mark.parametrize("names", [("cat", "-x", "dog"), ("image", "-x", "image_"), ("1", "-x", "split")])
def test_labels_of_images(tmp_path: Path, names: tuple[str, str, str]) -> None:
    labels = Labels(tmp_path, "image-multilabel", *names)
    for number, said in enumerate(([0], [0, 2, 1], [], [2])):
        labels.save(number, labels=said)
    made = plan(labels.freeze())
    assert made.target.names == [names[0], names[2]]
    assert targets(made) == {
        "train/0.jpg": [1, 0], "train/1.jpg": [1, 1], "val/2.jpg": [0, 0], "test/3.jpg": [0, 1],
    }  # fmt: skip


def test_numbers_of_images(tmp_path: Path) -> None:
    labels = Labels(tmp_path, "image-regression", "age", "-x", "image")
    for number, values in enumerate(((0.1, -3), (1e-7, 2.5), (1e20, 0), (7, None))):
        labels.save(
            number, numbers={str(2 * place): value for place, value in enumerate(values) if value is not None}
        )
    recipe = labels.freeze()
    made = plan(recipe)
    assert made.target.names == ["age", "image"]
    assert targets(made) == {"train/0.jpg": [0.1, -3], "train/1.jpg": [1e-7, 2.5], "val/2.jpg": [1e20, 0]}
    assert "1 image without some of the numbers left out." in recipe.notes


@pytest.mark.parametrize("deleted", [False, True])
def test_masks_mean_the_classes_that_they_say(tmp_path: Path, deleted: bool) -> None:
    """Also masks with 255 beside the background only, which would otherwise be black and white."""
    labels = Labels(
        tmp_path, SEGMENTATION, "background", "-cat" if deleted else "cat", "dog", turns=(1, 3, 6, 1)
    )
    masks = [png([1, 2, 255, 0]), png([255]), None, png([2])]
    for number, mask in enumerate(masks):
        if mask:
            labels.save(number, mask, mask="new")
    recipe = labels.freeze()
    made = plan(recipe)
    assert made.target.names == (["background", "dog"] if deleted else ["background", "cat", "dog"])
    folder = labels.folder / "dataset" / "labels" / "masks"
    first = np.asarray(Image.open(folder / "0.png"))[0, :4].tolist()
    assert first == ([255, 1, 255, 0] if deleted else [1, 2, 255, 0])
    source = labels.folder / "masks" / "0-1.png"
    assert (folder / "0.png").samefile(source) is not deleted
    found = targets(made)
    assert {path: image.classes for path, image in found.items()} == {
        "train/0.jpg": (0, 1) if deleted else (0, 1, 2),
        "train/1.jpg": (0,),
        "test/3.jpg": (0, 1) if deleted else (0, 2),
    }
    assert {image.turn for image in found.values()} == {1}
    exported = labels.export("masks")
    assert exported["masks/0.png"] == source.read_bytes()
    assert [item["id"] for item in json.loads(exported["classes.json"])] == ([0, 2] if deleted else [0, 1, 2])
