"""Recognize pixels that a client has scaled to another range than that of the images of the training.

A network computes a prediction from any numbers, so a wrong range is otherwise only visible in wrong predictions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.manifest import Manifest
from digits.worker.failure import UserFault

CHECK = "check_range"
_WHITE = 255
# Fractions up to here are scaled, to 0 to 1, -1 to 1 or standard deviations: images of 0 to 255 are brighter.
_SCALED = 8
# Resizing with sharp filters exceeds the range by up to an eighth of it.
_OVERSHOOT = _WHITE / 8
# The means of arrays of the same range differ less.
_OTHER_SCALE = 50
_ANYWAY = f"If these are the right values, send “{CHECK}”: false with the request."


def check(pixels: NDArray[Any], manifest: Manifest) -> None:
    """Raise UserFault if ``pixels`` [H, W, C] are not in the range of the images or arrays of the dataset."""
    low, high = float(pixels.min()), float(pixels.max())
    if not np.isfinite((low, high)).all() or low == high == 0:
        return
    usual = max(map(abs, manifest.mean_pixel), default=0.0)
    if manifest.dtype != "uint8":
        _check_array(pixels, (low, high), manifest.mean_pixel)
    elif 0 < usual <= 2:
        return  # the images of the dataset are almost black
    elif max(-low, high) <= 1 or (max(-low, high) <= _SCALED and not _are_whole(pixels)):
        remedy = f"Multiply them by {_WHITE}" if low >= 0 else "Undo their normalization"
        raise _refusal((low, high), f"from 0 to {_WHITE}", f"{remedy}, or send image files.")
    elif low < -_OVERSHOOT or high > _WHITE + _OVERSHOOT or -low > high:
        raise _refusal((low, high), f"from 0 to {_WHITE}", "Undo their normalization, or send image files.")


def _check_array(pixels: NDArray[Any], limits: tuple[float, float], means: list[float]) -> None:
    """Raise UserFault for values that are not of the same scale as records whose mean values are ``means``."""
    usual, mean = float(np.mean(means)), float(pixels.mean())
    if min(means) < 0 or limits[0] < 0 or usual == 0:
        return
    expected = f"with a mean of about {usual:.3g}"
    if usual <= 1 and mean >= _OTHER_SCALE * usual and limits[1] > 2:
        raise _refusal(limits, expected, f"If they are pixels, divide them by {_WHITE}.")
    if usual > 1 and mean <= usual / _OTHER_SCALE and limits[1] <= 1 and not _are_whole(pixels):
        raise _refusal(limits, expected, f"If they are pixels, multiply them by {_WHITE}.")


def _are_whole(pixels: NDArray[Any]) -> bool:
    return bool(np.array_equal(np.rint(pixels), pixels))


def _refusal(limits: tuple[float, float], expected: str, remedy: str) -> UserFault:
    return UserFault(
        f"its values are from {limits[0]:.4g} to {limits[1]:.4g}, but the model was trained with values {expected}.",
        f"{remedy} {_ANYWAY}",
    )
