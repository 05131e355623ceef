"""Pages and JSON of regression."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.data.records.records import Record
from digits.data.sources.plan import count_of
from digits.kinds import views
from digits.kinds.regression.recipe import CreateRegression


class Views(views.Views[CreateRegression]):
    """Numbers, their errors, and their distribution."""

    group = "range"
    groups = "ranges"
    checks_counts = False
    distribution = "Target distribution"
    metrics = (
        views.Metric("mae", "MAE", best="lowest", chart="Error"),
        views.Metric("rmse", "RMSE", best="lowest", chart="Error"),
        views.Metric("r2", "R²", low=-1, perfect=1.0, grades=(0.3, 0.8)),
    )
    adds_sources = True
    guide = "regression.md"
    invitation = (
        "Predict one or more numbers for each image, such as an angle or an age. "
        "From a CSV, JSON Lines or Parquet file, or TFRecord files."
    )

    def baseline(self, manifest: Manifest, split: str) -> views.Baseline | None:
        words = "Always predicting the average would be about as good."
        return views.Baseline(0.0, words, "No better than the average")

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        numbers = record.features.get(manifest.target.feature, [])
        return " · ".join(f"{number:.4g}" for number in numbers if isinstance(number, float))

    def describe_dataset(self, manifest: Manifest) -> str:
        return count_of(len(manifest.target.names), "target")

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        target = manifest.target
        return [
            (name, f"{mean:.4g} ± {std:.3g}")
            for name, mean, std in list(zip(target.names, target.mean, target.std, strict=True))[:4]
        ]

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        target = manifest.target
        return {"targets": target.names, "target_mean": target.mean, "target_std": target.std}
