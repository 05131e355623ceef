"""Label images from COCO files: polygons, run lengths, what covers what, and errors that name the annotation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from digits.data.archives.writing import stream
from digits.data.images import images
from digits.data.images.images import Geometry
from digits.data.records.index import IndexCache
from digits.data.records.records import Record
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.targets.mask import IGNORED, Mask
from digits.kinds import kind_named
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.versions.export import formats_of
from tests.data.archives.test_writing import unpacked
from tests.datasets import write_dataset
from tests.kinds.segmentation.test_reader import masks

WIDTH, HEIGHT = 12, 8


def square(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    return [[left, top, right, top, right, bottom, left, bottom]]


def whole() -> Any:
    return np.zeros((HEIGHT, WIDTH), np.uint8)


def runs(counts: Any, size: Sequence[int] = (HEIGHT, WIDTH)) -> dict[str, Any]:
    return {"segmentation": {"size": list(size), "counts": counts}}


def write(folder: Path, annotations: list[dict[str, Any]], **changes: Any) -> Path:
    (folder / "images").mkdir(exist_ok=True)
    Image.new("L", (WIDTH, HEIGHT)).save(folder / "images" / "a.png")
    body = {
        "images": [{"id": 1, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}],
        "categories": [{"id": n, "name": name} for n, name in ((9, "dog"), (5, "cat"), (7, "unused"))],
        "annotations": [
            {"id": 100 + number, "image_id": 1, "category_id": 5, **item}
            for number, item in enumerate(annotations)
        ],
        **changes,
    }
    path = folder / "labels.json"
    path.write_text(json.dumps(body))
    return path


def plan(path: Path, folder: str = "images", **settings: Any) -> Plan:
    folders = TargetImageFolders(images=str(path.parent / folder), targets=str(path))
    values = {"train": folders, "pct_val": 0.0, "width": WIDTH, "height": HEIGHT, "processes": 1, **settings}
    return reader.read(CreateSegmentation(**values), Progress())


def mask_of(found: Plan) -> Any:
    return np.array(masks(found, (WIDTH, HEIGHT))["a.png"])


def test_categories_are_classes_and_smaller_objects_cover_larger_ones(tmp_path: Path) -> None:
    small = {"segmentation": square(3, 3, 6, 6), "category_id": 9}
    large = {"segmentation": square(1, 1, 9, 7)}
    expected = whole()
    expected[1:7, 1:9], expected[3:6, 3:6] = 1, 2
    for order in ([small, large], [large, small]):
        found = plan(write(tmp_path, order))
        assert found.target.names == ["background", "cat", "dog"]
        assert mask_of(found).tolist() == expected.tolist()
    again = {"segmentation": square(3, 3, 6, 6)}
    assert mask_of(plan(write(tmp_path, [small, again])))[4, 4] == 1


def test_objects_in_the_pixels_of_a_rotated_file_are_turned_with_the_image(tmp_path: Path) -> None:
    path = write(tmp_path, [{"segmentation": square(1, 2, 5, 4)}])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "images" / "a.png", exif=exif)
    found = plan(path)
    expected = whole()
    expected[2:4, 1:5] = 1
    upright = masks(found, (HEIGHT, WIDTH))["a.png"]
    assert upright == np.rot90(expected, -1).tolist()
    assert any("turned with the image" in warning for warning in found.warnings)


def test_crowds_are_ignored(tmp_path: Path) -> None:
    crowd = {"segmentation": square(0, 0, 5, HEIGHT), "iscrowd": 1}
    found = plan(write(tmp_path, [{"segmentation": square(4, 2, 11, 5)}, crowd]))
    expected = whole()
    expected[:, :5] = IGNORED
    expected[2:5, 4:11] = 1
    assert mask_of(found).tolist() == expected.tolist()
    assert any("1 crowd region" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"segmentation": square(20, 1, 22, 3)}, "it is outside the image .12×8 pixels"),
        ({"segmentation": square(1, 1, 1e9, 3)}, "it extends far beyond the image"),
        ({"segmentation": [[1, 2, 3, 4, 5, "x"]]}, "a polygon is not a list of numbers"),
        ({"segmentation": "x"}, "the segmentation is neither"),
        (runs([96], size=[WIDTH, HEIGHT]), "its mask has 8×12 pixels, but the image has 12×8"),
        (runs([96], size="x"), "its mask has no size"),
        (runs([0, 10**12], size=[10**6, 10**6]), "its mask of 1000000×1000000 pixels is too large"),
        (runs("5"), "its run lengths do not add"),
        (runs([95]), "its run lengths do not add"),
        (runs([-1, 97]), "its run lengths do not"),
        (runs("P\u00e9"), "its compressed run"),
        (runs("oo"), "its compressed run lengths"),
    ],
)
def test_errors_name_the_annotation(tmp_path: Path, annotation: dict[str, Any], message: str) -> None:
    path = write(tmp_path, [{"segmentation": square(1, 1, 4, 4)}, annotation])
    with pytest.raises(UnusableSource, match=f"annotation 101: {message}"):
        plan(path)


def test_what_is_not_used_is_reported(tmp_path: Path) -> None:
    pictures = [
        {"id": 1, "file_name": "a.png"},
        {"id": 2, "file_name": "/data/upload/1/0a1b2c3d-b.png"},
        {"id": 3, "file_name": "missing.png"},
    ]
    path = write(tmp_path, [{"segmentation": square(1, 1, 4, 4)}, {"segmentation": []}], images=pictures)
    (tmp_path / "images" / "deep").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "images" / "deep" / "b.png")
    found = plan(path)
    assert sorted(found.splits["train"].files) == ["a.png", "deep/b.png"]
    text = " ".join(found.warnings)
    assert "1 image not found or unreadable: missing.png" in text
    assert "1 object without a bbox or polygon: not used (annotation 101)" in text
    assert "1 image without objects (background only): deep/b.png" in text


def test_pixels_around_an_object_without_an_outline_have_no_class(tmp_path: Path) -> None:
    box = {"segmentation": [], "bbox": [2, 3, 5, 2], "category_id": 9}
    found = plan(write(tmp_path, [{"segmentation": square(1, 1, 4, 4)}, box]))
    expected = whole()
    expected[3:5, 2:7] = IGNORED
    expected[1:4, 1:4] = 1
    assert mask_of(found).tolist() == expected.tolist() and found.target.names == ["background", "cat"]
    assert any("1 object without an area" in text and "annotation 101" in text for text in found.warnings)


def test_run_lengths_of_an_image_that_was_enlarged_are_scaled(tmp_path: Path) -> None:
    region = whole()
    region[2:5, 4:11] = 1
    counts = coco_masks.encode(np.asfortranarray(region))["counts"].decode()
    path = write(tmp_path, [runs(counts)])
    Image.new("L", (2 * WIDTH, 2 * HEIGHT)).save(tmp_path / "images" / "a.png")
    found = plan(path)
    enlarged = region.repeat(2, axis=0).repeat(2, axis=1)
    assert masks(found, (2 * WIDTH, 2 * HEIGHT))["a.png"] == enlarged.tolist()


def test_a_file_of_crowds_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [{"segmentation": square(1, 1, 4, 4), "iscrowd": 1}])
    with pytest.raises(UnusableSource, match=r"All objects in labels\.json are crowd regions"):
        plan(path)


def test_splits_share_the_classes_of_their_files(tmp_path: Path) -> None:
    train = write(tmp_path, [{"segmentation": square(1, 1, 4, 4)}])
    (tmp_path / "val").mkdir()
    val = write(tmp_path / "val", [{"segmentation": square(1, 1, 4, 4), "category_id": 9}])
    folders = TargetImageFolders(images=str(tmp_path / "val" / "images"), targets=str(val))
    found = plan(train, val=folders)
    assert found.target.names == ["background", "cat", "dog"]
    assert found.splits["val"].targets[0].classes == (0, 2)
    (tmp_path / "masks").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(tmp_path / "masks" / "a.png")
    mixed = TargetImageFolders(images=str(tmp_path / "images"), targets=str(tmp_path / "masks"))
    with pytest.raises(UnusableSource, match="Some splits use annotations"):
        plan(train, val=mixed)
    with pytest.raises(UnusableSource, match="Class labels and color maps"):
        (tmp_path / "names.txt").write_text("a\nb\n")
        plan(train, class_labels_file=str(tmp_path / "names.txt"))


def test_a_download_as_coco_is_read_again(tmp_path: Path) -> None:
    target = Mask.of(["background", "road", "car"], HEIGHT, WIDTH)
    pixels = whole()
    pixels[1:4, 2:9], pixels[0, 0], pixels[5:, 4:], pixels[4, :] = 1, 2, 2, IGNORED
    record = Record(
        images.encode(np.zeros((HEIGHT, WIDTH, 1), np.uint8), "png"),
        "png",
        HEIGHT,
        WIDTH,
        1,
        {target.feature: [images.encode(pixels[..., None], "png")]},
        source=b"a.png",
    )
    manifest = write_dataset(tmp_path / "dataset", "image-segmentation", target, {"train": [record]})
    formats = formats_of(kind_named("image-segmentation"))
    made = formats["coco"](tmp_path / "dataset", manifest, IndexCache(100))
    for name, data in unpacked("zip", b"".join(stream("zip", made.entries()))).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    made.close()
    folders = TargetImageFolders(
        images=str(tmp_path / "images/train"), targets=str(tmp_path / "annotations/instances_train.json")
    )
    found = plan(tmp_path / "unused", train=folders)
    assert found.target.names == target.names
    split = found.splits["train"]
    (data,) = found.features(split, 0, Geometry((WIDTH, HEIGHT), WIDTH, HEIGHT, "squash"))[target.feature]
    assert images.load(data, 1)[..., 0].tolist() == pixels.tolist()
