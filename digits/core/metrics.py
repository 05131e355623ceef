"""The metrics of a training as columns, for charts and files."""

from __future__ import annotations

import bisect
import csv
import io
import math
from dataclasses import dataclass, field
from typing import Any

from digits.core import events

MAX_CHART_POINTS = 4000
MAX_SPARKLINE_POINTS = 60
# Limit on the metrics of a stage, so that a network cannot exhaust the server's memory with generated names.
MAX_METRICS = 1000
# Metrics of an ended training that lists can show.
MAX_SUMMARIZED = 16
STAGES = ("train", "val")


@dataclass
class Series:
    """The rows of one stage. ``values[name][i]`` belongs to ``steps[i]``; None if it was not measured."""

    steps: list[int] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, event: events.Measured) -> None:
        if self.steps and self.steps[-1] >= event.step:
            self.cut(event.step - 1)  # the step was repeated
        count = len(self.steps)
        self.steps.append(event.step)
        self.epochs.append(event.epoch)
        for name, value in event.values.items():
            if name in self.values:
                self.values[name].append(value)
            elif len(self.values) < MAX_METRICS:
                self.values[name] = [*[None] * count, value]
        for column in self.values.values():
            if len(column) == count:
                column.append(None)

    def cut(self, step: int) -> None:
        """Remove the rows after ``step`` steps, and names without any values left."""
        count = bisect.bisect_right(self.steps, step)
        del self.steps[count:], self.epochs[count:]
        for name, column in list(self.values.items()):
            del column[count:]
            if all(value is None for value in column):
                del self.values[name]

    def last(self, name: str) -> float | None:
        """Return the latest finite value of ``name``, or None."""
        column = self.values.get(name, [])
        return next((value for value in reversed(column) if value is not None and math.isfinite(value)), None)

    def downsample(self, points: int) -> Series:
        """Return about ``points`` rows at most, including those with extreme values."""
        if len(self.steps) <= points:
            return self
        kept = sorted(_rows_to_keep(self.values, len(self.steps), points))
        return Series(
            steps=[self.steps[row] for row in kept],
            epochs=[self.epochs[row] for row in kept],
            values={name: [column[row] for row in kept] for name, column in self.values.items()},
        )

    def as_json(self) -> dict[str, Any]:
        return {"step": self.steps, "epoch": self.epochs, "values": events.for_browser(self.values)}


@dataclass
class Metrics:
    """All metrics of a task, up to ``cursor`` in its log."""

    cursor: int = 0
    train: Series = field(default_factory=Series)
    val: Series = field(default_factory=Series)

    def add(self, event: events.Event) -> None:
        if isinstance(event, events.Measured) and event.stage in STAGES:
            self.stage(event.stage).add(event)
        elif isinstance(event, events.Resumed):
            self.train.cut(event.step)
            self.val.cut(event.step)

    def stage(self, name: str) -> Series:
        return self.train if name == "train" else self.val

    def as_json(self, points: int = MAX_CHART_POINTS) -> dict[str, Any]:
        """Return the data for charts: both stages, downsampled to about ``points`` rows."""
        return {
            "cursor": self.cursor,
            "train": self.train.downsample(points).as_json(),
            "val": self.val.downsample(points).as_json(),
        }

    def as_csv(self) -> str:
        """Return all rows of both stages as CSV, with a column for each metric."""
        names = sorted({*self.train.values, *self.val.values})
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["stage", "step", "epoch", *names])
        for stage in STAGES:
            series = self.stage(stage)
            for row, step in enumerate(series.steps):
                cells = [series.values[name][row] if name in series.values else None for name in names]
                writer.writerow([stage, step, series.epochs[row], *cells])
        return text.getvalue()

    def sparkline(self) -> list[float]:
        """Return the training loss in a few numbers, for a sparkline."""
        column = [value for value in self.train.values.get("loss", []) if value is not None]
        finite = [value for value in column if math.isfinite(value)]
        stride = max(1, math.ceil(len(finite) / MAX_SPARKLINE_POINTS))
        return [float(f"{value:.4g}") for value in finite[::stride]]

    def last_values(self) -> dict[str, float]:
        """Return the latest finite value of each metric of the validation, or of the training without validation."""
        series = self.val if self.val.steps else self.train
        latest = ((name, series.last(name)) for name in list(series.values)[:MAX_SUMMARIZED])
        return {name: value for name, value in latest if value is not None}

    def last_accuracy(self) -> float | None:
        """Return the latest accuracy in percent: of the validation, or of the training without validation."""
        for series in (self.val, self.train):
            for name in series.values:
                value = series.last(name) if "accuracy" in name.lower() else None
                if value is not None and math.isfinite(100 * value):
                    return round(100 * value, 2)
        return None


def row_json(event: events.Measured) -> dict[str, Any]:
    """Return one row in the format for browsers."""
    values = events.for_browser(event.values)
    return {"stage": event.stage, "step": event.step, "epoch": event.epoch, "values": values}


def _rows_to_keep(columns: dict[str, list[float | None]], count: int, points: int) -> set[int]:
    # Keep the first row of each bucket and the two extreme rows of each column.
    size = max(1, math.ceil(count * (1 + 2 * len(columns)) / points))
    kept = {count - 1}
    for begin in range(0, count, size):
        rows = range(begin, min(begin + size, count))
        kept.add(begin)
        for column in columns.values():
            numbers = [row for row in rows if _is_number(column[row])]
            if numbers:
                kept.add(min(numbers, key=lambda row: column[row] or 0.0))
                kept.add(max(numbers, key=lambda row: column[row] or 0.0))
    return kept


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
