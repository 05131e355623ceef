"""YOLO: the lines of labels, and the files beside them."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest
from PIL import Image

from digits.kinds.detection.formats import yolo
from digits.kinds.detection.formats.formats import detect
from digits.kinds.sources.shapes import Placement, Rectangle, Rings
from tests.kinds.dataset_forms import Forms

WIDTH, HEIGHT = 40, 20
SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT}
BOX = "0 0.5 0.5 0.5 0.5\n"
# The smallest box around it is that of BOX.
OCTAGON = "0 .25 .4 .4 .25 .6 .25 .75 .4 .75 .6 .6 .75 .4 .75 .25 .6\n"


def write(root: Path, labels: dict[str, str], images: str = "images") -> Path:
    """Write label files by path, and their images."""
    for name, text in labels.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        image = root / name.replace("labels", images).replace(".txt", ".png")
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (WIDTH, HEIGHT)).save(image)
    return root


def edges(text: str) -> list[tuple[float, ...]]:
    bounds = [box.bounds for box in yolo.parse(text.encode(), {})]
    return [tuple(round(edge, 6) for edge in astuple(box)) for box in bounds]


WHOLE = (0.25, 0.25, 0.75, 0.75)


@pytest.mark.parametrize(
    "line",
    [
        BOX,
        "0 0.5 0.5 0.5 0.5 0.9",  # a score
        "0.000000 0.5 0.5 0.5 0.5",
        "0.000000000000000000e+00 5.000000e-01 5.000000e-01 5.000000e-01 5.000000e-01",
        OCTAGON,
        "0 .25 .25 .75 .25 .5 .75",  # a triangle
        "0 .5 .25 .75 .5 .5 .75 .25 .5",  # an oriented box
        "0 .5 .25 .75 .5 .5 .75 .25 .5 .9",  # with a score
        "0 .5 .5 .5 .5 .3 .3 2 .7 .7 1 0 0 0",  # keypoints
    ],
)
def test_lines(line: str) -> None:
    assert edges(line) == [WHOLE]
    assert yolo.parse(line.encode(), {0: "cat"})[0].name == "cat"


def test_polygons_keep_their_points() -> None:
    box, plain = yolo.parse(b"0 .25 .25 .75 .25 .5 .75\n" + BOX.encode(), {})
    assert isinstance(box.form, Rings) and isinstance(plain.form, Rectangle)
    (ring,) = box.form.moved(Placement(WIDTH, HEIGHT, WIDTH, HEIGHT)).rings
    assert ring.tolist() == [[10, 5], [30, 5], [20, 15]]
    assert Rings.of((0, 0, 1, float("nan"), 1, 1)).bounds.fault() == "not finite"


@pytest.mark.parametrize("line", [OCTAGON, "0.0" + OCTAGON[1:]])
def test_polygons_with_as_many_columns_as_kitti(tmp_path: Path, line: str) -> None:
    root = write(tmp_path / "data", {f"labels/{number}.txt": line for number in range(4)})
    assert detect(root / "labels").name == "yolo"
    found = Forms("image-object-detection", root).plan(train_image_folder=root, pct_val=0, **SIZE)
    boxes = [boxes.tolist() for boxes in found.splits["train"].targets]
    assert boxes == [[pytest.approx([10, 5, 30, 15, 0])]] * 4


def test_polygons_are_remarked_on_and_keypoints_are_not_polygons(tmp_path: Path) -> None:
    pose = BOX.strip() + " .3 .3 .4 .4\n"
    root = write(tmp_path / "data", {"labels/1.txt": BOX, "labels/2.txt": OCTAGON, "labels/3.txt": pose})
    forms = Forms("image-object-detection", root)
    fields = {"train_image_folder": root, "pct_val": 0, **SIZE}
    assert "labels: 2 polygons are used as the smallest boxes around them." in forms.plan(**fields).warnings
    (root / "labels" / "2.txt").write_text(pose)
    (root / "pose.yaml").write_text("kpt_shape: [2, 2]\nnames: [person]\n")
    found = forms.plan(**fields)
    boxes = [boxes.tolist() for boxes in found.splits["train"].targets]
    assert boxes == [[pytest.approx([10, 5, 30, 15, 0])]] * 3 and not found.warnings


KITTI = "Car 0.00 0 -1.5 10 5 30 15 1 1 1 0 0 0 0"


@pytest.mark.parametrize(
    ("first", "name"),
    [
        ("", "kitti"),
        ("Car 0.00 0 broken", "kitti"),
        ("These labels were drawn by two people in the summer, with a tool of their own making.", "kitti"),
    ],
)
def test_kitti_is_recognized_in_several_files(tmp_path: Path, first: str, name: str) -> None:
    (tmp_path / "a.txt").write_text(first)
    (tmp_path / "b.txt").write_text(KITTI)
    assert detect(tmp_path).name == name


def test_prose_is_not_kitti(tmp_path: Path) -> None:
    text = "These labels were drawn by two people in the summer, with a tool of their own making."
    root = write(tmp_path / "data", {"labels/1.txt": BOX})
    for name in ("README.dataset.txt", "README.roboflow.txt", "notes.txt", "about.txt"):
        (root / "labels" / name).write_text(text)
    assert detect(root / "labels").name == "yolo"
    warnings = Forms("image-object-detection", root).plan(train_image_folder=root, **SIZE).warnings
    assert "labels: 1 file of annotations has no image: about.txt." in warnings


def test_a_label_may_be_called_like_a_list(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"labels/train.txt": BOX, "labels/1.txt": BOX})
    found = Forms("image-object-detection", root).plan(train_image_folder=root, pct_val=0, **SIZE)
    assert [len(boxes) for boxes in found.splits["train"].targets] == [1, 1]
