"""Files of LabelMe, Label Studio, the VGG Image Annotator and Supervisely, each given by the folder of an export."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from digits.data.sources.plan import Plan, UnusableSource
from tests.kinds.dataset_forms import Forms

WIDTH, HEIGHT = 40, 20
CAT, DOG = [4, 5, 24, 15], [10, 2, 30, 18]
CORNERS = [[4, 5], [24, 5], [24, 15], [4, 15]]
TRIANGLE = [[10, 2], [30, 2], [30, 18]]
Item = dict[str, Any]


def save(path: Path, content: Any = None) -> None:
    """Write an image, or a JSON file if there is ``content``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        Image.new("L", (WIDTH, HEIGHT)).save(path)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def plan(root: Path, **fields: Any) -> Plan:
    forms = Forms("image-object-detection", root)
    summary = forms.summary(train_image_folder=root)
    assert summary.problems or any("nnotations: " in fact for fact in summary.facts), summary
    return forms.plan(train_image_folder=root, pct_val=0, **fields)


def boxes_of(found: Plan, split: str = "train") -> dict[str, list[tuple[Any, ...]]]:
    """Return the name of the class and the edges of each object by image."""
    part = found.splits[split]
    return {
        file: [
            (
                "ignored" if number < 0 else found.target.names[int(number)],
                *(round(edge, 3) for edge in edges),
            )
            for *edges, number in boxes.tolist()
        ]
        for file, boxes in zip(part.files, part.targets, strict=True)
    }


def labelme(shapes: list[Item], name: str, **changes: Any) -> Item:
    return {
        "version": "5.4.1",
        "flags": {},
        "shapes": [{"group_id": None, "flags": {}, **shape} for shape in shapes],
        "imagePath": name,
        "imageData": None,
        "imageHeight": HEIGHT,
        "imageWidth": WIDTH,
        **changes,
    }


def shape(label: str, points: list[list[float]], kind: str = "polygon") -> Item:
    return {"label": label, "points": points, "shape_type": kind}


def write_labelme(root: Path) -> None:
    save(root / "one.png")
    save(root / "two.png")
    save(root / "one.json", labelme([shape("cat", [[24, 15], [4, 5]], "rectangle")], "one.png"))
    save(root / "two.json", labelme([shape("dog", TRIANGLE)], "two.png"))


def task(name: str, results: list[Item], **changes: Any) -> Item:
    return {
        "id": len(name),
        "data": {"image": f"/data/upload/1/0a1b2c3d-{name}"},
        "annotations": [{"id": 1, "result": results, "was_cancelled": False, **changes}],
    }


def result(kind: str, label: str, **value: Any) -> Item:
    return {
        "id": "x",
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "original_width": WIDTH,
        "original_height": HEIGHT,
        "value": {**value, kind: [label]},
    }


PERCENT = {"x": 10, "y": 25, "width": 50, "height": 50, "rotation": 0}
PERCENT_TRIANGLE = [[x * 100 / WIDTH, y * 100 / HEIGHT] for x, y in TRIANGLE]


def write_label_studio(root: Path) -> None:
    save(root / "images" / "one.png")
    save(root / "images" / "0a1b2c3d-two.png")
    tasks = [
        task("one.png", [result("rectanglelabels", "cat", **PERCENT)]),
        task("two.png", [result("polygonlabels", "dog", points=PERCENT_TRIANGLE, closed=True)]),
    ]
    save(root / "project-1-at-2026-01-01.json", tasks)


def write_json_min(root: Path) -> None:
    save(root / "images" / "one.png")
    save(root / "images" / "two.png")
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    cat = {**PERCENT, "rectanglelabels": ["cat"], **size}
    dog = {"points": PERCENT_TRIANGLE, "polygonlabels": ["dog"], **size}
    rows = [
        {
            "image": f"/data/upload/1/0a1b2c3d-{name}.png",
            "id": 1,
            "label": [item],
            "annotator": 1,
            "lead_time": 2.5,
        }
        for name, item in (("one", cat), ("two", dog))
    ]
    save(root / "min.json", rows)


def region(attributes: Item, name: str, **keys: Any) -> Item:
    return {"shape_attributes": {"name": name, **keys}, "region_attributes": attributes}


