"""Masks, images and boxes move with their images through augmentation and crops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.core.recipe import Augment
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import Boxes
from digits.data.targets.mask import IGNORED, Mask
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.worker.failure import UserFault
from tests.worker.lazily import augment, target_tensors, tf

COUNT, SIDE = 24, 24
GEOMETRIC = [
    {"flip": "fliplrud"},
    {"quad_rotation": "rotall"},
    {"pad_crop": 5},
    {"scale": 0.2},
    {"flip": "fliplr", "quad_rotation": "rot90", "pad_crop": 3},
]


def scene() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of a white rectangle on black, its masks of class 1, and its box in row 1 of 3."""
    images = np.zeros((COUNT, SIDE, SIDE, 1), np.uint8)
    images[:, 8:14, 6:17] = 255
    boxes = np.full((COUNT, 3, 5), -1, np.float32)
    boxes[:, 1] = (6, 8, 17, 14, 2)
    return images, (images[..., 0] > 0).astype(np.uint8), boxes


def _prepared(form: type[Target], y: np.ndarray, settings: dict[str, Any], crop: int | None = None) -> Any:
    from digits.worker.input.preparation import Preparation

    images, *_ = scene()
    preparation = Preparation(
        np.zeros(1, np.float32),
        crop,
        images.shape[1:],
        Augment(**settings),
        None,
        target_tensors.TENSORS[form],
    )
    x, targets = preparation.for_training(tf.constant(images), tf.constant(y), tf.constant([3, 4]))
    shown, validated = preparation.for_validation(tf.constant(images), tf.constant(y))
    return x.numpy(), targets["y"].numpy(), shown.numpy(), validated.numpy()


def bounds(mask: np.ndarray) -> list[int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


@pytest.mark.parametrize("settings", GEOMETRIC, ids=str)
def test_masks_move_with_their_images(in_child: Any, settings: dict[str, Any]) -> None:
    _, masks, _ = scene()
    x, y, _, unchanged = in_child(_prepared, Mask, masks, settings)
    assert y.dtype == np.int64 and set(np.unique(y)) <= {0, 1, IGNORED}
    inside = y != IGNORED
    # Interpolated edges of a zoomed rectangle may be on either side.
    differing = ((x[..., 0] > 127) != (y == 1)) & inside
    assert differing.sum(axis=(1, 2)).max() <= (8 if "scale" in settings else 0)
    assert (x[..., 0][~inside] == 0).all()
    assert len(np.unique(y.reshape(COUNT, -1), axis=0)) > 1  # they do move
    assert np.array_equal(unchanged, masks)


@pytest.mark.parametrize("settings", GEOMETRIC, ids=str)
def test_boxes_move_with_their_objects(in_child: Any, settings: dict[str, Any]) -> None:
    *_, boxes = scene()
    x, y, _, unchanged = in_child(_prepared, Boxes, boxes, settings)
    assert (y[:, [0, 2]] == -1).all() and np.array_equal(unchanged, boxes)
    for image, box in zip(x, y[:, 1], strict=True):
        assert box[4] == 2
        np.testing.assert_allclose(
            box[:4], bounds(image[..., 0] > 127), atol=1.2 if "scale" in settings else 1e-3
        )


def test_regions_to_ignore_move_like_objects_but_stay_when_barely_visible(in_child: Any) -> None:
    *_, boxes = scene()
    ignored = boxes.copy()
    ignored[:, 1, 4] = IGNORED_BOX
    settings = {"flip": "fliplr", "pad_crop": 3}
    y = in_child(_prepared, Boxes, boxes, settings)[1]
    moved = in_child(_prepared, Boxes, ignored, settings)[1]
    assert np.array_equal(moved[..., :4], y[..., :4]) and (moved[:, 1, 4] == IGNORED_BOX).all()
    edge = np.full((COUNT, 3, 5), -1, np.float32)
    edge[:, 0], edge[:, 1] = (0, 0, 10, 10, 1), (0, 0, 10, 10, IGNORED_BOX)
    *_, cropped = in_child(_prepared, Boxes, edge, {}, 8)
    assert (cropped[:, [0, 2]] == -1).all() and (cropped[:, 1] == (0, 0, 2, 2, IGNORED_BOX)).all()


def test_target_images_move_with_their_images(in_child: Any) -> None:
    images, *_ = scene()
    x, y, _, unchanged = in_child(
        _prepared, TargetImage, images, {"flip": "fliplrud", "rotation": 30, "pad_crop": 2}
    )
    assert y.dtype == np.float32
    np.testing.assert_allclose(x, y, atol=0.51)
    assert np.array_equal(unchanged, images)


def test_colors_of_targets_do_not_change(in_child: Any) -> None:
    images, masks, _ = scene()
    changed = {"noise": 0.1, "hsv_value": 0.2, "contrast": 0.5}
    assert np.array_equal(in_child(_prepared, Mask, masks, changed)[1], masks)
    assert np.array_equal(in_child(_prepared, TargetImage, images, changed)[1], images)


@pytest.mark.parametrize("crop", [12, 31])
def test_crops_apply_to_targets(in_child: Any, crop: int) -> None:
    images, masks, boxes = scene()
    x, y, shown, validated = in_child(_prepared, Mask, masks, {}, crop)
    assert y.shape == (COUNT, crop, crop)
    for image, mask in ((x, y), (shown, validated)):
        assert np.array_equal(image[..., 0] > 127, mask == 1)
    assert (crop > SIDE) == (IGNORED in validated)
    x, y, shown, validated = in_child(_prepared, TargetImage, images, {}, crop)
    assert np.array_equal(x, y) and np.array_equal(shown, validated)
    x, y, _, validated = in_child(_prepared, Boxes, boxes, {}, crop)
    assert (validated[:, 1, 4] == 2).all()
    for image, box in zip(x, y[:, 1], strict=True):
        visible = (image[..., 0] > 127).sum() / (6 * 11)
        assert (box[4] == 2) == (visible >= 0.25)
        if box[4] == 2:
            assert box[:4].tolist() == bounds(image[..., 0] > 127)


def test_blending_is_refused_for_spatial_targets(in_child: Any) -> None:
    in_child(_refuses_blending)


def _refuses_blending() -> None:
    for settings in (Augment(mixup=0.2), Augment(cutmix=1.0)):
        augment.check(settings, (8, 8, 3))
        with pytest.raises(UserFault, match="MixUp and CutMix"):
            augment.check(settings, (8, 8, 3), target_in_image=True)
