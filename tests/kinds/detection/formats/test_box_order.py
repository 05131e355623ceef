"""Boxes in tables and YOLO files, in any order of their numbers and in any unit: where they land, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.detection import reader
from digits.kinds.detection.recipe import CreateDetection

SMALL, LARGE = (48, 32), (640, 480)
COUNT = 8

Numbers = tuple[float, ...]
ORDERS: dict[str, Callable[[float, float, float, float], Numbers]] = {
    "edges": lambda x, y, w, h: (x, y, x + w, y + h),
    "sides": lambda x, y, w, h: (x, y, w, h),
    "centers": lambda x, y, w, h: (x + w / 2, y + h / 2, w, h),
}


def box(number: int, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The left, top, width and height of the object in an image: a quarter of it, the last one at its corner."""
    width, height = size
    place = number / (COUNT - 1)
    return place * 0.75 * width, (number * 3 % COUNT / (COUNT - 1)) * 0.75 * height, width / 4, height / 4


def numbers(number: int, size: tuple[int, int], order: str, unit: float) -> Numbers:
    """The four numbers of a box in an order; ``unit`` is the number that the width or height of the image has, or 0."""
    scale = [unit / side for side in size] if unit else [1.0, 1.0]
    found = ORDERS[order](*box(number, size))
    return tuple(round(value * scale[index % 2], 4) for index, value in enumerate(found))


def save_images(folder: Path, size: tuple[int, int], count: int = COUNT) -> Path:
    for number in range(count):
        path = folder / "images" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((size[1], size[0]), np.uint8)).save(path)
    return folder


def plan(folder: Path, labels: str, **settings: object) -> Plan:
    paths = {"images": str(folder / "images"), "labels": str(folder / labels)}
    return reader.read(CreateDetection(**paths, pct_val=0, **settings), Progress())  # type: ignore[arg-type]


def table(
    folder: Path, size: tuple[int, int], head: str, row: Callable[[int], str], count: int = COUNT
) -> Plan:
    save_images(folder, size, count)
    (folder / "boxes.csv").write_text(
        "\n".join([head, *(f"{number}.png,{row(number)}" for number in range(count))])
    )
    return plan(folder, "boxes.csv")


def check(made: Plan, size: tuple[int, int]) -> None:
    """Check the boxes of all images."""
    train = made.splits["train"]
    for file, boxes in zip(train.files, train.targets, strict=True):
        left, top, width, height = box(int(Path(file).stem), size)
        assert boxes[0, :4] == pytest.approx([left, top, left + width, top + height], abs=0.1)


COLUMNS = {
    "edges": "xmin,ymin,xmax,ymax",
    "sides": "x,y,width,height",
    "centers": "x_center,y_center,width,height",
}


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("unit", [0, 1, 100, 1000])
@pytest.mark.parametrize("order", COLUMNS)
def test_columns_in_any_unit(tmp_path: Path, order: str, unit: int, size: tuple[int, int]) -> None:
    made = table(
        tmp_path,
        size,
        f"image,{COLUMNS[order]},class",
        lambda number: ",".join(map(str, numbers(number, size, order, unit))) + ",a",
    )
    check(made, size)
    said = {0: "", 1: "used as fractions", 100: "used as percent", 1000: "used as thousandths"}[unit]
    assert [said in text for text in made.warnings] == ([True] if said else [])


@pytest.mark.parametrize("unit", [0, 1])
def test_centers_in_columns_of_corners(tmp_path: Path, unit: int) -> None:
    row = lambda number: ",".join(map(str, numbers(number, SMALL, "centers", unit))) + ",a"  # noqa: E731
    made = table(tmp_path, SMALL, "image,x,y,w,h,class", row)
    check(made, SMALL)
    assert any("used as center, width and height instead of" in text for text in made.warnings)


@pytest.mark.parametrize("form", ['"[{}, {}, {}, {}]"', "{} {} {} {}", '"({},{},{},{})"', "[{} {} {} {}]"])
@pytest.mark.parametrize(
    ("name", "order"), [("bbox", "sides"), ("bbox", "edges"), ("xyxy", "edges"), ("xywh", "sides")]
)
def test_lists_in_a_cell(tmp_path: Path, form: str, name: str, order: str) -> None:
    row = lambda number: form.format(*numbers(number, SMALL, order, 0)) + ",a"  # noqa: E731
    check(table(tmp_path, SMALL, f"image,{name},class", row), SMALL)


def test_a_list_that_can_be_two_boxes_is_refused(tmp_path: Path) -> None:
    message = "may be left, top, width and height or left, top, right and bottom edges"
    with pytest.raises(UnusableSource, match=message):
        table(tmp_path, SMALL, "image,bbox,class", lambda number: "5 5 20 12,a", 2)


def test_a_table_without_classes_has_one(tmp_path: Path) -> None:
    row = lambda number: ",".join(map(str, numbers(number, SMALL, "edges", 0)))  # noqa: E731
    made = table(tmp_path, SMALL, "image,xmin,ymin,xmax,ymax", row)
    assert made.target.names == ["object"]
    assert made.warnings == ["Without a column of classes, all boxes are of one class, “object”."]
    assert plan(tmp_path, "boxes.csv", classes=["leaf"]).target.names == ["leaf"]


def test_fractions_of_percent_of_large_images_in_a_corner_are_unclear(tmp_path: Path) -> None:
    row = lambda number: f"{number}.5,{number}.25,{number + 9}.5,{number + 9},a"  # noqa: E731
    with pytest.raises(UnusableSource, match="in pixels of other images, or in parts of the images"):
        table(tmp_path, LARGE, "image,xmin,ymin,xmax,ymax,class", row)


@pytest.mark.parametrize("unit", [0, 1, 100, 1000])
@pytest.mark.parametrize("order", ORDERS)
def test_yolo_files(tmp_path: Path, order: str, unit: int) -> None:
    save_images(tmp_path, SMALL)
    (tmp_path / "labels").mkdir()
    for number in range(COUNT):
        line = " ".join(map(str, numbers(number, SMALL, order, unit)))
        (tmp_path / "labels" / f"{number}.txt").write_text(f"0 {line}\n")
    if order != "centers" and unit > 1:
        with pytest.raises(UnusableSource):
            plan(tmp_path, "labels")
        return
    made = plan(tmp_path, "labels")
    check(made, SMALL)
    assert any("instead of center" in text for text in made.warnings) == (order != "centers")


@pytest.mark.parametrize(("name", "values"), [("split", ("train", "val")), ("is_valid", ("False", "True"))])
def test_columns_declare_the_splits(tmp_path: Path, name: str, values: tuple[str, str]) -> None:
    def row(number: int) -> str:
        return ",".join(map(str, [*numbers(number, SMALL, "edges", 0), "a", values[number > 5]]))

    made = table(tmp_path, SMALL, f"image,xmin,ymin,xmax,ymax,class,{name}", row)
    assert {split: sorted(part.files) for split, part in made.splits.items()} == {
        "train": [f"{number}.png" for number in range(6)],
        "val": ["6.png", "7.png"],
    }
    assert any(f"“{name}”" in text for text in made.warnings)
    lines = (tmp_path / "boxes.csv").read_text() + f"\n0.png,1,1,9,9,a,{values[1]}"
    (tmp_path / "boxes.csv").write_text(lines)
    with pytest.raises(UnusableSource, match=r"line 10: 0\.png is in the splits train and val"):
        plan(tmp_path, "boxes.csv")
