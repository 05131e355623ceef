"""Targets that are drawn on the pixels of their images."""

from __future__ import annotations

import numpy as np

from digits.data.targets.box_matching import IGNORED_BOX, NO_BOX
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.mask import IGNORED, Mask


def test_boxes_are_frames_in_the_color_of_their_class() -> None:
    target = Boxes.of(["cat", "dog"], 4)
    gray = np.full((20, 30, 1), 90, np.uint8)
    rows = [[2, 3, 12, 9, 1], [-5, 10, 4, 40, 0], [15, 5, 25, 15, IGNORED_BOX], [0, 0, 0, 0, NO_BOX]]
    painted = target.paint(gray, np.array(rows, np.float32))
    assert painted.shape == (20, 30, 3) and (gray == 90).all()
    cat, dog = target.palette
    assert all(tuple(painted[place]) == dog for place in ((3, 2), (3, 11), (8, 2), (8, 11)))
    assert all(tuple(painted[place]) == cat for place in ((10, 0), (19, 3)))
    untouched = (painted == 90).all(axis=2)
    assert untouched[4:8, 3:11].all() and untouched[5:15, 15:25].all()
    assert np.count_nonzero(~untouched) == 2 * (10 + 4) + 2 * (4 + 8)
    tiny = target.paint(gray, np.array([[5, 5, 6, 6, 0]], np.float32))
    assert tuple(tiny[5, 5]) == cat and (tiny != 90).any(axis=2).sum() == 1


def test_masks_tint_the_pixels_of_their_classes_except_the_background() -> None:
    target = Mask.of(["background", "road"], 2, 2)
    pixels = np.full((2, 2, 3), 100, np.uint8)
    painted = target.paint(pixels, np.array([[0, 1], [IGNORED, 1]]))
    expected = [50 + channel // 2 for channel in target.palette[1]]
    assert painted[:, 1].tolist() == [expected] * 2 and (painted[:, 0] == 100).all()


def test_classes_are_not_drawn() -> None:
    pixels = np.zeros((2, 2, 1), np.uint8)
    assert ClassIndex.of(["a", "b"]).paint(pixels, np.int64(1)) is pixels
