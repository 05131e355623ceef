"""Pages and JSON of object detection."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.kinds import views
from digits.kinds.detection.formats.formats import titles
from digits.kinds.detection.recipe import CreateDetection


class Views(views.Views[CreateDetection]):
    """Classes, their average precision, and boxes on the image."""

    group = "rarest class"
    groups = "rarest classes"
    distribution = "Objects per class"
    counts_overlap = True
    metrics = (
        views.Metric("map", "mAP", "%", low=0, grades=(0.2, 0.5)),
        views.Metric("map50", "mAP@50", "%", chart=None),
    )
    adds_sources = True
    guide = "detection.md"
    invitation = f"Locate objects in images by box and class. From {', '.join(titles())} or TFRecord files."
    infer = "Detect objects"
    infer_title = "Detect objects in an image"
    result = "Detected objects appear here."
    class_score = "ap"
    draws_on_image = True
    annotation_format = "coco"
    transformations = views.UNBLENDED

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline:
        return views.Baseline(0.0, "Hardly any of the objects is found.", "Finds almost nothing")

    def describe_error(self, error: float) -> str:
        return f"F1 {100 * (1 - error):.0f}%"

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [
            ("Classes", f"{len(manifest.target.names):,}"),
            ("Maximum boxes per image", f"{manifest.target.shape[0]:,}"),
        ]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {
            "classes": manifest.target.names,
            "max_objects": manifest.target.shape[0],
            "padding": manifest.padding,
        }
