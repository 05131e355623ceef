"""The losses and outputs that follow the target of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from tests.worker.lazily import api, tf, tower

LOGITS = np.array([[2.0, -1.0], [0.5, 0.0]], np.float32)
LABELS = np.array([[1, 0], [0, 1]], np.float32)
NUMBERS = Numbers.of(["angle", "constant"], [100.0, 7.0], [50.0, 0.0])
SIGMOID = np.log1p(np.exp(-np.array([2.0, 1.0, -0.5, 0.0]))).mean()
SOFTMAX = np.log1p(np.exp([-3.0, 0.5])).mean()


def _applied(function: str, target: Target, *values: np.ndarray) -> Any:
    """Return the result of a function of ``digits`` in a network for ``target``."""
    built = tower.Tower(None, None, [1, 1, 1], target.outputs, True, False)
    built.target = target  # type: ignore[attr-defined]
    with tower.building(built, tower.Step()):
        return getattr(api, function)(*map(tf.constant, values)).numpy()


@pytest.mark.parametrize(
    ("target", "output", "y", "loss"),
    [
        (ClassIndex.of(["a", "b"]), LOGITS, np.array([0, 1]), SOFTMAX),
        (LabelSet.of(["a", "b"], [0.5, 0.5], [0.5, 0.5]), LOGITS, LABELS, SIGMOID),
        (NUMBERS, np.array([[150, 9]], np.float32), np.array([[100, 8]], np.float32), 1.0),
        (Mask.of(["a", "b"], 1, 2), LOGITS[None, None], np.array([[[0, 255]]]), np.log1p(np.exp(-3.0))),
        (TargetImage.of(1, 1, 1), np.full((1, 1, 1, 1), 255.0), np.full((1, 1, 1, 1), 127.5), 0.25),
    ],
    ids=["classes", "labels", "numbers", "mask", "image"],
)
def test_the_loss_follows_the_target(in_child, target, output, y, loss):
    assert in_child(_applied, "loss", target, output, y) == pytest.approx(loss, rel=1e-5)


def test_boxes_have_their_own_loss(in_child):
    with pytest.raises(Exception, match="detection_loss"):
        in_child(_applied, "loss", Boxes.of(["a"], 1), LOGITS, LABELS)


def test_only_numbers_are_scaled(in_child):
    scaled = in_child(_applied, "scale_output", NUMBERS, LOGITS)
    assert scaled.tolist() == [[200, 6], [125, 7]]
    for target in (ClassIndex.of(["a", "b"]), LabelSet.of(["a", "b"], [0.5, 0.5], [0.5, 0.5])):
        assert in_child(_applied, "scale_output", target, LOGITS).tolist() == LOGITS.tolist()


def test_the_dice_loss_counts_classes_equally_and_ignores_pixels(in_child):
    target = Mask.of(["a", "b", "absent"], 1, 4)
    y = np.array([[[0, 0, 1, 255]]])
    certain = 50.0 * np.eye(3, dtype=np.float32)
    exact = certain[[0, 0, 1, 2]][None, None]
    assert in_child(_applied, "dice_loss", target, exact, y) == pytest.approx(0, abs=1e-5)
    # All a: the Dice coefficient of a is 2·2 / (3 + 2), that of b is 0.
    only = certain[[0, 0, 0, 0]][None, None]
    assert in_child(_applied, "dice_loss", target, only, y) == pytest.approx(1 - 0.8 / 2, rel=1e-5)
