"""Pages and JSON of semantic segmentation."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.data.sources.plan import show
from digits.data.targets.palette import css_color
from digits.kinds import views
from digits.kinds.segmentation.recipe import CreateSegmentation


class Views(views.Views[CreateSegmentation]):
    """Classes, their intersection over union, and the mask of an image."""

    group = "rarest class"
    groups = "rarest classes"
    distribution = "Images per class"
    counts_overlap = True
    metrics = (
        views.Metric("miou", "mIoU", "%", low=0, grades=(0.3, 0.6)),
        views.Metric("iou/", "IoU per class", "%", low=0, has_tile=False),
        views.Metric("pixel_accuracy", "Pixel accuracy", "%", low=0),
    )
    adds_sources = True
    guide = "segmentation.md"
    invitation = (
        "Assign a class to each pixel. From a folder of images and a folder of label images (masks) with the same "
        "names, annotations with polygons, a table such as a Parquet file, or TFRecord files."
    )
    infer = "Segment"
    infer_title = "Segment an image"
    result = "The mask appears here."
    class_score = "iou"
    draws_on_image = True
    annotation_format = "coco"
    transformations = views.UNBLENDED
    annotation_tools = "CVAT"

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline | None:
        names, shares = manifest.target.names, manifest.target.mean
        if not shares:
            return None
        largest = max(range(len(names)), key=shares.__getitem__)
        value = shares[largest] / len(names)
        words = f"A mask that is all “{show(names[largest])}” reaches about {self.metrics[0].format(value)}."
        return views.Baseline(value, words, "No better than an empty mask")

    def describe_error(self, error: float) -> str:
        return f"IoU {100 * (1 - error):.0f}%"

    def describe_metrics(self, metrics: Any) -> str:
        return super().describe_metrics({name: value for name, value in metrics.items() if "/" not in name})

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        names, shares = manifest.target.names, manifest.target.mean
        largest = max(range(len(names)), key=shares.__getitem__)
        return [
            ("Classes", f"{len(names):,}"),
            ("Most frequent class", f"{show(names[largest])}, {100 * shares[largest]:.0f}%"),
        ]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        target = manifest.target
        return {
            "labels": target.names,
            "pixel_shares": target.mean,
            "colors": [css_color(color) for color in target.palette],
        }
