"""Specifications of targets, and their visualization."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from digits.data.sources.plan import Plan
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.forms import FORMS, form_of
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import IGNORED, Mask, draw_mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage

SPECS = [
    ClassIndex.of(["cat", "dog"]),
    Mask.of(["background", "lung"], 4, 6),
    Mask.of(["background", "lung"], 4, 6, [(0, 0, 0), (255, 0, 10)]),
    TargetImage.of(4, 6, 3),
    Boxes.of(["car", "van"], 7),
    LabelSet.of(["sea", "sky"], [0.5, 0.25], [0.5, 0.4]),
    Numbers.of(["x", "y"]),
    Target(feature="target/numbers", dtype="float32"),
    Target(feature="target/numbers", dtype="int64", names=["0", "1"]),
]


@pytest.mark.parametrize("spec", SPECS)
def test_specifications_survive_a_file(spec: Target) -> None:
    assert form_of(msgspec.json.decode(msgspec.json.encode(spec), type=Target)) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"spatial": "mask", "dtype": "float32", "shape": [4, 6], "names": ["a"]},
        {"spatial": "mask", "dtype": "int64", "shape": [4, 6, 1], "names": ["a"]},
        {"spatial": "mask", "dtype": "int64", "shape": [4, 6]},
        {"spatial": "image", "dtype": "float32", "shape": [4, 6]},
        {"spatial": "boxes", "dtype": "float32", "shape": [3, 4], "names": ["a"]},
        {"spatial": "boxes", "dtype": "float32", "shape": [3, 5]},
        {"spatial": "boxes", "dtype": "float32", "shape": [3, 5], "names": ["a"], "multi_hot": True},
        {"classes": True, "dtype": "int64"},
        {"classes": True, "dtype": "float32", "names": ["a"]},
        {"multi_hot": True, "dtype": "float32", "shape": [3], "names": ["a"]},
    ],
)
def test_contradictory_specifications_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="target"):
        form_of(msgspec.convert({"feature": "f", **wrong}, Target))


class Points(Target, frozen=True, kw_only=True):
    """A form of target that only this test has."""

    feature: str = "target/points"
    dtype: str = "float32"

    def describe(self, value: Any) -> str:
        return f"{len(value)} points"


def test_a_new_form_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMS, Points, lambda stored: stored.feature == "target/points")
    plan = Plan(Points(shape=[3, 2]), {})
    stored = msgspec.json.decode(msgspec.json.encode(plan.target), type=Target)
    target = form_of(stored)
    features = target.encode(np.zeros(6, np.float32), 8, 8)
    assert target.describe(target.decode(features["target/points"])) == "3 points"


def test_spatial_targets_in_words() -> None:
    mask = Mask.of(["background", "lung"], 1, 3)
    assert mask.describe(np.array([[0, 1, IGNORED]])) == "50% lung"
    assert mask.describe(np.array([[0, 0, IGNORED]])) == "background"
    assert Mask.of(["background", "cat", "dog"], 1, 3).describe(np.array([[2, 1, 2]])) == "cat, dog"
    assert mask.describe(np.full((1, 3), IGNORED)) == "no classes"
    boxes = Boxes.of(["car", "van"], 3)
    assert boxes.describe([[0, 0, 1, 1, 1], [0, 0, 2, 2, 1], [-1] * 5]) == "2 van"
    assert boxes.describe([[-1] * 5]) == "no objects"


def test_detections_are_found_false_or_in_ignored_regions() -> None:
    spec = Boxes.of(["car", "van"], 4)
    truth = spec.outlines([[0, 0, 10, 10, 0], [20, 0, 30, 10, 1], [40, 0, 60, 20, IGNORED_BOX]], (100, 50))
    edges = {
        "car": [0, 0, 10, 9],
        "van": [20, 0, 30, 10],
        "ignored": [41, 0, 60, 20],
        "none": [70, 0, 90, 20],
    }
    predicted = [
        {"label": "car", "score": 0.9, "box": edges["car"]},
        {"label": "car", "score": 0.8, "box": edges["car"]},
        {"label": "van", "score": 0.4, "box": edges["van"]},
        {"label": "car", "score": 0.7, "box": edges["ignored"]},
        {"label": "car", "score": 0.6, "box": edges["none"]},
    ]
    drawn = spec.compare(truth, predicted, "image.png", (100, 50), 0.5)
    assert drawn is not None and drawn["url"] == "image.png"
    # An object is shown as missed unless a detection with the score is.
    assert [(box["status"], box["hidden"]) for box in drawn["boxes"]] == [
        ("missed", True),
        ("missed", False),
        ("found", False),
        ("false", False),
        ("found", True),
        ("ignored", False),
        ("false", False),
    ]
    assert drawn["boxes"][2]["name"] == "car 90%" and drawn["boxes"][1]["name"] == "van"
    one = Boxes.of(["car"], 4)
    alone = one.compare(one.outlines([[0, 0, 10, 10, 0]], (100, 50)), predicted[:1], "", (100, 50), 0.5)
    assert alone is not None and [box["name"] for box in alone["boxes"]] == ["", "90%"]
    assert one.describe([[0, 0, 10, 10, 0]]) == "1 box"


def test_colors_are_distinct_and_the_background_is_transparent() -> None:
    spec = Mask.of(["background", *map(str, range(60))], 2, 2)
    colors = spec.palette
    assert colors[0] == (0, 0, 0) and len(set(colors)) == 61
    assert spec.legend()[0] == ("background", "") and spec.legend()[1][1].startswith("#")
    picture = Image.open(io.BytesIO(draw_mask(np.array([[0, 3], [IGNORED, 60]]), colors))).convert("RGBA")
    assert [picture.getpixel(place)[3] for place in ((0, 0), (1, 0), (0, 1), (1, 1))] == [0, 255, 0, 255]
    assert picture.getpixel((1, 0))[:3] == colors[3]


def test_outlines_are_percentages_of_the_image() -> None:
    (outline,) = Boxes.of(["car", "van"], 2).outlines([[10, 5, 30, 10, 1]], (40, 20))
    assert (outline.left, outline.top, outline.width, outline.height) == (25, 25, 50, 25)
    assert outline.name == "van" and len(outline.color) == 7 and not outline.ignored


def test_regions_to_ignore_are_drawn_in_their_own_style() -> None:
    spec = Boxes.of(["car"], 2)
    (outline,) = spec.outlines([[10, 5, 30, 10, IGNORED_BOX], [-1] * 5], (40, 20))
    assert outline.ignored and (outline.left, outline.width) == (25, 50)
    assert spec.legend(has_ignored=True)[1:] == [(outline.name, outline.color)]
    assert len(spec.legend()) == 1


def test_numbers_without_names_are_shown_without_them() -> None:
    grid = Target(feature="target/numbers", dtype="float32", shape=[2, 4])
    assert grid.describe(np.arange(8).reshape(2, 4) / 2) == "0, 0.5, 1, 1.5, 2, 2.5, … (8 numbers)"
    index = Target(feature="target/numbers", dtype="int64", names=["0", "1", "2"])
    assert index.describe(np.int64(2)) == "2"
