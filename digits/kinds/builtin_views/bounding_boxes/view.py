"""The boxes of objects on the image, with switches for each class. view_settings.js handles the controls."""

from __future__ import annotations

from typing import Any

from wtforms import Form

from digits.kinds import prediction_rendering
from digits.kinds.prediction_rendering import Prediction


class View(prediction_rendering.View):
    """Boxes by class."""

    uses_picture = True

    def fits(self, prediction: Prediction) -> bool:
        return prediction.picture is not None

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        picture = prediction.picture or {"width": 1, "height": 1}
        classes: dict[str, dict[str, Any]] = {}
        boxes = []
        for item in prediction.predictions:
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
