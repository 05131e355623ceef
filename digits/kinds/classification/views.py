"""Pages and JSON of image classification."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.data.sources.plan import show
from digits.kinds import views
from digits.kinds.classification.recipe import CreateClassification


class Views(views.Views[CreateClassification]):
    """Classes, accuracy, and the most likely classes of an image."""

    metrics = (
        views.ACCURACY,
        views.Metric("top5_accuracy", "Top-5 accuracy", "%", chart=None),
        views.Metric("f1_macro", "F1, mean of classes", "%", chart=None),
        views.Metric("log_loss", "Log loss", best="lowest", chart=None),
        views.Metric("calibration_error", "Calibration error", "%", best="lowest", chart=None),
    )
    balancing = ("none", "class_weights", "sampling")
    checks_labels = True
    invitation = (
        "Assign each image to one class. From folders, tables, TFRecord files, or DIGITS 4–6 databases."
    )
    infer = "Classify"
    infer_title = "Classify an image"
    result = "Top predictions appear here."

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline | None:
        counts = manifest.splits[split].counts
        if not sum(counts):
            return None
        share = max(counts) / sum(counts)
        name = show(manifest.groups[counts.index(max(counts))])
        return views.Baseline(share, f"Always answering “{name}” reaches {views.ACCURACY.format(share)}.")

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [("Classes", str(len(manifest.target.labels)))]

    def parse_task(self, manifest: Manifest) -> dict[str, Any]:
        return {"label_count": len(manifest.target.labels)}

    def separate_sources(self, recipe: CreateClassification, manifest: Manifest) -> dict[str, dict[str, Any]]:
        separate = self.separate_of(recipe)
        return {
            name: {"label_count": sum(map(bool, split.counts))}
            for name, split in manifest.splits.items()
            if separate.get(name)
        }

    def separate_of(self, recipe: Any) -> dict[str, Any]:
        """Return the source of each other split, None without one."""
        return {"val": recipe.val, "test": recipe.test}

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {"labels": manifest.target.labels}
