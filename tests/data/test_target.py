"""Specifications of targets, and their visualization."""

from __future__ import annotations

import io

import msgspec
import numpy as np
import pytest
from PIL import Image

from digits.data import target
from digits.data.drawing import class_colors, draw_mask, legend, outlines
from digits.data.target import IGNORED, TargetSpec

SPECS = [
    target.class_index(["cat", "dog"]),
    target.mask(["background", "lung"], 4, 6),
    target.mask(["background", "lung"], 4, 6, [(0, 0, 0), (255, 0, 10)]),
    target.target_image(4, 6, 3),
    target.boxes(["car", "van"], 7),
]


@pytest.mark.parametrize("spec", SPECS)
def test_specifications_survive_a_file(spec: TargetSpec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=TargetSpec) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"spatial": "mask", "dtype": "float32", "shape": [4, 6], "names": ["a"]},
        {"spatial": "mask", "dtype": "int64", "shape": [4, 6, 1], "names": ["a"]},
        {"spatial": "mask", "dtype": "int64", "shape": [4, 6]},
        {"spatial": "image", "dtype": "float32", "shape": [4, 6]},
        {"spatial": "boxes", "dtype": "float32", "shape": [3, 4], "names": ["a"]},
        {"spatial": "boxes", "dtype": "float32", "shape": [3, 5]},
    ],
)
def test_contradictory_specifications_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="target"):
        msgspec.convert({"feature": "f", **wrong}, TargetSpec)


def test_spatial_targets_in_words() -> None:
    mask = target.mask(["background", "lung"], 1, 3)
    assert mask.describe(np.array([[0, 1, IGNORED]])) == "background, lung"
    assert mask.describe(np.full((1, 3), IGNORED)) == "no classes"
    boxes = target.boxes(["car", "van"], 3)
    assert boxes.describe([[0, 0, 1, 1, 1], [0, 0, 2, 2, 1], [-1] * 5]) == "2 van"
    assert boxes.describe([[-1] * 5]) == "no objects"


def test_colors_are_distinct_and_the_background_is_transparent() -> None:
    spec = target.mask(["background", *map(str, range(60))], 2, 2)
    colors = class_colors(spec)
    assert colors[0] == (0, 0, 0) and len(set(colors)) == 61
    assert legend(spec)[0] == ("background", "") and legend(spec)[1][1].startswith("#")
    picture = Image.open(io.BytesIO(draw_mask(np.array([[0, 3], [IGNORED, 60]]), colors))).convert("RGBA")
    assert [picture.getpixel(place)[3] for place in ((0, 0), (1, 0), (0, 1), (1, 1))] == [0, 255, 0, 255]
    assert picture.getpixel((1, 0))[:3] == colors[3]


def test_outlines_are_percentages_of_the_image() -> None:
    (outline,) = outlines([[10, 5, 30, 10, 1]], target.boxes(["car", "van"], 2), 40, 20)
    assert (outline.left, outline.top, outline.width, outline.height) == (25, 25, 50, 25)
    assert outline.name == "van" and len(outline.color) == 7 and not outline.ignored


def test_regions_to_ignore_are_drawn_in_their_own_style() -> None:
    spec = target.boxes(["car"], 2)
    (outline,) = outlines([[10, 5, 30, 10, target.IGNORED_BOX], [-1] * 5], spec, 40, 20)
    assert outline.ignored and (outline.left, outline.width) == (25, 50)
    assert legend(spec, has_ignored=True)[1:] == [(outline.name, outline.color)]
    assert len(legend(spec)) == 1


def test_numbers_without_names_are_shown_without_them() -> None:
    grid = TargetSpec(feature="target/numbers", dtype="float32", shape=[2, 4])
    assert grid.describe(np.arange(8).reshape(2, 4) / 2) == "0, 0.5, 1, 1.5, 2, 2.5, … (8 numbers)"
    index = TargetSpec(feature="target/numbers", dtype="int64", names=["0", "1", "2"])
    assert index.describe(np.int64(2)) == "2"
