"""The classes of the pixels over the image. segmentation_view.js draws them with the user's settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from wtforms import Form, SelectField

from digits.data.images.images import as_image, data_uri, encode_image
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES, Mask
from digits.data.targets.palette import css_color
from digits.kinds.forms.fields import choices
from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction, as_numbers

# Larger masks are drawn at this size, in pixels.
MAX_SIDE = 512
# ColorBrewer's qualitative scheme “Paired”, Cynthia Brewer, Apache License 2.0.
PAIRED = (
    "#a6cee3", "#1f78b4", "#b2df8a", "#33a02c", "#fb9a99", "#e31a1c",
    "#fdbf6f", "#ff7f00", "#cab2d6", "#6a3d9a", "#ffff99", "#b15928",
)  # fmt: skip


class Options(Form):
    """The colors of the classes."""

    colormap = SelectField(
        "Colors",
        choices=choices(("dataset", "Of the dataset"), ("paired", "Paired"), ("none", "None")),
        default="dataset",
    )


class View(prediction_rendering.View):
    """The most likely class of each pixel, and for two classes, the probability of the second."""

    Options = Options
    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        return _scores(prediction) is not None

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        scores = _scores(prediction)
        if scores is None:
            return {}
        chances = _second(scores)
        indexes = (
            (chances >= 0.5).astype(np.uint8)
            if scores.shape[2] == 1
            else scores.argmax(axis=2).astype(np.uint8)
        )
        mask = _restored(indexes, prediction, IGNORED)
        counts = np.bincount(np.asarray(mask).ravel(), minlength=256)[:MAX_PIXEL_CLASSES]
        names, colors = _classes(prediction, max(2, scores.shape[2]), options["colormap"].data)
        shares = 100 * counts / max(1, counts.sum())
        present = np.flatnonzero(counts)
        if chances is not None:
            present = np.array([0, 1])  # a lower threshold may show the second
        return {
            "classes": [
                {
                    "index": int(place),
                    "name": names[place],
                    "color": colors[place],
                    "percent": float(shares[place]),
                }
                for place in sorted(present, key=lambda place: -counts[place])
            ],
            "mask": _png(mask),
            "chances": None
            if chances is None
            else _png(_restored(np.rint(255 * chances).astype(np.uint8), prediction, 0)),
            "width": mask.width,
            "height": mask.height,
        }


def _scores(prediction: Prediction) -> NDArray[np.float32] | None:
    """Return the first output with a score for each pixel and class, float32 [height, width, classes]."""
    classes = len(_names_of(prediction))
    for values in prediction.outputs.values():
        if values.ndim != 3 or min(values.shape[:2]) < 2 or not 1 <= values.shape[2] <= MAX_PIXEL_CLASSES:
            continue
        if classes and values.shape[2] < classes and not (classes == 2 and values.shape[2] == 1):
            continue
        return as_numbers(values[:, :, : classes or None])
    return None


def _second(scores: NDArray[np.float32]) -> Any:
    """Return the probability of the second of two classes, float32 [height, width]; None for more classes.

    Scores that are not from 0 to 1 are logits.
    """
    if scores.shape[2] > 2:
        return None
    are_chances = scores.min() >= 0 and scores.max() <= 1
    if scores.shape[2] == 1:
        only = scores[:, :, 0]
        return only if are_chances else 1 / (1 + np.exp(-only.clip(-60, 60)))
    if are_chances and np.allclose(scores.sum(axis=2), 1, atol=1e-3):
        return scores[:, :, 1]
    return 1 / (1 + np.exp((scores[:, :, 0] - scores[:, :, 1]).clip(-60, 60)))


def _restored(values: NDArray[np.uint8], prediction: Prediction, padding: int) -> Image.Image:
    """Return ``values`` of the network's input as a picture in the proportions of the user's image."""
    mask = as_image(values[:, :, None])
    geometry = prediction.geometry
    if geometry is not None and mask.size == (geometry.width, geometry.height):
        mask = geometry.restore_mask(mask, padding)
    if max(mask.size) > MAX_SIDE:
        ratio = MAX_SIDE / max(mask.size)
        size = (max(1, round(mask.width * ratio)), max(1, round(mask.height * ratio)))
        mask = mask.resize(size, Image.Resampling.NEAREST)
    return mask


def _classes(prediction: Prediction, count: int, colormap: str) -> tuple[list[str], list[str]]:
    """Return the names and colors of ``count`` classes; the first is the background."""
    target, names = prediction.target, _names_of(prediction)
    has_names = len(names) >= count
    if not has_names:
        names = [f"Class {index}" for index in range(count)]
    if colormap == "paired":
        colors = ["#000000", *(PAIRED[index % len(PAIRED)] for index in range(count))]
    elif colormap == "dataset" and target is not None and has_names:
        colors = [css_color(color) for color in target.palette]
    else:
        levels = np.linspace(0, 255, count).astype(int)
        colors = [f"#{level:02x}{level:02x}{level:02x}" for level in levels]
    return names, colors


def _names_of(prediction: Prediction) -> list[str]:
    """Return the names of the classes of pixels, if the target of the model consists of them."""
    return prediction.target.names if isinstance(prediction.target, Mask) else []


def _png(picture: Image.Image) -> str:
    return data_uri(encode_image(picture, "png"))
