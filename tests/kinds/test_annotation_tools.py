"""Exports of Label Studio and CVAT in their documented layouts, unpacked as an upload and given as one folder."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.archives.unpacking import Limits, content_folder, unpack
from tests.kinds.dataset_forms import Forms

WIDTH, HEIGHT = 40, 20


# Left, top, right and bottom of an object in one of two images.
BOXES = {"one": ("cat", 4, 5, 24, 15), "two": ("dog", 10, 0, 40, 20)}
NAMES = ["cat", "dog"]
PREFIX = {"one": "0a1b2c3d-", "two": "4e5f6071-"}


def picture(name: str = "one", ending: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), (90, len(name), 9)).save(file, ending)
    return file.getvalue()


def coco(files: Mapping[str, str], polygons: bool = False, **sizes: Any) -> bytes:
    """Return a COCO file; ``files`` are the values of ``file_name``."""
    annotations = []
    for number, (label, left, top, right, bottom) in enumerate(BOXES.values()):
        corners = [left, top, right, top, right, bottom, left, bottom]
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": NAMES.index(label),
                "segmentation": [corners] if polygons else [],
                "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top),
                "iscrowd": 0,
                "ignore": 0,
                "attributes": {"occluded": False},
            }
        )
    size = {"width": WIDTH, "height": HEIGHT, **sizes}
    pictures = [{"id": n, "file_name": files[name], **size} for n, name in enumerate(BOXES)]
    categories = [{"id": n, "name": name, "supercategory": ""} for n, name in enumerate(NAMES)]
    return json.dumps(
        {
            "licenses": [{"name": "", "id": 0, "url": ""}],
            "info": {"contributor": "", "year": ""},
            "categories": categories,
            "images": pictures,
            "annotations": annotations,
        }
    ).encode()


def voc(name: str) -> bytes:
    label, *edges = BOXES[name]
    tags = "".join(
        f"<{tag}>{edge}.0</{tag}>" for tag, edge in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True)
    )
    return (
        f"<annotation><folder></folder><filename>{name}.jpg</filename><source><database>Unknown</database></source>"
        f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size><segmented>0</segmented>"
        f"<object><name>{label}</name><occluded>0</occluded><difficult>0</difficult><bndbox>{tags}</bndbox>"
        "<attributes><attribute><name>rotation</name><value>0.0</value></attribute></attributes></object>"
        "</annotation>"
    ).encode()


def yolo(name: str) -> bytes:
    label, left, top, right, bottom = BOXES[name]
    values = (
        (left + right) / 2 / WIDTH,
        (top + bottom) / 2 / HEIGHT,
        (right - left) / WIDTH,
        (bottom - top) / HEIGHT,
    )
    return f"{NAMES.index(label)} {' '.join(map(str, values))}\n".encode()


def cvat_xml() -> bytes:
    images = "".join(
        f'<image id="{n}" name="{name}.jpg" width="{WIDTH}" height="{HEIGHT}"><box label="{label}" source="manual" '
        f'occluded="0" xtl="{left}.00" ytl="{top}.00" xbr="{right}.00" ybr="{bottom}.00" z_order="0"></box></image>'
        for n, (name, (label, left, top, right, bottom)) in enumerate(BOXES.items())
    )
    labels = "".join(f"<label><name>{name}</name><color>#fafa37</color></label>" for name in NAMES)
    return (
        f'<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version><meta><job><labels>{labels}'
        f"</labels></job></meta>{images}</annotations>"
    ).encode()


def label_studio(name: str) -> str:
    return f"{PREFIX[name]}{name}"


def label_studio_coco(polygons: bool = False) -> dict[str, bytes]:
    names = {name: f"images/{label_studio(name)}.jpg" for name in BOXES}
    return {**{names[name]: picture(name) for name in BOXES}, "result.json": coco(names, polygons)}


def cvat_coco(polygons: bool = False) -> dict[str, bytes]:
    names = {name: f"{name}.jpg" for name in BOXES}
    files = {f"images/default/{names[name]}": picture(name) for name in BOXES}
    return {**files, "annotations/instances_default.json": coco(names, polygons)}


DETECTION = {
    "Label Studio COCO": label_studio_coco(),
    "Label Studio COCO with paths of the server": {
        **{f"images/{label_studio(name)}.jpg": picture(name) for name in BOXES},
        "result.json": coco(
            {
                name: f"..\\..\\label-studio\\data\\media\\upload\\1\\{label_studio(name)}.jpg"
                for name in BOXES
            },
            width=None,
        ),
    },
    "Label Studio YOLO": {
        **{f"images/{label_studio(name)}.jpg": picture(name) for name in BOXES},
        **{f"labels/{label_studio(name)}.txt": yolo(name) for name in BOXES},
        "classes.txt": b"cat\ndog\n",
        "notes.json": b'{"categories": [], "info": {}}',
    },
    "Label Studio VOC": {
        **{f"images/{label_studio(name)}.jpg": picture(name) for name in BOXES},
        **{f"Annotations/{label_studio(name)}.xml": voc(name) for name in BOXES},
    },
    "CVAT COCO 1.0": cvat_coco(),
    "CVAT YOLO 1.1": {
        "obj.data": b"classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n",
        "obj.names": b"cat\ndog\n",
        "train.txt": b"data/obj_train_data/one.jpg\ndata/obj_train_data/two.jpg\n",
        **{f"obj_train_data/{name}.jpg": picture(name) for name in BOXES},
        **{f"obj_train_data/{name}.txt": yolo(name) for name in BOXES},
    },
    "CVAT Ultralytics YOLO Detection 1.0": {
        "data.yaml": b"names:\n  0: cat\n  1: dog\npath: .\ntrain: train.txt\n",
        "train.txt": b"data/images/train/one.jpg\ndata/images/train/two.jpg\n",
        **{f"images/train/{name}.jpg": picture(name) for name in BOXES},
        **{f"labels/train/{name}.txt": yolo(name) for name in BOXES},
    },
    "CVAT PASCAL VOC 1.1": {
        "labelmap.txt": b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250,50,83::\ndog:51,221,255::\n",
        "ImageSets/Main/default.txt": b"one\ntwo\n",
        "ImageSets/Main/cat_default.txt": b"one  1\ntwo -1\n",
        **{f"JPEGImages/{name}.jpg": picture(name) for name in BOXES},
        **{f"Annotations/{name}.xml": voc(name) for name in BOXES},
        **{f"SegmentationClass/{name}.png": picture(name, "PNG") for name in BOXES},
    },
    "CVAT for images 1.1": {
        **{f"images/{name}.jpg": picture(name) for name in BOXES},
        "annotations.xml": cvat_xml(),
    },
}


def unpacked(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a zip archive with ``files``, and unpack it like an upload."""
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    limits = Limits(max_bytes=10_000_000, max_files=100, max_ratio=1000, spare_bytes=0)
    unpack(folder / "export.zip", folder / "export", limits)
    return content_folder(folder / "export")


SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT}


@pytest.mark.parametrize("export", DETECTION)
def test_boxes_of_an_export(tmp_path: Path, export: str) -> None:
    root = unpacked(tmp_path, DETECTION[export])
    forms, fields = Forms("image-object-detection", root), {"train_image_folder": root, "pct_val": 0}
    summary = forms.summary(**fields)
    assert "2 images with 2 objects of 2 classes" in summary.facts[0] and not summary.problems, summary
    assert any("nnotations" in fact for fact in summary.facts[1:])
    found = forms.plan(**fields, **SIZE)
    assert found.target.names == NAMES
    assert all("differ from those of the images, such as" in text for text in found.warnings)
    train = found.splits["train"]
    boxes = {
        Path(file).stem[-3:]: rows.tolist() for file, rows in zip(train.files, train.targets, strict=True)
    }
    assert boxes == {
        name: [pytest.approx([*edges, NAMES.index(label)], abs=1e-4)]
        for name, (label, *edges) in BOXES.items()
    }


MASKS = {"Label Studio COCO": label_studio_coco(polygons=True), "CVAT COCO 1.0": cvat_coco(polygons=True)}


def color_mask(name: str, colors: Mapping[str, tuple[int, int, int]]) -> bytes:
    label, left, top, right, bottom = BOXES[name]
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[top:bottom, left:right] = colors[label]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


