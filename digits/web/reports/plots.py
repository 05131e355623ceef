"""The charts of a report as shapes, which its page draws as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from digits.core.metrics import STAGES, Metrics
from digits.kinds.views import LOSS, RATE, SPEED, Chart, chart_of, format_number
from digits.web.evaluations.charts import SIDE

# Rows of metrics that a curve of this width can show.
MAX_POINTS = 400
# Charts of metrics that no other chart shows, such as the scalars of a network.
MAX_OWN = 8
STAGE_TITLES = {"train": "training", "val": "validation"}
# Dark enough on white paper, and different from each other in gray.
COLORS = ("#1f5fbf", "#c2410c", "#15803d", "#7e22ce", "#334155", "#a16207")


@dataclass(frozen=True)
class Line:
    """A line through ``points`` (x, y), fractions of the sides of the plot, from the lower left corner."""

    name: str
    color: str
    dashed: bool
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """A chart. ``bars`` (left, bottom, width, height) and ``dots`` (x, y) are fractions of its sides, as in `Line`.

    ``x_range`` and ``y_range`` are the ends of the axes in words, and ``summary`` describes the chart for screen
    readers.
    """

    title: str
    x: str
    y: str
    x_range: tuple[str, str]
    y_range: tuple[str, ...]
    summary: str = ""
    lines: Sequence[Line] = ()
    bars: Sequence[tuple[float, float, float, float]] = ()
    dots: Sequence[tuple[float, float]] = ()
    has_diagonal: bool = False


def curves(metrics: Metrics, charts: Sequence[Chart]) -> list[Plot]:
    """Return the curves of a training on its ``charts``: the loss, those of its kind, the learning rate, and others."""
    columns: dict[Chart, list[tuple[str, str, list[tuple[float, float]]]]] = {}
    for stage in STAGES:
        series = metrics.stage(stage).downsample(MAX_POINTS)
        for name, values in series.values.items():
            points = [
                (epoch, value)
                for epoch, value in zip(series.epochs, values, strict=False)
                if value is not None
            ]
            if points:
                columns.setdefault(chart_of(name, charts), []).append((name, stage, points))
    of_kind = [chart for chart in charts if chart not in (RATE, SPEED, LOSS)]
    own = [chart for chart in columns if chart not in charts]
    groups = (LOSS, *of_kind, RATE, *own[:MAX_OWN])
    return [_curve(chart, columns[chart]) for chart in groups if chart in columns]


def _curve(chart: Chart, columns: list[tuple[str, str, list[tuple[float, float]]]]) -> Plot:
    xs = [x for *_, points in columns for x, _ in points]
    ys = [y for *_, points in columns for _, y in points]
    low, high = min(ys), max(ys)
    if chart.low is not None:
        low = min(high, max(low, chart.low))
    span_x, span_y = (max(xs) - min(xs)) or 1.0, (high - low) or 1.0
    names = list(dict.fromkeys(name for name, *_ in columns))
    lines = [
        Line(
            f"{name.replace('_', ' ')} ({STAGE_TITLES[stage]})",
            COLORS[(2 * names.index(name) + (stage == "val")) % len(COLORS)],
            stage == "val",
            [
                (round((x - min(xs)) / span_x, 4), round(min(1.0, max(0.0, (y - low) / span_y)), 4))
                for x, y in points
            ],
        )
        for name, stage, points in columns
    ]
    last = [
        f"{line.name} {chart.format(points[-1][1])}"
        for line, (*_, points) in zip(lines, columns, strict=True)
    ]
    return Plot(
        title=chart.title,
        x="Epoch",
        y="",
        x_range=(format_number(min(xs)), format_number(max(xs))),
        y_range=(chart.format(low), chart.format((low + high) / 2), chart.format(high)),
        summary=f"at the end: {', '.join(last)}",
        lines=lines,
    )


def of_evaluation(charts: Sequence[dict[str, Any]]) -> list[Plot]:
    """Return the ``charts`` of `digits.web.evaluations.charts` as plots."""
    return [_histogram(chart) if chart["type"] == "histogram" else _square(chart) for chart in charts]


def _histogram(chart: dict[str, Any]) -> Plot:
    bins = chart["bins"]
    width = 1 / len(bins)
    return Plot(
        title=chart["title"],
        x="",
        y="",
        x_range=(chart["low"], chart["high"]),
        y_range=("0", ""),
        bars=[
            (index * width, 0.0, 0.9 * width, each["percent"] / 100)
            for index, each in enumerate(bins)
            if each["percent"]
        ],
        summary=f"from {chart['low']} to {chart['high']}",
    )


def _square(chart: dict[str, Any]) -> Plot:
    ends = chart["low"], chart["high"]
    return Plot(
        title=chart["title"],
        x=chart["x"],
        y=chart["y"],
        x_range=ends,
        y_range=ends,
        bars=[
            (bar["x"] / SIDE, 0.0, bar["width"] / SIDE, bar["height"] / SIDE) for bar in chart.get("bars", ())
        ],
        dots=[(x / SIDE, 1 - y / SIDE) for x, y in chart.get("points", ())],
        has_diagonal=True,
        summary="; ".join(bar["words"] for bar in chart.get("bars", ())) or chart.get("summary", ""),
    )
