"""Label images from the polygons of annotation tools, given by the root folder of an export."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import UnusableSource
from digits.data.targets.mask import IGNORED
from tests.kinds.dataset_forms import Forms
from tests.kinds.detection.test_tools import (
    HEIGHT,
    WIDTH,
    labelme,
    region,
    result,
    save,
    shape,
    supervisely,
    task,
    write_labelme,
)
from tests.kinds.segmentation.test_reader import masks

SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT}
OUTER = [[4, 5], [24, 5], [24, 15], [4, 15]]
OTHER = [[10, 2], [30, 2], [30, 18], [10, 18]]
POLYGONS = {"one": ("cat", OUTER), "two": ("dog", OTHER)}


def rows(root: Path, **fields: Any) -> dict[str, Any]:
    """Return the label images of a dataset of the images in ``root`` by name."""
    forms = Forms("image-segmentation", root)
    found = forms.plan(feature_folder=root, folder_pct_val=0, **SIZE, **fields)
    assert found.target.names == ["background", "cat", "dog"]
    return {Path(name).stem[-3:]: np.array(image) for name, image in masks(found, (WIDTH, HEIGHT)).items()}


def filled(index: int, corners: list[list[int]]) -> Any:
    (left, top), _, (right, bottom), _ = corners
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[top:bottom, left:right] = index
    return pixels


def write_yolo(root: Path) -> None:
    for number, (name, (_, corners)) in enumerate(POLYGONS.items()):
        save(root / "images" / f"{name}.png")
        points = " ".join(f"{x / WIDTH} {y / HEIGHT}" for x, y in corners)
        save(root / "labels" / f"{name}.txt", f"{number} {points}\n")
    save(root / "data.yaml", "names: [cat, dog]\n")


def write_yolo_beside_images(root: Path) -> None:
    write_yolo(root)
    for path in root.glob("*/*"):
        path.rename(root / path.name)
    (root / "images").rmdir()
    (root / "labels").rmdir()


def write_labelme_polygons(root: Path) -> None:
    for name, (label, corners) in POLYGONS.items():
        save(root / f"{name}.png")
        save(root / f"{name}.json", labelme([shape(label, corners)], f"{name}.png"))


def write_label_studio(root: Path) -> None:
    tasks = []
    for name, (label, corners) in POLYGONS.items():
        save(root / "images" / f"{name}.png")
        points = [[x * 100 / WIDTH, y * 100 / HEIGHT] for x, y in corners]
        tasks.append(task(f"{name}.png", [result("polygonlabels", label, points=points)]))
    save(root / "export.json", tasks)


def write_vgg(root: Path) -> None:
    entries = {}
    for name, (label, corners) in POLYGONS.items():
        save(root / f"{name}.png")
        xs, ys = zip(*corners, strict=True)
        outline = region({"type": label}, "polygon", all_points_x=xs, all_points_y=ys)
        entries[name] = {"filename": f"{name}.png", "size": -1, "regions": [outline]}
    save(root / "via_project.json", {"_via_settings": {}, "_via_img_metadata": entries})


def write_supervisely(root: Path) -> None:
    save(root / "meta.json", {"classes": [{"title": "cat"}, {"title": "dog"}]})
    for name, (label, corners) in POLYGONS.items():
        save(root / "ds" / "img" / f"{name}.png")
        save(root / "ds" / "ann" / f"{name}.png.json", supervisely(label, "polygon", corners))


def write_cvat(root: Path) -> None:
    lines = []
    for name, (label, corners) in POLYGONS.items():
        save(root / "images" / f"{name}.png")
        points = ";".join(f"{x:.2f},{y:.2f}" for x, y in corners)
        outline = f'<polygon label="{label}" points="{points}" z_order="0"></polygon>'
        lines.append(f'<image name="{name}.png" width="{WIDTH}" height="{HEIGHT}">{outline}</image>')
    save(root / "annotations.xml", f"<annotations>{''.join(lines)}</annotations>")


EXPORTS: Mapping[str, Callable[[Path], None]] = {
    "YOLO": write_yolo,
    "YOLO beside the images": write_yolo_beside_images,
    "LabelMe": write_labelme_polygons,
    "Label Studio": write_label_studio,
    "VGG": write_vgg,
    "Supervisely": write_supervisely,
    "CVAT": write_cvat,
}


@pytest.mark.parametrize("tool", EXPORTS)
def test_polygons_of_an_export_are_drawn(tmp_path: Path, tool: str) -> None:
    EXPORTS[tool](tmp_path)
    summary = Forms("image-segmentation", tmp_path).summary(feature_folder=tmp_path)
    assert "3 classes: background, cat, dog." in summary.facts and not summary.problems, summary
    found = rows(tmp_path)
    np.testing.assert_array_equal(found["one"], filled(1, OUTER))
    np.testing.assert_array_equal(found["two"], filled(2, OTHER))


@pytest.mark.parametrize("tool", ["YOLO", "LabelMe", "Supervisely"])
def test_splits_of_polygons_are_found(tmp_path: Path, tool: str) -> None:
    for split in ("train", "valid"):
        EXPORTS[tool](tmp_path / split)
    form, recipe = Forms("image-segmentation", tmp_path).filled(feature_folder=tmp_path, **SIZE)
    assert recipe.val is not None and "valid" in recipe.val.images
    assert len(rows(tmp_path)) == 2 and "splits of the source" in form.notes[0]


def test_folders_of_images_and_of_polygons_can_be_entered(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    found = Forms("image-segmentation", tmp_path).plan(
        feature_folder=tmp_path / "images", label_folder=tmp_path / "labels", folder_pct_val=0, **SIZE
    )
    assert found.target.names == ["background", "cat", "dog"]


def test_a_smaller_object_covers_a_larger_one_and_rectangles_are_named(tmp_path: Path) -> None:
    small = shape("dog", [[6, 7], [10, 11]], "rectangle")
    for name, shapes in (("one", [small, shape("cat", OUTER)]), ("two", [shape("cat", OUTER), small])):
        save(tmp_path / f"{name}.png")
        save(tmp_path / f"{name}.json", labelme(shapes, f"{name}.png"))
    expected = filled(1, OUTER)
    expected[7:11, 6:10] = 2
    for pixels in rows(tmp_path).values():
        np.testing.assert_array_equal(pixels, expected)
    summary = Forms("image-segmentation", tmp_path).summary(feature_folder=tmp_path)
    assert summary.problems == ["2 rectangles: used as masks (one.json, shape 1; two.json, shape 2)."]


def test_holes_are_background_and_ignored_objects_have_no_class(tmp_path: Path) -> None:
    write_supervisely(tmp_path)
    hole = [[8, 8], [12, 8], [12, 12], [8, 12]]
    pierced = supervisely("cat", "polygon", OUTER, interior=[hole])
    save(tmp_path / "ds" / "ann" / "one.png.json", pierced)
    expected = filled(1, OUTER)
    expected[8:12, 8:12] = 0
    np.testing.assert_array_equal(rows(tmp_path)["one"], expected)
    other = tmp_path / "labelme"
    save(other / "a.png")
    save(other / "a.json", labelme([shape("cat", OTHER), shape("__ignore__", OUTER)], "a.png"))
    found = Forms("image-segmentation", other).plan(feature_folder=other, folder_pct_val=0, **SIZE)
    expected = filled(IGNORED, OUTER)
    expected[2:18, 10:30] = 1
    np.testing.assert_array_equal(np.array(masks(found, (WIDTH, HEIGHT))["a.png"]), expected)


def write_line_of_labelme(root: Path) -> None:
    write_labelme_polygons(root)
    line = shape("wire", [[30, 3], [36, 9]], "linestrip")
    save(root / "one.json", labelme([shape("cat", OUTER), line], "one.png"))


def write_line_of_vgg(root: Path) -> None:
    write_vgg(root)
    content = json.loads((root / "via_project.json").read_text())
    line = region({"type": "wire"}, "polyline", all_points_x=[30, 36], all_points_y=[3, 9])
    content["_via_img_metadata"]["one"]["regions"].append(line)
    save(root / "via_project.json", content)


def write_line_of_supervisely(root: Path) -> None:
    write_supervisely(root)
    content = supervisely("cat", "polygon", OUTER)
    content["objects"] += supervisely("wire", "line", [[30, 3], [36, 9]])["objects"]
    save(root / "ds" / "ann" / "one.png.json", content)


@pytest.mark.parametrize("write", [write_line_of_labelme, write_line_of_vgg, write_line_of_supervisely])
def test_pixels_around_lines_have_no_class(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    expected = filled(1, OUTER)
    expected[3:10, 30:37] = IGNORED
    np.testing.assert_array_equal(rows(tmp_path)["one"], expected)
    problems = " ".join(Forms("image-segmentation", tmp_path).summary(feature_folder=tmp_path).problems)
    assert (
        "Shapes that are not used: 1 × " in problems
        and "the pixels in the rectangles around them" in problems
    )
    found = Forms("image-object-detection", tmp_path).plan(train_image_folder=tmp_path, pct_val=0, **SIZE)
    assert sorted(len(boxes) for boxes in found.splits["train"].targets) == [1, 1]


def test_boxes_are_no_masks(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png")
    save(tmp_path / "images" / "b.png")
    save(tmp_path / "labels" / "a.txt", "0 0.5 0.5 0.2 0.2\n")
    save(tmp_path / "labels" / "b.txt", "0 0.5 0.5 0.2 0.2\n")
    forms = Forms("image-segmentation", tmp_path)
    problems = forms.summary(feature_folder=tmp_path).problems
    assert problems == [
        "labels contains 2 objects, but no polygons or masks: boxes are not masks. Create a dataset for object detection, or "
        "annotate the outlines of objects as polygons."
    ]
    with pytest.raises(UnusableSource, match="2 objects, but no polygons"):
        forms.plan(feature_folder=tmp_path, **SIZE)


def test_coco_files_with_boxes_only_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "segmentation": []}]
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": boxes,
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(content))
    with pytest.raises(UnusableSource, match=r"labels.json contains 1 object, but no polygons or masks"):
        Forms("image-segmentation", tmp_path).plan(feature_folder=tmp_path, **SIZE)


def test_label_images_beside_files_of_labelme_are_used(tmp_path: Path) -> None:
    write_labelme(tmp_path / "images")
    for name in ("one", "two"):
        Image.fromarray(filled(1, OUTER)).save(tmp_path / "images" / f"{name}_mask.png")
    found = Forms("image-segmentation", tmp_path).plan(
        feature_folder=tmp_path / "images", folder_pct_val=0, **SIZE
    )
    assert sorted(found.splits["train"].files) == ["one.png", "two.png"]


def test_class_labels_name_the_numbers_of_yolo(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    (tmp_path / "data.yaml").unlink()
    labels = tmp_path / "flowers"
    labels.write_text("rose\ntulip\n")
    fields = {"feature_folder": tmp_path, "folder_pct_val": 0, **SIZE}
    forms = Forms("image-segmentation", tmp_path)
    assert forms.plan(**fields).target.names == ["background", "class 0", "class 1"]
    assert forms.plan(**fields, class_labels_file=labels).target.names == ["background", "rose", "tulip"]


@pytest.mark.parametrize("kind", ["image-segmentation", "image-object-detection"])
def test_annotations_without_usable_shapes_are_refused(tmp_path: Path, kind: str) -> None:
    write_supervisely(tmp_path / "lines")
    for path in (tmp_path / "lines").rglob("ann/*"):
        save(path, supervisely("cat", "line", []))
    save(tmp_path / "choices" / "one.png")
    choice = {"type": "choices", "from_name": "choice", "value": {"choices": ["cat"]}}
    save(tmp_path / "choices" / "a.json", [task("one.png", [choice])])
    field = "feature_folder" if kind == "image-segmentation" else "train_image_folder"
    for name, counts in (("lines", "2 × line"), ("choices", "1 × choices")):
        with pytest.raises(UnusableSource, match=f"only shapes that are not used: {counts}") as caught:
            Forms(kind, tmp_path / name).plan(**{field: tmp_path / name}, **SIZE)
        assert "polygons" in caught.value.hint
