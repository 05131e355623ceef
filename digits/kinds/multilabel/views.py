"""Pages and JSON of multi-label classification."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.kinds import views
from digits.kinds.multilabel.recipe import CreateMultilabel


class Views(views.Views[CreateMultilabel]):
    """Labels, their average precision and F1, and the labels of an image."""

    group = "rarest label"
    groups = "rarest labels"
    distribution = "Images per label"
    counts_overlap = True
    metrics = (
        views.Metric("map", "mAP", "%", low=0, grades=(0.3, 0.7)),
        views.Metric("f1", "F1", "%", low=0),
        views.Metric("f1_macro", "F1, mean of classes", "%", chart=None),
        views.Metric("exact_match", "All labels right", "%", chart=None),
    )
    guide = "multilabel.md"
    invitation = (
        "Predict any number of labels for each image, such as the objects in it. "
        "From a CSV, JSON Lines or Parquet file, or TFRecord files."
    )
    infer = "Predict labels"
    infer_title = "Predict the labels of an image"
    result = "Labels appear here."
    class_score = "f1"

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline | None:
        shares = manifest.target.mean
        if not shares:
            return None
        value = sum(shares) / len(shares)
        return views.Baseline(value, f"Guessing reaches about {self.metrics[0].format(value)}.")

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        each = sum(manifest.target.mean)
        return [("Labels", f"{len(manifest.target.names):,}"), ("Labels per image", f"{each:.2g}")]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        target = manifest.target
        return {"labels": target.names, "label_frequencies": target.mean}
