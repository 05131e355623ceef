"""Records of another dataset, with the size and the classes of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from tests.data.test_dataset_fit import dataset

OWN = ["cat", "dog", "owl"]


def adapted(own: Target, other: Target, images: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Return images and targets of ``other``, converted to color images of 8×6 pixels with the target ``own``."""
    from digits.worker.input.adaptation import Adaptation

    height, width, channels = images.shape[1:]
    model, manifest = dataset(own), dataset(other, width=width, height=height, channels=channels)
    adaptation = Adaptation(model, manifest, model.fit(manifest, takes_image=True))
    return np.asarray(adaptation.images(images)), np.asarray(adaptation.targets(y))


@pytest.mark.parametrize(
    ("own", "other", "given", "expected"),
    [
        (ClassIndex.of(OWN), ClassIndex.of(["owl", "ant", "cat"]), [0, 1, 2], [2, -1, 0]),
        (LabelSet.of(OWN), LabelSet.of(["ant", "owl", "dog", "cat"]), [[1, 1, 0, 0]], [[0, 0, 1]]),
        (
            Boxes.of(OWN, 1),
            Boxes.of(["owl", "ant"], 3),
            [[[0, 0, 8, 12, 0], [4, 6, 16, 12, 1], [0, 0, 0, 0, -1]]],
            [[[0, 0, 4, 6, 2], [2, 3, 8, 6, -2], [0, 0, 0, 0, -1]]],
        ),
    ],
)
def test_classes_and_labels_are_mapped(
    in_child: Any, own: Target, other: Target, given: list[Any], expected: list[Any]
) -> None:
    y = np.array(given, other.decoded_dtype)
    images = np.full((len(y), 12, 16, 1), 7, np.uint8)
    converted, targets = in_child(adapted, own, other, images, y)
    assert converted.shape == (len(y), 6, 8, 3) and np.allclose(converted, 7)
    assert targets.tolist() == expected


def test_masks_and_images_are_resized(in_child: Any) -> None:
    images = np.zeros((1, 12, 16, 3), np.uint8)
    classes = np.zeros((1, 12, 16), np.uint8)
    classes[:, :, 8:], classes[:, 6:] = 1, 255
    _, masks = in_child(adapted, Mask.of(OWN, 6, 8), Mask.of(["owl", "ant"], 12, 16), images, classes)
    assert masks.shape == (1, 6, 8) and masks[0, 0].tolist() == [2] * 4 + [255] * 4
    assert set(masks[0, 3:].ravel().tolist()) == {255}
    picture = np.full((1, 12, 16, 3), 9, np.uint8)
    _, resized = in_child(adapted, TargetImage.of(6, 8, 3), TargetImage.of(12, 16, 3), images, picture)
    assert (
        resized.dtype == np.uint8 and resized.shape == (1, 6, 8, 3) and set(resized.ravel().tolist()) == {9}
    )


def test_records_of_the_own_dataset_are_unchanged(in_child: Any) -> None:
    images = np.arange(2 * 6 * 8 * 3, dtype=np.uint8).reshape(2, 6, 8, 3)
    found, y = in_child(adapted, ClassIndex.of(OWN), ClassIndex.of(OWN), images, np.array([2, 0]))
    assert np.array_equal(found, images) and y.tolist() == [2, 0]
