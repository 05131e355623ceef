"""Masks that were painted with the brushes of annotation tools: the same pixels from every tool, and their boxes."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from digits.data.sources.plan import UnusableSource
from digits.data.targets.mask import IGNORED
from tests.kinds.dataset_forms import Forms
from tests.kinds.segmentation.test_reader import masks

WIDTH, HEIGHT = 40, 30
SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT}
# A ring from (6, 4) to (26, 20).
LEFT, TOP, RIGHT, BOTTOM = 6, 4, 26, 20
PAINTED = np.zeros((HEIGHT, WIDTH), np.bool_)
PAINTED[TOP:BOTTOM, LEFT:RIGHT] = True
PAINTED[8:15, 10:20] = False
CUT = PAINTED[TOP:BOTTOM, LEFT:RIGHT]


def save(path: Path, content: Any = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        Image.new("L", (WIDTH, HEIGHT)).save(path)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def run_lengths(mask: Any) -> list[int]:
    """Return the run lengths of the rows of a mask, which begin outside."""
    edges = [0]
    flat, value = mask.ravel().tolist(), False
    for place, pixel in enumerate(flat):
        if pixel != value:
            edges.append(place)
            value = pixel
    return np.diff([*edges, len(flat)]).tolist()


def png(mask: Any, mode: str = "L") -> bytes:
    file = io.BytesIO()
    if mode == "RGBA":
        pixels = np.zeros((*mask.shape, 4), np.uint8)
        pixels[mask] = 255
        image = Image.fromarray(pixels)
    else:
        image = Image.fromarray(mask.astype(np.uint8) * 255).convert(mode)
    options = {}
    if mode == "P":
        image = Image.fromarray(mask.astype(np.uint8), "P")
        image.putpalette([0, 0, 0, 255, 255, 255])
        options = {"transparency": 0}
    image.save(file, "PNG", **options)
    return file.getvalue()


def jpeg(mask: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).save(file, "JPEG")
    return file.getvalue()


def brush_codes(mask: Any) -> list[int]:
    """Encode a mask as Label Studio does, with runs of equal and of different bytes."""
    values = np.repeat(mask.ravel(), 4).astype(np.uint8) * 255
    bits = [f"{len(values):032b}", f"{7:05b}", *(f"{size - 1:04b}" for size in (3, 4, 8, 16))]
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for first, last in pairwise(edges):
        if last - first <= 8:
            bits += ["0", "00", f"{last - first - 1:03b}", *(f"{value:08b}" for value in values[first:last])]
        else:
            bits += ["1", "11", f"{last - first - 1:016b}", f"{values[first]:08b}"]
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return [int(text[place : place + 8], 2) for place in range(0, len(text), 8)]


def labelme(root: Path, mask: str, name: str = "a") -> None:
    points = [[LEFT, TOP], [RIGHT - 1, BOTTOM - 1]]
    shape = {"label": "cat", "points": points, "shape_type": "mask", "mask": mask}
    save(root / f"{name}.png")
    content = {"version": "5.5.0", "shapes": [shape], "imagePath": f"{name}.png", "imageData": None}
    save(root / f"{name}.json", content | {"imageHeight": HEIGHT, "imageWidth": WIDTH})


def supervisely(root: Path, data: bytes, name: str = "a") -> None:
    bitmap = {"data": base64.b64encode(data).decode(), "origin": [LEFT, TOP]}
    item = {
        "classTitle": "cat",
        "geometryType": "bitmap",
        "bitmap": bitmap,
        "points": {"exterior": [], "interior": []},
    }
    save(root / "meta.json", {"classes": [{"title": "cat"}]})
    save(root / "ds" / "img" / f"{name}.png")
    size = {"height": HEIGHT, "width": WIDTH}
    save(root / "ds" / "ann" / f"{name}.png.json", {"tags": [], "size": size, "objects": [item]})


def label_studio(root: Path, codes: list[int], drawn: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    save(root / "images" / "a.png")
    value = {"format": "rle", "rle": codes, "brushlabels": ["cat"]}
    size = {"original_width": drawn[0], "original_height": drawn[1], "image_rotation": 0}
    result = {"id": "x", "type": "brushlabels", "from_name": "tag", "to_name": "image", "value": value} | size
    save(root / "a.json", [{"id": 1, "data": {"image": "a.png"}, "annotations": [{"result": [result]}]}])


def cvat(root: Path, shapes: str) -> None:
    save(root / "images" / "a.png")
    image = f'<image name="a.png" width="{WIDTH}" height="{HEIGHT}">{shapes}</image>'
    save(root / "annotations.xml", f"<annotations>{image}</annotations>")


def cvat_mask(lengths: list[int], width: int = RIGHT - LEFT, height: int = BOTTOM - TOP) -> str:
    rle = ", ".join(map(str, lengths))
    place = f'left="{LEFT}" top="{TOP}" width="{width}" height="{height}"'
    return f'<mask label="cat" source="manual" occluded="0" rle="{rle}" {place} z_order="0"></mask>'


def coco(root: Path, counts: Any) -> None:
    save(root / "a.png")
    item = {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "segmentation": {"size": [HEIGHT, WIDTH], "counts": counts},
    }
    pictures = [{"id": 1, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}]
    content = {"images": pictures, "annotations": [item], "categories": [{"id": 1, "name": "cat"}]}
    save(root / "a.json", content)


TOOLS: Mapping[str, Callable[[Path], None]] = {
    "COCO, compressed": lambda root: coco(
        root, coco_masks.encode(np.asfortranarray(PAINTED, np.uint8))["counts"].decode()
    ),
    "COCO": lambda root: coco(root, run_lengths(PAINTED.T)),
    "CVAT": lambda root: cvat(root, cvat_mask(run_lengths(CUT))),
    "Label Studio": lambda root: label_studio(root, brush_codes(PAINTED)),
    "LabelMe": lambda root: labelme(root, base64.b64encode(png(CUT, "1")).decode()),
    "LabelMe, in JPEG": lambda root: labelme(root, base64.b64encode(jpeg(CUT)).decode()),
    "Supervisely": lambda root: supervisely(root, zlib.compress(png(CUT, "P"))),
    "Supervisely, opaque": lambda root: supervisely(root, zlib.compress(png(CUT, "LA"))),
    "Supervisely, with opacity": lambda root: supervisely(root, zlib.compress(png(CUT, "RGBA"))),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_painted_masks_become_label_images_and_boxes(tmp_path: Path, tool: str) -> None:
    TOOLS[tool](tmp_path)
    forms = Forms("image-segmentation", tmp_path)
    summary = forms.summary(feature_folder=tmp_path)
    assert "2 classes: background, cat." in summary.facts and not summary.problems, summary
    found = forms.plan(feature_folder=tmp_path, folder_pct_val=0, **SIZE)
    ((_, pixels),) = masks(found, (WIDTH, HEIGHT)).items()
    assert np.array_equal(pixels, PAINTED)
    assert all("below “images”" in text for text in found.warnings)
    found = Forms("image-object-detection", tmp_path).plan(train_image_folder=tmp_path, pct_val=0, **SIZE)
    assert found.splits["train"].targets[0].tolist() == [[LEFT, TOP, RIGHT, BOTTOM, 0]]


BOMB = zlib.compress(bytes(64 << 20))
HUGE = io.BytesIO()
Image.new("1", (20_000, 20_000)).save(HUGE, "PNG")
DAMAGED: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "LabelMe without a mask": (
        lambda root: labelme(root, ""),
        "its bitmap cannot be used: the file is empty",
    ),
    "LabelMe, not Base64": (lambda root: labelme(root, "é"), "its bitmap is damaged"),
    "LabelMe, cut off": (
        lambda root: labelme(root, base64.b64encode(png(CUT)[:-30]).decode()),
        "its bitmap cannot be used: truncated",
    ),
    "LabelMe, of another size": (
        lambda root: labelme(root, base64.b64encode(png(PAINTED)).decode()),
        "its mask has 40×30 pixels, but its points span 20×16",
    ),
    "LabelMe, huge": (
        lambda root: labelme(root, base64.b64encode(HUGE.getvalue()).decode()),
        "its bitmap cannot be used: .*pixels",
    ),
    "Supervisely, not compressed": (lambda root: supervisely(root, png(CUT)), "its bitmap is damaged"),
    "Supervisely, a bomb": (lambda root: supervisely(root, BOMB), "its bitmap is larger than 16 MB"),
    "CVAT, too short": (
        lambda root: cvat(root, cvat_mask([1, 2])),
        "its run lengths do not add up to 320 pixels",
    ),
    "CVAT, huge": (
        lambda root: cvat(root, cvat_mask([10**12], 10**6, 10**6)),
        "its mask of 1000000×1000000 pixels is too large",
    ),
    "CVAT, not numbers": (
        lambda root: cvat(root, cvat_mask([1, 2]).replace("1, 2", "1, x")),
        "its run lengths are not integers",
    ),
    "Label Studio, truncated": (
        lambda root: label_studio(root, brush_codes(PAINTED)[:-9]),
        "its run lengths are truncated",
    ),
    "Label Studio, not bytes": (lambda root: label_studio(root, [1, 256]), "its run lengths are not bytes"),
    "Label Studio, for an image of other proportions": (
        lambda root: label_studio(root, brush_codes(PAINTED.reshape(60, 20)), (20, 60)),
        "it has 40×30 pixels, but its annotations are for 20×60",
    ),
    "Label Studio, of another size": (
        lambda root: label_studio(root, brush_codes(CUT)),
        "its mask has 1,280 bytes instead of four for each of 40×30 pixels",
    ),
}


@pytest.mark.parametrize("kind", ["image-segmentation", "image-object-detection"])
@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_masks_are_refused_with_their_place(tmp_path: Path, case: str, kind: str) -> None:
    write, reason = DAMAGED[case]
    write(tmp_path)
    field = "feature_folder" if kind == "image-segmentation" else "train_image_folder"
    with pytest.raises(UnusableSource, match=reason):
        Forms(kind, tmp_path).plan(**{field: tmp_path}, **SIZE)


def test_pixels_around_a_line_have_no_class(tmp_path: Path) -> None:
    line = '<polyline label="dog" points="2,1;30,11"></polyline>'
    cvat(tmp_path, cvat_mask(run_lengths(CUT)) + line)
    found = Forms("image-segmentation", tmp_path).plan(feature_folder=tmp_path, folder_pct_val=0, **SIZE)
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[1:11, 2:30] = IGNORED
    expected[PAINTED] = 1
    ((_, pixels),) = masks(found, (WIDTH, HEIGHT)).items()
    assert np.array_equal(pixels, expected)
    assert found.target.names == ["background", "cat"]
    assert any("1 object without an area" in text and "polyline 1" in text for text in found.warnings)
