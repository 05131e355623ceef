"""Impossible answers about images are refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from digits.core.errors import BadRequest
from digits.kinds.labeling.answers import LabelClass, read_sent
from digits.kinds.labeling.forms import form_of

CLASSES = [LabelClass(id=number, name=str(number), color="#000000") for number in range(2)]
BOX = {"class": 0, "box": [1, 2, 30.5, 40]}
DETECTION, SEGMENTATION = "image-object-detection", "image-segmentation"


def check(kind: str, state: str = "labeled", size: tuple[int, int] = (100, 50), **fields: Any) -> None:
    body = json.dumps({"rev": 0, "edit": "a", "state": state, **fields}).encode()
    form_of(kind).check(read_sent(body), size, CLASSES)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (DETECTION, {"objects": [BOX, {"class": 1, "rings": [[0, 0, 100, 0, 50, 50.0]], "from": "m", "score": 1}]}),
        (DETECTION, {"objects": []}),
        (DETECTION, {}),
        (DETECTION, {"objects": [{"class": 0, "box": [0.3, 0.3, 1.3, 1.3]}]}),
        ("image-classification", {"label": 1}),
        ("image-classification", {"state": "skipped"}),
        ("image-multilabel", {"labels": []}),
        ("image-multilabel", {"labels": [1, 0]}),
        ("image-regression", {"numbers": {"0": -1e29, "1": 3}}),
        (SEGMENTATION, {"mask": "aaaa"}),
        (SEGMENTATION, {"state": "unlabeled"}),
    ],
)  # fmt: skip
def test_what_people_say_is_accepted(kind: str, fields: dict[str, Any]) -> None:
    check(kind, **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (DETECTION, {"objects": [BOX, {"class": 0, "box": [-1, 2, 30, 40]}]}, "Object 2 is outside the image of 100×50"),
        (DETECTION, {"objects": [{"class": 0, "box": [0, 0, 101, 40]}]}, "outside the image"),
        (DETECTION, {"objects": [{"class": 0, "rings": [[0, 0, 10, 0, 5, 51]]}]}, "outside the image"),
        (DETECTION, {"objects": [{"class": 0, "box": [5, 5, 5.9, 40]}]}, "smaller than a pixel"),
        (DETECTION, {"objects": [{"class": 0, "box": [30, 5, 10, 40]}]}, "smaller than a pixel"),
        (DETECTION, {"objects": [{"class": 0, "rings": [[0, 0, 10, 0, 5, 0.5]]}]}, "smaller than a pixel"),
        (DETECTION, {"objects": [{"class": 2, "box": [1, 2, 30, 40]}]}, "no class 2"),
        (DETECTION, {"objects": [{"class": -1, "box": [1, 2, 30, 40]}]}, "not valid"),
        (DETECTION, {"objects": [{"class": 0}]}, "either a box or rings"),
        (DETECTION, {"objects": [{**BOX, "rings": [[0, 0, 10, 0, 5, 5]]}]}, "either a box or rings"),
        (DETECTION, {"objects": [{"class": 0, "rings": []}]}, "three corners"),
        (DETECTION, {"objects": [{"class": 0, "rings": [[0, 0, 10, 0, 5]]}]}, "three corners"),
        (DETECTION, {"objects": [{"class": 0, "rings": [[0, 0, 9, 9]]}]}, "three corners"),
        (DETECTION, {"objects": [{"class": 0, "box": [1, 2, float("nan"), 40]}]}, "not valid"),
        (DETECTION, {"objects": [{"class": 0, "box": [1, 2, float("inf"), 40]}]}, "not valid"),
        (DETECTION, {"objects": [{"class": 0, "box": [1, 2, 30]}]}, "not valid"),
        (DETECTION, {"objects": [{**BOX, "score": 1.5}]}, "not valid"),
        (DETECTION, {"objects": [{**BOX, "shape": 1}]}, "not valid"),
        (DETECTION, {"objects": [BOX] * 5001}, "too many"),
        (DETECTION, {"label": 0}, "images have “objects”, not “label”"),
        (DETECTION, {"state": "done"}, "not valid"),
        (DETECTION, {"state": "none"}, "not valid"),
        (DETECTION, {"edit": "a b"}, "not valid"),
        (DETECTION, {"edit": ""}, "not valid"),
        (DETECTION, {"rev": -1}, "not valid"),
        (DETECTION, {"other": 1}, "not valid"),
        ("image-classification", {}, "“label” is missing"),
        ("image-classification", {"state": "reviewed"}, "“label” is missing"),
        ("image-classification", {"label": 2}, "no class 2"),
        ("image-multilabel", {"labels": [0, 0]}, "repeated"),
        ("image-multilabel", {"labels": [5]}, "no class 5"),
        ("image-regression", {}, "“numbers” is missing"),
        ("image-regression", {"numbers": {"0": 1, "7": 1}}, "no class 7"),
        ("image-regression", {"numbers": {"00": 1}}, "not the id"),
        ("image-regression", {"numbers": {"x": 1}}, "not the id"),
        ("image-regression", {"numbers": {"0": 1e31}}, "out of range"),
        (SEGMENTATION, {}, "“mask” is missing"),
        (SEGMENTATION, {"objects": [BOX]}, "images have “mask”"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_refused(kind: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check(kind, **fields)
    assert reason in raised.value.sentences


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 5000, b"\xff", b'{"rev":0}'])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not valid"):
        read_sent(body)


def test_other_kinds_cannot_be_labeled() -> None:
    with pytest.raises(BadRequest):
        form_of("image-gan")
