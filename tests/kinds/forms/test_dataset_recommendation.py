"""Recommended settings of a new dataset."""

from __future__ import annotations

from typing import Any

import pytest

from digits.kinds.advice.recommendation import Resources
from digits.kinds.forms.dataset_recommendation import SourceFacts, recommend_dataset

CLASSES, BOXES, MASKS = "image-classification", "image-object-detection", "image-segmentation"
TWO_CORES, MANY_CORES, GPU = Resources(cores=2), Resources(cores=16), Resources("gpu")
CROPS = [(17, 38), (40, 52), (35, 60), (79, 119)]
PHOTOS = [(640, 480), (480, 640), (800, 600)]
TILES = [(1024, 1024)] * 4
STREET = [(960, 720), (960, 720)]


@pytest.mark.parametrize(
    ("kind", "sizes", "resources", "size", "mode"),
    [
        (CLASSES, [(28, 28)] * 3, TWO_CORES, (28, 28), "squash"),
        (CLASSES, [(64, 48)] * 3, TWO_CORES, (64, 48), "squash"),
        (CLASSES, CROPS, TWO_CORES, (64, 64), "squash"),
        (CLASSES, PHOTOS, TWO_CORES, (160, 160), "squash"),
        (CLASSES, STREET, TWO_CORES, (160, 160), "squash"),
        (CLASSES, STREET, MANY_CORES, (224, 224), "squash"),
        (CLASSES, STREET, GPU, (256, 256), "squash"),
        (CLASSES, [(4000, 3000)], GPU, (256, 256), "squash"),
        (CLASSES, [(20, 30), (21, 30)], GPU, (32, 32), "squash"),
        (BOXES, TILES, TWO_CORES, (256, 256), "squash"),
        (BOXES, TILES, GPU, (512, 512), "squash"),
        (BOXES, PHOTOS, TWO_CORES, (256, 256), "fill"),
        (MASKS, STREET, TWO_CORES, (256, 192), "squash"),
        (MASKS, [(300, 200)] * 2, TWO_CORES, (256, 176), "squash"),
        (MASKS, [(120, 90)], TWO_CORES, (120, 90), "squash"),
    ],
)
def test_the_size_follows_the_measured_sizes(
    kind: str, sizes: list[tuple[int, int]], resources: Resources, size: tuple[int, int], mode: str
) -> None:
    fields = _fields(resources, kind=kind, sizes=sizes)
    assert fields == {"resize_width": str(size[0]), "resize_height": str(size[1]), "resize_mode": mode}


def test_a_test_split_is_divided_off_if_there_are_enough_images() -> None:
    assert _fields(kind=CLASSES, images=300) == {"pct_test": "10"}
    assert _fields(kind=CLASSES, images=300, test_field="folder_pct_test") == {"folder_pct_test": "10"}
    assert _fields(kind=CLASSES, images=299) == {}
    assert _fields(kind=CLASSES, images=300, splits=("val", "test")) == {}


def test_gray_images_are_stored_in_grayscale() -> None:
    assert _fields(kind=CLASSES, are_gray=True) == {"resize_channels": "1"}
    assert _fields(kind="image-processing", are_gray=True) == {}, "the targets may have colors"


def test_each_piece_of_advice_has_a_reason() -> None:
    reasons = [
        advice.reason for advice in recommend_dataset(SourceFacts(CLASSES, CROPS, images=890), TWO_CORES)
    ] + [advice.reason for advice in recommend_dataset(SourceFacts(MASKS, STREET), TWO_CORES)]
    assert reasons == [
        "The images have 17×38 to 79×119 pixels: 64×64 is enough.",
        "10% of the 890 images are kept for testing: the model never sees them.",
        "The images have 960×720 pixels: 256×192 on the CPU keeps their proportions.",
    ]


def _fields(resources: Resources = TWO_CORES, **facts: Any) -> dict[str, str]:
    return {
        name: text
        for advice in recommend_dataset(SourceFacts(**facts), resources)
        for name, text in advice.fields.items()
    }