COLORS = {"cat": (250, 50, 83), "dog": (51, 221, 255)}
MASKS["CVAT Segmentation mask 1.1"] = {
    "labelmap.txt": b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250,50,83::\ndog:51,221,255::\n",
    "ImageSets/Segmentation/default.txt": b"one\ntwo\n",
    **{f"JPEGImages/{name}.jpg": picture(name) for name in BOXES},
    **{f"SegmentationClass/{name}.png": color_mask(name, COLORS) for name in BOXES},
    **{f"SegmentationObject/{name}.png": color_mask(name, COLORS) for name in BOXES},
}


@pytest.mark.parametrize("export", MASKS)
def test_masks_of_an_export(tmp_path: Path, export: str) -> None:
    root = unpacked(tmp_path, MASKS[export])
    forms, fields = Forms("image-segmentation", root), {"feature_folder": root, "folder_pct_val": 0}
    summary = forms.summary(**fields)
    assert not summary.problems and "3 classes: background, cat, dog." in summary.facts, summary
    found = forms.plan(**fields, **SIZE)
    assert found.target.names == ["background", *NAMES]
    shares = [1 - (200 + 600) / 1600, 100 * 2 / 1600, 600 / 1600]
    assert found.target.mean == pytest.approx([1 - shares[1] - shares[2], *shares[1:]])


def test_choices_of_label_studio(tmp_path: Path) -> None:
    rows = [
        "annotation_id,annotator,choice,created_at,id,image,lead_time,updated_at",
        '1,1,"cat","2026-01-01T00:00:00Z",1,"/data/upload/1/0a1b2c3d-one.jpg",2.5,"2026-01-01T00:00:00Z"',
        '2,1,"dog","2026-01-01T00:00:00Z",2,"/data/upload/2/4e5f6071-two.jpg",3,"2026-01-01T00:00:00Z"',
    ]
    files = {
        "result.csv": "\n".join(rows).encode(),
        "upload/one.jpg": picture("one"),
        "upload/two.jpg": picture("two"),
    }
    root = unpacked(tmp_path, files)
    fields = {"method": "csv", "table_train": str(root / "result.csv"), "folder_pct_val": "0"}
    found = Forms("image-classification", root).plan(**fields, **SIZE)
    train = found.splits["train"]
    labels = {file: found.target.names[label] for file, label in zip(train.files, train.targets, strict=True)}
    assert labels == {"upload/one.jpg": "cat", "upload/two.jpg": "dog"}


def test_several_choices_of_label_studio(tmp_path: Path) -> None:
    rows = [
        "annotation_id,choice,image",
        '1,"{""choices"": [""big cat"", ""dog""]}","/data/upload/1/0a1b2c3d-one.jpg"',
        '2,"dog","/data/upload/1/4e5f6071-two.jpg"',
    ]
    root = unpacked(
        tmp_path,
        {"result.csv": "\n".join(rows).encode(), "one.jpg": picture("one"), "two.jpg": picture("two")},
    )
    fields = {"table_train": str(root / "result.csv"), "label_columns": "choice", "pct_val": "0"}
    found = Forms("image-multilabel", root).plan(**fields, **SIZE)
    train = found.splits["train"]
    words = {
        file: found.target.describe(value) for file, value in zip(train.files, train.targets, strict=True)
    }
    assert words == {"one.jpg": "big cat, dog", "two.jpg": "dog"}


def test_video_annotations_are_refused(tmp_path: Path) -> None:
    xml = b"<annotations><version>1.1</version><track id='0' label='cat'></track></annotations>"
    root = unpacked(tmp_path, {"images/one.jpg": picture(), "annotations.xml": xml})
    summary = Forms("image-object-detection", root).summary(train_image_folder=root)
    assert "Export the task from CVAT as “CVAT for images”." in summary.problems[0]
