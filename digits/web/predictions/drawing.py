"""Draw the predictions of models on images."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.web.records.gallery import GalleryItem

# Detections with lower scores are not drawn.
MIN_SCORE = 0.3


def draw_prediction(predicted: Any, item: GalleryItem, manifest: Manifest) -> dict[str, Any] | None:
    """Return how to draw a prediction, for the macro ``drawn``; None for one that is not drawn."""
    if predicted is None or not manifest.target.spatial:
        return None
    if manifest.target.spatial == "image":
        return {"url": predicted["image"]}
    if manifest.target.spatial == "mask":
        return {"url": item.thumbnail, "mask": predicted["mask"]}
    colors = {each["label"]: each["color"] for each in predicted}
    rows = [(*each["box"], each["label"], each["score"]) for each in predicted if each["score"] >= MIN_SCORE]
    boxes = [
        {
            "left": 100 * left / manifest.width,
            "top": 100 * top / manifest.height,
            "width": 100 * (right - left) / manifest.width,
            "height": 100 * (bottom - top) / manifest.height,
            "name": f"{label} {100 * score:.0f}%",
            "color": colors[label],
        }
        for left, top, right, bottom, label, score in rows
    ]
    return {"url": item.thumbnail, "boxes": boxes}
