"""Texts and data of kinds that all pages share: the directions of metrics."""

from __future__ import annotations

import pytest

from digits.kinds import BUILT_IN, Kind
from digits.kinds.views import Chart, Views


class ScoreViews(Views):
    charts = (
        Chart("fid", "FID", ("fid",)),
        Chart("map", "mAP", ("map", "log_loss_ratio"), best="highest"),
    )


@pytest.mark.parametrize(
    ("metric", "is_lower_better"),
    [
        ("fid", True),
        ("fid_of_the_average", True),
        ("map", False),
        ("map50", False),
        ("log_loss_ratio", False),
        ("heatmap_loss", True),
        ("loss", True),
        ("dice", False),
    ],
)
def test_the_chart_declares_the_direction_of_a_metric(metric: str, is_lower_better: bool) -> None:
    assert ScoreViews().lower_is_better(metric) is is_lower_better


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
def test_the_best_snapshot_of_a_kind_has_the_highest_score_or_the_lowest_loss(kind: Kind) -> None:
    assert kind.lower_is_better(kind.metric) is (kind.metric == "loss")