def vgg() -> Item:
    cat = region({"class": "cat"}, "rect", x=4, y=5, width=20, height=10)
    xs, ys = zip(*TRIANGLE, strict=True)
    dog = region({"class": {"dog": True, "cat": False}}, "polygon", all_points_x=xs, all_points_y=ys)
    return {
        "one.png123": {"filename": "one.png", "size": 123, "regions": [cat], "file_attributes": {}},
        "two.png9": {"filename": "two.png", "size": 9, "regions": {"0": dog}, "file_attributes": {}},
    }


def write_vgg(root: Path) -> None:
    save(root / "one.png")
    save(root / "two.png")
    save(root / "via_region_data.json", vgg())


def write_vgg_project(root: Path) -> None:
    write_vgg(root)
    save(
        root / "via_region_data.json",
        {"_via_settings": {"ui": {}}, "_via_img_metadata": vgg(), "_via_attributes": {}},
    )


def write_vgg_table(root: Path) -> None:
    write_vgg(root)
    (root / "via_region_data.json").unlink()
    lines = [
        "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes"
    ]
    for entry in vgg().values():
        (item,) = entry["regions"].values() if isinstance(entry["regions"], dict) else entry["regions"]
        cells = (
            json.dumps(item[key]).replace('"', '""') for key in ("shape_attributes", "region_attributes")
        )
        lines.append(f'{entry["filename"]},1,"{{}}",1,0,' + ",".join(f'"{cell}"' for cell in cells))
    save(root / "via_region_data.csv", "\n".join(lines))


def supervisely(title: str, kind: str, exterior: list[list[float]], **points: Any) -> Item:
    return {
        "description": "",
        "tags": [],
        "size": {"height": HEIGHT, "width": WIDTH},
        "objects": [
            {
                "id": 1,
                "classTitle": title,
                "geometryType": kind,
                "tags": [],
                "points": {"exterior": exterior, "interior": [], **points},
            }
        ],
    }


def write_supervisely(root: Path) -> None:
    save(root / "meta.json", {"classes": [{"title": "cat"}, {"title": "dog"}], "tags": []})
    save(root / "ds0" / "img" / "one.png")
    save(root / "ds1" / "img" / "two.png")
    save(root / "ds0" / "ann" / "one.png.json", supervisely("cat", "rectangle", [[4, 5], [24, 15]]))
    save(root / "ds1" / "ann" / "two.png.json", supervisely("dog", "polygon", TRIANGLE))


EXPORTS: Mapping[str, Callable[[Path], None]] = {
    "LabelMe": write_labelme,
    "Label Studio JSON": write_label_studio,
    "Label Studio JSON-MIN": write_json_min,
    "VGG": write_vgg,
    "VGG project": write_vgg_project,
    "VGG CSV": write_vgg_table,
    "Supervisely": write_supervisely,
}


@pytest.mark.parametrize("tool", EXPORTS)
def test_an_export_is_read_by_its_root_folder(tmp_path: Path, tool: str) -> None:
    EXPORTS[tool](tmp_path)
    found = plan(tmp_path)
    boxes = {Path(file).stem[-3:]: rows for file, rows in boxes_of(found).items()}
    assert boxes == {"one": [("cat", *CAT)], "two": [("dog", *DOG)]}
    assert all("differ from those of the images, such as “/data/upload/" in text for text in found.warnings)


@pytest.mark.parametrize("tool", ["LabelMe", "VGG", "Supervisely"])
def test_splits_of_an_export_are_found(tmp_path: Path, tool: str) -> None:
    for split in ("train", "val"):
        EXPORTS[tool](tmp_path / split)
    found = plan(tmp_path)
    assert [len(found.splits[split]) for split in ("train", "val")] == [2, 2]
    assert len(boxes_of(found, "val")) == 2


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("one.json", "..\\other.png"), ("two.json", "C:\\photos\\two.png")),
        (("41a0.json", "..\\one.png"), ("8d77.json", "C:\\photos\\two.png")),
    ],
)
def test_images_and_files_of_labelme_are_paired_by_name_or_by_the_windows_path(
    tmp_path: Path, one: tuple[str, str], two: tuple[str, str]
) -> None:
    save(tmp_path / "images" / "one.png")
    save(tmp_path / "images" / "two.png")
    save(tmp_path / "labels" / one[0], labelme([shape("cat", CORNERS)], one[1]))
    save(tmp_path / "labels" / two[0], labelme([shape("dog", TRIANGLE)], two[1]))
    assert boxes_of(plan(tmp_path)) == {"one.png": [("cat", *CAT)], "two.png": [("dog", *DOG)]}


