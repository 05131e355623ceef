"""Boxes whose sizes, orientation or units are not those of the images: where they land, and what is said."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.detection import reader
from digits.kinds.detection.recipe import CreateDetection
from tests.kinds import annotation_files
from tests.kinds.dataset_forms import Forms

Edges = Sequence[float]
# The stored width and height of images, and the edges of an object in the file.
WIDTH, HEIGHT = 48, 32
OBJECT = (6, 4, 20, 14)


def save(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT), turn: int = 1, edges: Edges = OBJECT) -> None:
    """Save an image of this stored size with a white object, and with this EXIF orientation."""
    pixels = np.zeros((size[1], size[0]), np.uint8)
    left, top, right, bottom = map(round, edges)
    pixels[top:bottom, left:right] = 255
    exif = Image.Exif()
    exif[0x0112] = turn
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif)


def upright_edges(path: Path) -> list[float]:
    """Return the edges of the white object in the upright image."""
    with Image.open(path) as image:
        rows, columns = np.nonzero(np.asarray(ImageOps.exif_transpose(image)))
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def voc(edges: Edges, size: tuple[int, int] | None = (WIDTH, HEIGHT), head: str = "") -> str:
    stated = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    return annotation_files.voc([("cat", *edges)], head + stated)  # type: ignore[list-item]


def write_voc(folder: Path, name: str, edges: Edges, size: tuple[int, int] | None = (WIDTH, HEIGHT)) -> None:
    (folder / "labels").mkdir(exist_ok=True)
    (folder / "labels" / f"{name}.xml").write_text(voc(edges, size))


def plan(folder: Path, labels: str = "labels", **options: object) -> Plan:
    recipe = CreateDetection(
        images=str(folder / "images"),
        labels=str(folder / labels),
        pct_val=0,
        **options,  # type: ignore[arg-type]
    )
    return reader.read(recipe, Progress())


def boxes_of(found: Plan) -> dict[str, list[list[float]]]:
    split = found.splits["train"]
    pairs = sorted(zip(split.files, split.targets, strict=True))
    return {Path(file).stem: boxes[:, :4].round(2).tolist() for file, boxes in pairs}


@pytest.mark.parametrize("turn", range(1, 9))
def test_boxes_in_the_pixels_of_the_file_are_turned_with_the_image(tmp_path: Path, turn: int) -> None:
    for name, orientation in (("first", 6), ("second", turn)):
        save(tmp_path / "images" / f"{name}.png", turn=orientation)
        write_voc(tmp_path, name, OBJECT)
    found = plan(tmp_path)
    assert boxes_of(found) == {
        name: [upright_edges(tmp_path / "images" / f"{name}.png")] for name in ("first", "second")
    }
    assert any("turned with the image" in text and "first.png: 32×48" in text for text in found.warnings)


@pytest.mark.parametrize("turn", range(2, 9))
def test_boxes_of_upright_images_are_not_turned(tmp_path: Path, turn: int) -> None:
    path = tmp_path / "images" / "a.png"
    save(path, turn=turn)
    edges = upright_edges(path)
    with Image.open(path) as image:
        write_voc(tmp_path, "a", edges, ImageOps.exif_transpose(image).size)
    found = plan(tmp_path)
    assert boxes_of(found) == {"a": [edges]}
    assert any("EXIF orientation" in text for text in found.warnings) == (turn < 5)


def write_coco(folder: Path, sizes: dict[str, tuple[int, int]], edges: Edges) -> None:
    images = [(f"{name}.png", [("cat", *edges)]) for name in sizes]
    (folder / "labels.json").write_text(annotation_files.coco(images, sizes.values()))  # type: ignore[arg-type]


def write_cvat(folder: Path, sizes: dict[str, tuple[int, int]], edges: Edges) -> None:
    images = [(f"{name}.png", [("cat", *edges)]) for name in sizes]
    (folder / "labels.xml").write_text(annotation_files.cvat(images, sizes.values()))  # type: ignore[arg-type]


def write_csv(folder: Path, sizes: dict[str, tuple[int, int]], edges: Edges) -> None:
    lines = [f"{n}.png,{w},{h},cat,{','.join(map(str, edges))}" for n, (w, h) in sizes.items()]
    (folder / "labels.csv").write_text("filename,width,height,class,xmin,ymin,xmax,ymax\n" + "\n".join(lines))


FILES = {"labels.json": write_coco, "labels.xml": write_cvat, "labels.csv": write_csv}


@pytest.mark.parametrize("labels", FILES)
def test_all_formats_with_sizes_are_turned_and_scaled(tmp_path: Path, labels: str) -> None:
    images = tmp_path / "images"
    save(images / "a.png", turn=6)
    save(images / "b.png")
    FILES[labels](tmp_path, dict.fromkeys("ab", (WIDTH, HEIGHT)), OBJECT)
    assert boxes_of(plan(tmp_path, labels)) == {"a": [[18, 6, 28, 20]], "b": [list(OBJECT)]}
    FILES[labels](tmp_path, {"a": (64, 96), "b": (96, 64)}, [2 * edge for edge in OBJECT])
    found = plan(tmp_path, labels)
    assert boxes_of(found) == {name: [list(OBJECT)] for name in "ab"}
    assert any(
        "0.5 times the size" in text and "b.png: 48×32 instead of 96×64" in text for text in found.warnings
    )
    FILES[labels](tmp_path, dict.fromkeys("ab", (96, 64)), [2 * edge for edge in OBJECT])
    assert boxes_of(plan(tmp_path, labels)) == {"a": [[18, 6, 28, 20]], "b": [list(OBJECT)]}


def test_images_scaled_by_different_factors_are_listed_with_both_sizes(tmp_path: Path) -> None:
    for name, size in {"a": (48, 32), "b": (96, 64), "c": (72, 48), "d": (90, 64)}.items():
        save(tmp_path / "images" / f"{name}.png", size)
        write_voc(tmp_path, name, OBJECT)
    with pytest.raises(UnusableSource) as caught:
        plan(tmp_path)
    assert (
        "3 images cannot be used: it has … pixels, but its annotations are for 48×32: b.png (96×64), c.png (72×48), "
        "d.png (90×64)."
    ) in str(caught.value)
    found = plan(tmp_path, max_unusable_percent=80)
    assert boxes_of(found) == {"a": [list(OBJECT)]}
    assert [item.path for item in found.unusable] == ["b.png", "c.png", "d.png"]


def test_exchanged_sizes_without_an_orientation_are_refused_unless_the_boxes_fit(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png")
    write_voc(tmp_path, "a", OBJECT, (HEIGHT, WIDTH))
    with pytest.raises(UnusableSource, match="it has 48×32 pixels, but its annotations are for 32×48"):
        plan(tmp_path)
    write_voc(tmp_path, "a", (6, 4, 46, 14), (HEIGHT, WIDTH))
    found = plan(tmp_path)
    assert boxes_of(found) == {"a": [[6, 4, 46, 14]]}
    assert any("state a wrong size (a.png: 48×32 instead of 32×48)" in text for text in found.warnings)


@pytest.mark.parametrize("size", [None, (0, 0), (WIDTH, HEIGHT), (WIDTH + 1, HEIGHT)])
def test_without_another_size_nothing_changes(tmp_path: Path, size: tuple[int, int] | None) -> None:
    save(tmp_path / "images" / "a.png")
    write_voc(tmp_path, "a", OBJECT, size)
    found = plan(tmp_path)
    assert boxes_of(found) == {"a": [list(OBJECT)]} and not found.warnings


FRACTIONS = (0.125, 0.125, 0.5, 0.4375)


@pytest.mark.parametrize("labels", FILES)
def test_fractions_instead_of_pixels_are_recognized(tmp_path: Path, labels: str) -> None:
    for name in "ab":
        save(tmp_path / "images" / f"{name}.png")
    FILES[labels](tmp_path, dict.fromkeys("ab", (WIDTH, HEIGHT)), FRACTIONS)
    found = plan(tmp_path, labels)
    assert boxes_of(found) == {name: [[6, 4, 24, 14]] for name in "ab"}
    assert any("2 images are between 0 and 1: used as fractions" in text for text in found.warnings)


def test_corners_instead_of_sides_are_recognized(tmp_path: Path) -> None:
    wanted = {"a": (20, 10, 44, 30), "b": (2, 3, 12, 13)}
    for name, edges in wanted.items():
        save(tmp_path / "images" / f"{name}.png", edges=edges)
    write_coco(tmp_path, dict.fromkeys(wanted, (WIDTH, HEIGHT)), OBJECT)
    content = json.loads((tmp_path / "labels.json").read_text())
    for item, edges in zip(content["annotations"], wanted.values(), strict=True):
        item["bbox"] = edges
    (tmp_path / "labels.json").write_text(json.dumps(content))
    found = plan(tmp_path, "labels.json")
    assert boxes_of(found) == {name: [list(edges)] for name, edges in wanted.items()}
    assert any(
        "used as left, top, right and bottom edges instead of left, top, width and height" in text
        for text in found.warnings
    )
    # A box that is no smaller than its left edge is not one of corners.
    content["annotations"].append({"id": 9, "image_id": 1, "category_id": 0, "bbox": [20, 4, 10, 10]})
    (tmp_path / "labels.json").write_text(json.dumps(content))
    found = plan(tmp_path, "labels.json")
    assert boxes_of(found)["b"] == [[2, 3, 14, 16], [20, 4, 30, 14]]


def test_columns_of_open_images_are_known(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png")
    header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded"
    (tmp_path / "labels.csv").write_text(f"{header}\na,xclick,/m/01,1,0.125,0.5,0.125,0.4375,0\n")
    found = plan(tmp_path, "labels.csv")
    assert boxes_of(found) == {"a": [[6, 4, 24, 14]]} and found.target.names == ["/m/01"]


def test_fractions_of_a_file_that_is_displayed_rotated_are_turned(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png", turn=8)
    write_voc(tmp_path, "a", FRACTIONS)
    assert boxes_of(plan(tmp_path)) == {"a": [[4, 24, 14, 42]]}


def test_a_few_fractions_among_pixels_are_refused_by_name(tmp_path: Path) -> None:
    for name, edges in {"a": OBJECT, "b": OBJECT, "c": FRACTIONS}.items():
        save(tmp_path / "images" / f"{name}.png")
        write_voc(tmp_path, name, edges)
    with pytest.raises(UnusableSource) as caught:
        plan(tmp_path)
    assert "1 image cannot be used: c.png: its boxes are fractions, but the usual ones" in str(caught.value)
    assert "all images in pixels" in caught.value.sentences
    assert boxes_of(plan(tmp_path, max_unusable_percent=40)) == {"a": [list(OBJECT)], "b": [list(OBJECT)]}


def write_yolo(folder: Path, name: str, edges: Edges) -> None:
    left, top, right, bottom = edges
    (folder / "labels").mkdir(exist_ok=True)
    numbers = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
    (folder / "labels" / f"{name}.txt").write_text(f"0 {' '.join(map(str, numbers))}\n")


def test_pixels_instead_of_fractions_are_recognized_if_they_fit_the_image(tmp_path: Path) -> None:
    for name in "ab":
        save(tmp_path / "images" / f"{name}.png")
        write_yolo(tmp_path, name, OBJECT)
    found = plan(tmp_path, format="yolo")
    assert boxes_of(found) == {name: [list(OBJECT)] for name in "ab"}
    assert any("2 images are pixels instead of fractions" in text for text in found.warnings)
    write_yolo(tmp_path, "b", FRACTIONS)
    with pytest.raises(UnusableSource, match=r"a\.png: its boxes are pixels, but the usual ones"):
        plan(tmp_path, format="yolo")
    for name in "ab":
        write_yolo(tmp_path, name, [2 * WIDTH + edge for edge in OBJECT])
    with pytest.raises(UnusableSource, match=r"neither fractions nor pixels of the image \(48×32\)"):
        plan(tmp_path, format="yolo")


def test_rotated_boxes_and_other_shapes_of_cvat_become_the_boxes_around_them(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png")
    shapes = """<box label="cat" xtl="10" ytl="10" xbr="20" ybr="14" rotation="90"/>
        <box label="cat" xtl="10" ytl="10" xbr="20" ybr="20" rotation="45.0"/>
        <box label="cat" xtl="1" ytl="2" xbr="3" ybr="4" rotation="0"/>
        <polygon label="cat" points="3.5,4;9,5;7,12"/><polyline label="cat" points="1,1;5,9"/>
        <ellipse label="cat" cx="20" cy="10" rx="6" ry="2"/>
        <ellipse label="cat" cx="20" cy="10" rx="6" ry="2" rotation="90"/>
        <mask label="cat" left="3" top="4" width="5" height="6" rle="1, 29"/>
        <points label="cat" points="1,1"/>"""
    xml = f'<annotations><image name="a.png" width="48" height="32">{shapes}</image></annotations>'
    (tmp_path / "labels.xml").write_text(xml)
    found = plan(tmp_path, "labels.xml")
    half = round(math.sqrt(50), 2)
    assert boxes_of(found)["a"] == pytest.approx(
        np.array(
            [
                [13, 7, 17, 17],
                [15 - half, 15 - half, 15 + half, 15 + half],
                [1, 2, 3, 4],
                [3.5, 4, 9, 12],
                [1, 1, 5, 9],
                [14, 8, 26, 12],
                [18, 4, 22, 16],
                [3, 4, 8, 10],
            ]
        )
    )
    rotated = "2 rotated boxes: the smallest upright box around each is used (a.png, box 1, a.png, box 2)."
    assert f"labels.xml: {rotated}" in found.warnings
    others = "Boxes around other shapes are used: 2 × ellipse, 1 × polygon, 1 × polyline, 1 × mask."
    assert f"labels.xml: {others}" in found.warnings
    assert "labels.xml: Shapes that are not used: 1 × points." in found.warnings


def test_files_of_labelimg_on_windows(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.mkdir()
    head = r"<filename>other {0}</filename><path>C:\Users\ann\photos\my photo ({0}).png</path>"
    wanted = {}
    for number, edges in enumerate([(1.25, 4, 11.25, 14), (11.25, 4, 1.25, 14), (1, 1, WIDTH, HEIGHT)]):
        save(tmp_path / "images" / f"my photo ({number}).png")
        (labels / f"my photo ({number}).xml").write_text(voc(edges, head=head.format(number)))
        wanted[f"my photo ({number})"] = [
            [min(edges[0], edges[2]), edges[1], max(edges[0], edges[2]), edges[3]]
        ]
    # Names in the files do not count for some of them only.
    save(tmp_path / "images" / "rose.png")
    (labels / "0001.xml").write_text(voc(OBJECT, head=r"<filename>C:\photos\rose.png</filename>"))
    (labels / "0002.xml").write_text(voc(OBJECT, head=r"<filename>rose.png</filename>"))
    found = plan(tmp_path)
    assert boxes_of(found) == wanted
    assert any("1 box has left and right" in text and "my photo (1).xml" in text for text in found.warnings)
    assert "labels: 2 files of annotations have no image: 0001.xml, 0002.xml." in found.warnings


@pytest.mark.parametrize("encoding", ["gbk", "utf-8"])
def test_chinese_class_names_are_read(tmp_path: Path, encoding: str) -> None:
    save(tmp_path / "images" / "a.png")
    (tmp_path / "labels").mkdir()
    text = '<?xml version="1.0" encoding="gb2312"?>' + voc(OBJECT).replace("cat", "方")
    (tmp_path / "labels" / "a.xml").write_bytes(text.encode(encoding))
    assert plan(tmp_path).target.names == ["方"]


def test_the_form_says_what_the_dataset_says(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    for name in "abcdefgh":
        save(forms.data / "images" / f"{name}.png", turn=6)
        write_voc(forms.data, name, OBJECT)
    found = forms.summary(train_image_folder=forms.data / "images", train_label_folder=forms.data / "labels")
    assert any("VOC annotations: 8 images with 8 objects of 1 class" in fact for fact in found.facts)
    assert any("turned with the image" in problem for problem in found.problems)
    made = forms.create(train_image_folder=forms.data, resize_width=32, resize_height=48)
    assert any("turned with the image" in text for text in made.remarks)
    for record in made.records():
        left, top, right, bottom, _ = record.target(made.manifest.target)[0]
        assert (left, top, right, bottom) == (18, 6, 28, 20)


def test_nothing_is_said_of_boxes_whose_images_are_elsewhere(tmp_path: Path) -> None:
    forms = Forms("image-object-detection", tmp_path / "data")
    write_coco(forms.data, {"a": (WIDTH, HEIGHT)}, OBJECT)
    save(forms.data / "images" / "other.png")
    found = forms.summary(
        train_image_folder=forms.data / "images", train_label_folder=forms.data / "labels.json"
    )
    assert found.facts == []
    (problem,) = found.problems
    assert problem.startswith("None of the images listed in") and "The first one is a.png." in problem
