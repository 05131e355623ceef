"""Inputs of networks as pixels."""

from __future__ import annotations

import numpy as np


def test_arrays_of_numbers_are_displayed_in_their_range(tensorflow: None) -> None:
    from digits.worker.input import display
    from digits.worker.input.preparation import Preparation

    prepare = Preparation(np.zeros(1, np.float32), None, (1, 3, 1), image_dtype="float32")
    shown = display.as_pixels(np.array([-500, 0, 500], np.float32).reshape(1, 1, 3, 1), prepare)
    assert shown.ravel().tolist() == [0, 128, 255]