def test_names_in_files_of_labelme_that_contradict_those_of_the_files_are_refused(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        save(tmp_path / "images" / f"{name}.png")
        save(tmp_path / "labels" / f"{name}.json", labelme([shape("cat", CORNERS)], f"{other}.png"))
    with pytest.raises(UnusableSource, match=r"of one\.png are called like it, but say .* of two\.png"):
        plan(tmp_path)


def test_shapes_of_labelme(tmp_path: Path) -> None:
    shapes = [
        shape("disk", [[20, 10], [23, 14]], "circle"),
        shape("turned", [[10, 2], [14, 6], [10, 10], [6, 6]], "rotation"),
        shape("old", TRIANGLE) | {"shape_type": None},
        shape("__ignore__", CORNERS),
        shape("dot", [[1, 1]], "point"),
        shape("path", [[1, 1], [2, 2], [3, 3]], "linestrip"),
    ]
    save(tmp_path / "a.png")
    save(tmp_path / "a.json", labelme(shapes, "a.png", imageData="A" * 100_000))
    found = plan(tmp_path)
    assert boxes_of(found)["a.png"] == [
        ("disk", 15, 5, 25, 15),
        ("turned", 6, 2, 14, 10),
        ("old", *DOG),
        ("ignored", *CAT),
    ]
    assert any(
        "Shapes that are not used: 1 × point, 1 × linestrip. Draw rectangles" in text
        for text in found.warnings
    )


def test_faults_of_labelme_name_the_file(tmp_path: Path) -> None:
    write_labelme(tmp_path)
    save(tmp_path / "two.json", labelme([shape("dog", [[1, 1], [2, 2]])], "two.png"))
    with pytest.raises(UnusableSource) as caught:
        plan(tmp_path)
    reason = "two.json: shape 1: a polygon has 2 corners instead of at le"
    assert reason in caught.value.sentences
    assert list(boxes_of(plan(tmp_path, max_unusable_percent=50))) == ["one.png"]


def test_label_studio_rotates_around_the_corner(tmp_path: Path) -> None:
    save(tmp_path / "one.png")
    box = {"x": 50, "y": 50, "width": 20, "height": 25}
    turned = [result("rectanglelabels", "cat", **box, rotation=angle) for angle in (90, 180)]
    both = [
        {
            "id": "y",
            "type": "rectangle",
            "value": PERCENT,
            "original_width": WIDTH,
            "original_height": HEIGHT,
        },
        result("labels", "dog", **PERCENT) | {"id": "y"},
    ]
    circle = result("ellipselabels", "disk", x=50, y=50, radiusX=10, radiusY=20, rotation=0)
    dot = result("keypointlabels", "cat", x=1, y=1, width=1)
    save(tmp_path / "a.json", [task("one.png", [*turned, *both, circle, dot])])
    found = plan(tmp_path)
    boxes = [("cat", 15, 10, 20, 18), ("cat", 12, 5, 20, 10), ("dog", *CAT), ("disk", 16, 6, 24, 14)]
    assert boxes_of(found)["one.png"] == boxes
    (text,) = (text for text in found.warnings if "path " not in text)
    assert "1 × keypoint" in text and "polygons" in text


def test_the_latest_annotation_of_a_task_is_used(tmp_path: Path) -> None:
    save(tmp_path / "one.png")
    save(tmp_path / "four.png")
    old = task("one.png", [result("rectanglelabels", "dog", **PERCENT)], updated_at="2026-01-01T10:00:00Z")
    new = task("one.png", [result("rectanglelabels", "cat", **PERCENT)], updated_at="2026-01-02T10:00:00Z")
    skipped = task("one.png", [], updated_at="2026-01-03T10:00:00Z", was_cancelled=True)
    annotations = [*new["annotations"], *old["annotations"], *skipped["annotations"]]
    save(
        tmp_path / "a.json", [old | {"annotations": annotations}, task("four.png", []) | {"annotations": []}]
    )
    found = plan(tmp_path)
    assert boxes_of(found) == {"one.png": [("cat", *CAT)]}
    assert found.warnings[-2:] == [
        "a.json: 1 task with several annotations: the latest of each is used.",
        "a.json: 1 task without annotations: not used.",
    ]


def test_shapes_and_classes_of_vgg(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    regions = [
        region({}, "circle", cx=20, cy=10, r=5),
        region({}, "ellipse", cx=20, cy=10, rx=8, ry=4, theta=math.pi / 2),
        region({}, "point", cx=2, cy=2),
    ]
    save(tmp_path / "a.json", {"a": {"filename": "a.png", "regions": regions}})
    found = plan(tmp_path)
    assert boxes_of(found)["a.png"] == [("object", 15, 5, 25, 15), ("object", 16, 2, 24, 18)]
    assert any("no attributes: their class is called “object”" in text for text in found.warnings)
    assert any("Shapes that are not used: 1 × point." in text for text in found.warnings)


def test_the_attribute_of_vgg_that_is_the_class_can_be_chosen(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    cat = region({"kind": "cat", "color": "red"}, "rect", x=4, y=5, width=20, height=10)
    save(tmp_path / "a.json", {"a": {"filename": "a.png", "regions": [cat]}})
    with pytest.raises(UnusableSource) as caught:
        plan(tmp_path)
    assert "kind, color" in caught.value.sentences and "class_column" in caught.value.hint
    assert boxes_of(plan(tmp_path, class_column="color"))["a.png"] == [("red", *CAT)]


def test_lines_of_supervisely_are_counted(tmp_path: Path) -> None:
    write_supervisely(tmp_path)
    lines = supervisely("dog", "rectangle", [[10, 2], [30, 18]])
    lines["objects"].append({"classTitle": "cat", "geometryType": "line", "points": {"exterior": [[1, 1]]}})
    save(tmp_path / "ds1" / "ann" / "two.png.json", lines)
    found = plan(tmp_path)
    assert boxes_of(found)["ds1/img/two.png"] == [("dog", *DOG)]
    (text,) = found.warnings
    assert "1 × line" in text and "polygons" in text


@pytest.mark.parametrize(
    ("content", "tool", "advice"),
    [
        (
            [{"image": "a.png", "annotations": [{"label": "cat", "coordinates": {"x": 1}}]}],
            "CreateML",
            "as COCO",
        ),
        (
            {"imgHeight": 20, "imgWidth": 40, "objects": [{"label": "car", "polygon": []}]},
            "Cityscapes",
            "_labelIds",
        ),
        ([{"name": "a.png", "labels": [{"category": "car", "box2d": {"x1": 1}}]}], "BDD100K", "to_coco"),
        ({"dm_format_version": "1.0", "infos": {}, "categories": {}, "items": []}, "Datumaro", "as COCO"),
        (
            {"project": {}, "file": {}, "metadata": {"1": {"vid": "1", "xy": [2, 1, 1, 5, 5]}}},
            "VIA 3",
            "as COCO",
        ),
        ({"version": 1}, "", ""),
    ],
)
def test_files_of_other_tools_are_named(tmp_path: Path, content: Any, tool: str, advice: str) -> None:
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    save(tmp_path / "a.json", content)
    save(tmp_path / "notes.json", {"categories": []})  # the classes of an export of Label Studio
    forms = Forms("image-object-detection", tmp_path)
    (problem,) = forms.summary(train_image_folder=tmp_path).problems
    assert "is not a COCO file" in problem and tool in problem and advice in problem
    save(tmp_path / "b.json", content)
    (problem,) = forms.summary(train_image_folder=tmp_path).problems
    assert "several JSON files: a.json, b.json" in problem and tool in problem and advice in problem


def test_several_exports_in_a_folder_are_named(tmp_path: Path) -> None:
    write_label_studio(tmp_path)
    write_vgg(tmp_path)
    errors = Forms("image-object-detection", tmp_path).errors(train_image_folder=tmp_path)
    assert "Enter one of them as the annotations" in errors["train_label_folder"][0]
