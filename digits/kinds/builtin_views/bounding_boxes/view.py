"""The boxes of objects on the image, with switches for each class. view_settings.js handles the controls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form

from digits.data.targets.palette import css_color, distinct_color
from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction, as_numbers

DETECTION = "image-object-detection"


# Left, top, right, bottom, confidence, and optionally the number of the class.
COLUMNS = 5
MAX_BOXES = 1000


class View(prediction_rendering.View):
    """Boxes by class: those that the kind describes, or rows of numbers in the outputs of another network.

    An output [K, 5] contains the boxes of the class with its name: left, top, right and bottom in pixels of the
    network's input, and the confidence. An output [K, 6] has the number of the class in its last column.
    """

    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        is_detection = prediction.kind == DETECTION
        return prediction.picture is not None and (is_detection or any(_box_outputs(prediction)))

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        picture = prediction.picture or {"width": 1, "height": 1}
        classes: dict[str, dict[str, Any]] = {}
        boxes = []
        found_boxes = prediction.predictions if prediction.kind == DETECTION else _boxes(prediction)
        for item in found_boxes:
            found = classes.setdefault(
                item["label"], {"name": item["label"], "color": item["color"], "count": 0}
            )
            found["count"] += 1
            left, top, right, bottom = item["box"]
            boxes.append(
                {
                    "class": list(classes).index(item["label"]),
                    "name": item["label"],
                    "color": item["color"],
                    "score": item["score"],
                    "left": 100 * left / picture["width"],
                    "top": 100 * top / picture["height"],
                    "width": 100 * (right - left) / picture["width"],
                    "height": 100 * (bottom - top) / picture["height"],
                }
            )
        return {"boxes": boxes, "classes": list(classes.values())}


def _box_outputs(prediction: Prediction) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the names and rows of the outputs that contain boxes, float32 [K, 5 or 6]."""
    for name, values in prediction.outputs.items():
        if values.ndim == 2 and values.shape[1] in (COLUMNS, COLUMNS + 1):
            yield name, as_numbers(values)


def _boxes(prediction: Prediction) -> list[dict[str, Any]]:
    """Return the boxes in pixels of the picture, in the form of object detection, the highest confidence first.

    Boxes without a positive confidence are left out, as in DIGITS 6.
    """
    names = prediction.target.names if prediction.target else []
    labels: dict[str, int] = {}
    boxes = []
    for name, rows in _box_outputs(prediction):
        usable = rows[rows[:, 4] > 0]
        edges = prediction.geometry.restore_boxes(usable[:, :4]) if prediction.geometry else usable[:, :4]
        for box, row in zip(edges.tolist(), usable.tolist(), strict=True):
            label = name
            if len(row) > COLUMNS:
                number = int(row[COLUMNS])
                label = names[number] if 0 <= number < len(names) else f"class {number}"
            color = css_color(distinct_color(labels.setdefault(label, len(labels))))
            boxes.append({"label": label, "score": row[4], "box": box, "color": color})
    return sorted(boxes, key=lambda item: -item["score"])[:MAX_BOXES]
