"""The charts of an evaluation, as data for its template: histograms, scatter plots and the calibration."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from digits.data.sources.plan import count_of
from digits.kinds.views import format_number

# The size of a plot in the units of its SVG.
SIDE = 200


def of(details: dict[str, Any], record: str) -> list[dict[str, Any]]:
    """Return the charts for the ``details`` of an evaluation, which count records called ``record``."""
    charts = []
    if details.get("calibration"):
        charts.append(_calibration(details["calibration"], record))
    for number in details.get("numbers", []):
        title = "Residuals" if len(details["numbers"]) == 1 else f"Residuals of {number['name']}"
        charts.append(_histogram(f"{title} (prediction − target)", number["counts"], number["edges"], record))
    charts += [
        _histogram(item["title"], item["counts"], item["edges"], record)
        for item in details.get("histograms", [])
    ]
    return charts


def scatters(points: list[list[tuple[float, float]]], names: list[str], record: str) -> list[dict[str, Any]]:
    """Return a plot of predicted over true values for each number; the diagonal is a perfect prediction."""
    charts = []
    for name, pairs in zip(names, points, strict=True):
        values = [value for pair in pairs for value in pair]
        low, high = min(values), max(values)
        span = (high - low) or 1.0
        places = [
            (round(SIDE * (true - low) / span, 1), round(SIDE * (1 - (predicted - low) / span), 1))
            for true, predicted in pairs
        ]
        charts.append(
            {
                "type": "points",
                "title": f"Predicted and true {name}",
                "x": "True value",
                "y": "Predicted value",
                "low": format_number(low),
                "high": format_number(high),
                "points": places,
                "summary": f"{count_of(len(pairs), record)}, from {format_number(low)} to {format_number(high)}.",
            }
        )
    return charts


def _calibration(bins: list[dict[str, Any]], record: str) -> dict[str, Any]:
    total = max(1, sum(each["count"] for each in bins))
    width = SIDE / len(bins)
    return {
        "type": "calibration",
        "title": "Calibration",
        "x": "Confidence",
        "y": "Accuracy",
        "low": "0",
        "high": "100%",
        "bars": [
            {
                "x": round(index * width + 1, 1),
                "y": round(SIDE * (1 - each["accuracy"]), 1),
                "width": round(width - 2, 1),
                "height": round(SIDE * each["accuracy"], 1),
                "share": round(0.25 + 0.75 * each["count"] / total, 2),
                "words": f"Confidence {100 * index / len(bins):.0f}–{100 * (index + 1) / len(bins):.0f}%: "
                f"{count_of(each['count'], record)}, {100 * each['accuracy']:.1f}% right",
            }
            for index, each in enumerate(bins)
            if each["count"]
        ],
    }


def _histogram(title: str, counts: list[int], edges: list[float], record: str) -> dict[str, Any]:
    ends = [format_number(edge) for edge in edges]
    return {
        "type": "histogram",
        "title": title,
        "low": ends[0],
        "high": ends[-1],
        "bins": [
            {
                "percent": round(100 * count / max(1, *counts), 2),
                "words": f"{low} to {high}: {count_of(count, record)}",
            }
            for count, (low, high) in zip(counts, pairwise(ends), strict=True)
        ],
    }
