"""Texts and charts for the pages, and keys for the JSON."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.data.records.records import Record
from digits.kinds import views
from digits_tagging.recipe import Recipe


class Views(views.Views[Recipe]):
    """Texts and charts of image tagging."""

    invitation = (
        "Predict any number of tags for each image. From a CSV file with the columns “image” and “tags”."
    )
    group, groups = "number of tags", "numbers of tags"
    distribution = "Images per tag"
    # An image with two tags counts for both.
    counts_overlap = True
    metrics = (
        views.Metric("f1", "F1", "%", chart="Tags", low=0),
        views.Metric("precision", "Precision", "%", chart="Tags"),
        views.Metric("recall", "Recall", "%", chart="Tags"),
    )
    infer = "Predict tags"
    infer_title = "Predict the tags of an image"
    result = "Tags appear here."

    def describe_dataset(self, manifest: Manifest) -> str:
        return f"{len(manifest.target.names)} tags"

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        """Return the tags of a record, shown with its image in Explore."""
        values = record.features.get(manifest.target.feature, [])
        tags = zip(manifest.target.names, values, strict=False)
        return ", ".join(tag for tag, value in tags if value) or "no tags"

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [("Tags", str(len(manifest.target.names)))]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {"tags": manifest.target.names}
