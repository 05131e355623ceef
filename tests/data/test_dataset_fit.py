"""Which datasets fit a model, and how their classes and numbers map to those of the model."""

from __future__ import annotations

from typing import Any

import pytest

from digits.data.manifest import Manifest
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target, UnfitDataset
from digits.data.targets.target_image import TargetImage
from tests.datasets import manifest_of


def dataset(target: Target, **changes: Any) -> Manifest:
    return manifest_of(target, **{"kind": "some", "width": 8, "height": 6, "channels": 3, **changes})


OWN = ["cat", "dog", "owl"]


@pytest.mark.parametrize(
    ("own", "other", "places", "lacking"),
    [
        (ClassIndex.of(OWN), ClassIndex.of(OWN), [0, 1, 2], []),
        (ClassIndex.of(OWN), ClassIndex.of(["owl", "cat"]), [2, 0], []),
        (ClassIndex.of(OWN), ClassIndex.of(["ant", "dog"]), [-1, 1], ["ant"]),
        (Mask.of(OWN, 6, 8), Mask.of(["dog", "ant"], 12, 12), [1, -1], ["ant"]),
        (Boxes.of(OWN, 4), Boxes.of(["dog"], 9), [1], []),
        (LabelSet.of(OWN), LabelSet.of(["ant", "owl", "dog", "cat"]), [3, 2, 1], ["ant"]),
        (Numbers.of(["x", "y"]), Numbers.of(["y", "x"]), [1, 0], []),
        (TargetImage.of(6, 8, 3), TargetImage.of(12, 12, 3), [], []),
    ],
)
def test_names_are_matched(own: Target, other: Target, places: list[int], lacking: list[str]) -> None:
    found = dataset(own).fit(dataset(other, width=12, height=12), takes_image=True)
    assert (found.places, found.lacking, found.target.names) == (places, lacking, own.names)
    assert found.maps_names == (own.names != other.names)
    if isinstance(own, Boxes):
        assert found.target.shape == other.shape


@pytest.mark.parametrize(
    ("target", "changes", "reason"),
    [
        (ClassIndex.of(["ant", "bee"]), {}, "it has none of the model's classes (cat, dog, owl)"),
        (Numbers.of(["x"]), {}, "its targets have a different type"),
        (ClassIndex.of(OWN), {"kind": "other"}, "it is of a different kind"),
        (
            ClassIndex.of(OWN),
            {"channels": 2},
            "its records have the shape 6×8×2, but the model expects 6×8×3",
        ),
        (ClassIndex.of(OWN), {"width": 9, "dtype": "float32"}, "its records have the shape 6×9×3"),
    ],
)
def test_the_reason_is_named(target: Target, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnfitDataset) as raised:
        dataset(ClassIndex.of(OWN)).fit(dataset(target, **changes), takes_image=True)
    assert str(raised.value).startswith(reason)


def test_numbers_of_the_model_must_be_known() -> None:
    own, other = (dataset(Numbers.of(names)) for names in (["x", "y"], ["x", "z"]))
    with pytest.raises(UnfitDataset, match="it lacks the numbers y"):
        own.fit(other, takes_image=True)


def test_only_images_are_resized() -> None:
    own, other = dataset(ClassIndex.of(OWN)), dataset(ClassIndex.of(OWN), width=9, channels=1)
    assert own.fit(other, takes_image=True).places == [0, 1, 2]
    with pytest.raises(UnfitDataset, match="its records have the shape 6×9×1"):
        own.fit(other, takes_image=False)
