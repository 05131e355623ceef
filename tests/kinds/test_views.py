"""Texts and data of kinds that all pages share: what a kind declares about its metrics."""

from __future__ import annotations

import pytest

from digits.kinds import BUILT_IN, Kind
from digits.kinds.views import Chart, Metric, Views


class ScoreViews(Views):
    metrics = (
        Metric("fid", "FID", best="lowest", has_tile=False),
        Metric("map", "mAP", "%", chart="Scores", low=0),
        Metric("log_loss_ratio", "Ratio", "%", chart="Scores"),
        Metric("noise", "Noise", "dB", best="lowest", chart=None),
    )


@pytest.mark.parametrize(
    ("metric", "is_lower_better"),
    [
        ("fid", True),
        ("fid_of_the_average", True),
        ("map", False),
        ("map50", False),
        ("log_loss_ratio", False),
        ("noise", True),
        ("heatmap_loss", True),
        ("loss", True),
        ("dice", False),
    ],
)
def test_a_kind_declares_the_directions_of_its_metrics(metric: str, is_lower_better: bool) -> None:
    assert ScoreViews().lower_is_better(metric) is is_lower_better


def test_metrics_are_grouped_into_charts() -> None:
    assert ScoreViews().charts == (
        Chart("fid", "FID", ("fid",), has_tile=False),
        Chart("scores", "Scores", ("map", "log_loss_ratio"), percent=True, best="highest", low=0),
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.8864, "88.6%"), (1.0, "100.0%"), (0.9996, "99.96%"), (0.99999999, "100.0%"), (0.0, "0.0%")],
)
def test_percents_are_not_rounded_to_all(value: float, words: str) -> None:
    assert Metric("accuracy", "Accuracy", "%").format(value) == words


@pytest.mark.parametrize(
    ("metric", "words", "title"),
    [
        ("map", "mAP 50.0%", "mAP"),
        ("log_loss_ratio", "ratio 50.0%", "Ratio"),
        ("noise", "noise 0.5 dB", "Noise"),
        # By its name, or by that of a chart.
        ("map_50", "map 50 50.0%", "Map 50"),
        ("map_loss", "map loss 0.5", "Map loss"),
        ("fid_of_top5", "fid of top-5 0.5", "Fid of top-5"),
        ("accuracy", "accuracy 50.0%", "Accuracy"),
    ],
)
def test_metrics_have_words_a_unit_and_a_title(metric: str, words: str, title: str) -> None:
    assert ScoreViews().describe_metric(metric, 0.5) == words
    assert ScoreViews().metric(metric).title == title


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
def test_the_best_snapshot_of_a_kind_has_the_highest_score_or_the_lowest_loss(kind: Kind) -> None:
    assert kind.lower_is_better(kind.metric) is (kind.metric == "loss")
    declared = [metric.name for metric in kind.load("views").Views.metrics]
    assert kind.metric in (*declared, "loss")
