"""Predictions of masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from digits.data.images.images import Geometry, data_uri
from digits.data.targets.mask import IGNORED, draw_mask
from digits.data.targets.palette import css_color
from digits.kinds.network import targets
from digits.kinds.network.targets import LossLabels, select_output


class Targets(targets.Targets):
    """The most likely class of each pixel."""

    output_hint = "Only networks trained for segmentation can predict masks."

    @property
    def channels(self) -> int:
        return self.target.outputs

    def predict(self, outputs: Any) -> tf.Tensor:
        """The class of each pixel, int32 [N, H, W], if the output are scores of pixels for each of the classes."""
        scores = select_output(outputs, self.target.outputs, rank=4)
        if scores.shape.rank != 4 or (scores.shape[3] or 0) < self.target.outputs:
            return tf.cast(scores, tf.float32)
        return tf.argmax(scores[..., : self.target.outputs], axis=3, output_type=tf.int32)

    def accepts(self, shape: Sequence[int]) -> bool:
        return len(shape) == 2

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Accept every network: `accepts` has refused other outputs than masks."""

    @property
    def suitable_output(self) -> str:
        return f"[N, height, width, {self.target.outputs}]: one score per pixel and class"

    def agreement(self, predicted: NDArray[Any], others: NDArray[Any]) -> float:
        """The fraction of pixels with the same class."""
        return float(np.mean(predicted == others))

    def example(self, output: str) -> list[str]:
        return [
            f'mask = outputs["{output}"][0, ..., : len(labels)].argmax(axis=-1).astype(np.uint8)',
            'Image.fromarray(mask).save("mask.png")  # the index of the class of each pixel',
        ]

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> dict[str, Any]:
        """The classes of the image with their shares in percent and their colors, and the mask of its size.

        The mask is a data URI of a PNG file with a palette: its pixels are the indexes of the classes.
        """
        placed = _place(predicted.astype(np.uint8), geometry.height, geometry.width)
        mask = np.asarray(geometry.restore_mask(Image.fromarray(placed), IGNORED))
        counts = np.bincount(mask.ravel(), minlength=256)[: self.target.outputs]
        percents = 100 * counts / max(1, counts.sum())
        colors = self.target.palette
        return {
            "classes": [
                {
                    "name": self.target.names[index],
                    "percent": float(percents[index]),
                    "color": css_color(colors[index]),
                }
                for index in np.argsort(-percents, kind="stable")
                if counts[index]
            ],
            "mask": data_uri(draw_mask(mask, colors)),
        }


def _place(mask: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return ``mask``, which a random crop may have made smaller or larger, at the center of an image of this size."""
    placed = np.full((height, width), IGNORED, np.uint8)
    rows, columns = (_overlap(*sides) for sides in ((height, mask.shape[0]), (width, mask.shape[1])))
    placed[rows[0], columns[0]] = mask[rows[1], columns[1]]
    return placed


def _overlap(side: int, cropped: int) -> tuple[slice, slice]:
    """Return the part of a side, and the part of its centered crop or padded form, that show the same pixels."""
    length, start, other = min(side, cropped), max(0, (side - cropped) // 2), max(0, (cropped - side) // 2)
    return slice(start, start + length), slice(other, other + length)
