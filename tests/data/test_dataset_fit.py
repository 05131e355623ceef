"""Which datasets fit a model, and how their classes and numbers map to those of the model."""

from __future__ import annotations

from typing import Any

import pytest

from digits.data.dataset_fit import UnfitDataset, fit
from digits.data.manifest import Manifest
from digits.data.target import TargetSpec, boxes, class_index, label_set, mask, numbers, target_image


def dataset(target: TargetSpec, **changes: Any) -> Manifest:
    fields = {
        "kind": "some",
        "width": 8,
        "height": 6,
        "channels": 3,
        "encoding": "png",
        "resize_mode": "squash",
    }
    channels = changes.get("channels", 3)
    return Manifest(**{**fields, "target": target, "splits": {}, "mean_pixel": [0.0] * channels, **changes})


OWN = ["cat", "dog", "owl"]


@pytest.mark.parametrize(
    ("own", "other", "places", "lacking"),
    [
        (class_index(OWN), class_index(OWN), [0, 1, 2], []),
        (class_index(OWN), class_index(["owl", "cat"]), [2, 0], []),
        (class_index(OWN), class_index(["ant", "dog"]), [-1, 1], ["ant"]),
        (mask(OWN, 6, 8), mask(["dog", "ant"], 12, 12), [1, -1], ["ant"]),
        (boxes(OWN, 4), boxes(["dog"], 9), [1], []),
        (label_set(OWN, [], []), label_set(["ant", "owl", "dog", "cat"], [], []), [3, 2, 1], ["ant"]),
        (numbers(["x", "y"], [], []), numbers(["y", "x"], [], []), [1, 0], []),
        (target_image(6, 8, 3), target_image(12, 12, 3), [], []),
    ],
)
def test_names_are_matched(own: TargetSpec, other: TargetSpec, places: list[int], lacking: list[str]) -> None:
    found = fit(dataset(own), dataset(other, width=12, height=12), takes_image=True)
    assert (found.places, found.lacking, found.target.names) == (places, lacking, own.names)
    assert found.maps_names == (own.names != other.names)
    if own.spatial == "boxes":
        assert found.target.shape == other.shape


@pytest.mark.parametrize(
    ("target", "changes", "reason"),
    [
        (class_index(["ant", "bee"]), {}, "it has none of the model's classes (cat, dog, owl)"),
        (numbers(["x"], [], []), {}, "its targets are of another type"),
        (class_index(OWN), {"kind": "other"}, "it is of another kind"),
        (class_index(OWN), {"channels": 2}, "its records have the shape 6×8×2, and the model expects 6×8×3"),
        (class_index(OWN), {"width": 9, "dtype": "float32"}, "its records have the shape 6×9×3"),
    ],
)
def test_the_reason_is_named(target: TargetSpec, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnfitDataset) as raised:
        fit(dataset(class_index(OWN)), dataset(target, **changes), takes_image=True)
    assert str(raised.value).startswith(reason)


def test_numbers_of_the_model_must_be_known() -> None:
    own, other = (dataset(numbers(names, [], [])) for names in (["x", "y"], ["x", "z"]))
    with pytest.raises(UnfitDataset, match="it lacks the targets y"):
        fit(own, other, takes_image=True)


def test_only_images_are_resized() -> None:
    own, other = dataset(class_index(OWN)), dataset(class_index(OWN), width=9, channels=1)
    assert fit(own, other, takes_image=True).places == [0, 1, 2]
    with pytest.raises(UnfitDataset, match="its records have the shape 6×9×1"):
        fit(own, other, takes_image=False)
