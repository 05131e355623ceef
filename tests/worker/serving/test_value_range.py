"""Which values of a request are of another range than those of the training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.data.targets.class_index import ClassIndex
from digits.worker.failure import UserFault
from digits.worker.serving import value_range
from tests.datasets import manifest_of

TARGET = ClassIndex.of(["a", "b"])
PIXELS = np.random.default_rng(1).integers(0, 256, (8, 8, 1))


@pytest.mark.parametrize(
    ("pixels", "mean", "dtype"),
    [
        (PIXELS, 120.0, "uint8"),
        (PIXELS, 0.0, "uint8"),  # imported: the mean is unknown
        (PIXELS // 200, 0.4, "uint8"),  # images of black and almost black
        (np.minimum(PIXELS, 3), 120.0, "uint8"),  # very dark
        (PIXELS / 255, 0.5, "float32"),
        (PIXELS / 255 - 0.5, 0.0, "float32"),
        (PIXELS * 1.0, 100.0, "float32"),
        (PIXELS * 1.0, -3.0, "float32"),
        ((PIXELS > 250) * 300.0, 0.5, "float32"),  # counts with many zeros
    ],
)
def test_usual_values_are_accepted(pixels: Any, mean: float, dtype: str) -> None:
    value_range.check(pixels.astype(np.float32), manifest_of(TARGET, side=8, mean_pixel=[mean], dtype=dtype))


@pytest.mark.parametrize(
    ("pixels", "mean", "dtype", "remedy"),
    [
        (PIXELS / 255, 120.0, "uint8", "Multiply them by 255"),
        (PIXELS / 255, 0.0, "uint8", "Multiply them by 255"),
        (PIXELS // 200, 120.0, "uint8", "Multiply them by 255"),
        (PIXELS / 127.5 - 1, 120.0, "uint8", "Undo"),
        (PIXELS - 120, 120.0, "uint8", "Undo"),
        (PIXELS * 257, 120.0, "uint8", "Undo"),
        (PIXELS, 0.5, "float32", "divide them by 255"),
        (PIXELS / 255, 127.0, "float32", "multiply them by 255"),
    ],
)
def test_scaled_values_are_refused(pixels: Any, mean: float, dtype: str, remedy: str) -> None:
    with pytest.raises(UserFault, match="the model was trained with values") as error:
        value_range.check(
            pixels.astype(np.float32), manifest_of(TARGET, side=8, mean_pixel=[mean], dtype=dtype)
        )
    assert remedy in error.value.hint and "check_range" in error.value.hint
