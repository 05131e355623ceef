"""The metrics of a training as columns of bounded size, for charts."""

from __future__ import annotations

import bisect
import math
import re
from typing import Any

from msgspec import Struct, field

from digits.core import events, schema
from digits.core.schema import Integer

MAX_CHART_POINTS = 4000
MAX_SPARKLINE_POINTS = 60
# Maximum number of metrics stored in the summary of a finished training.
MAX_SUMMARIZED = 16
# Maximum number of values per chart across all metrics, which also limits memory.
MAX_CHART_CELLS = 64_000
STAGES = ("train", "val")
# Pixel accuracy is no substitute for the accuracy of images.
_ACCURACY = re.compile("(?<!pixel_)accuracy", re.IGNORECASE)


class Series(Struct):
    """The rows of one stage, thinned when there are many.

    ``seconds[i]`` is the training time at which the row of ``steps[i]`` was measured: see `Metrics`.
    ``values[name][i]`` is the value at ``steps[i]``, or None if it was not measured or is not finite. Columns have no
    trailing None. ``places[i]`` is the index of the row among all measured rows.

    Above `MAX_CHART_POINTS` rows (fewer if there are many metrics), each ``bucket`` of consecutive rows is reduced to
    its first row and the rows with the minimum and maximum of each metric. Up to twice as many rows are held in
    memory. With more than about a hundred metrics, only the first ones keep their extremes.
    """

    steps: list[Integer] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)
    places: list[Integer] = field(default_factory=list)
    first_steps: dict[str, Integer] = field(default_factory=dict)
    bucket: Integer = 1

    def add(self, event: events.Measured, seconds: float = 0.0) -> None:
        if self.steps and self.steps[-1] >= event.step:
            self.cut(event.step - 1)  # the step was repeated
        count = len(self.steps)
        self.places.append(self.places[-1] + 1 if self.places else 0)
        self.steps.append(event.step)
        self.epochs.append(event.epoch)
        self.seconds.append(seconds)
        for name, value in event.values.items():
            column = self.values.get(name)
            if column is None:
                if len(self.values) >= events.MAX_METRICS:
                    continue
                column = self.values[name] = []
                self.first_steps[name] = event.step
            column.extend([None] * (count - len(column)))
            column.append(value if math.isfinite(value) else None)
        limit = self._limit(MAX_CHART_POINTS)
        if count >= 2 * limit:
            # Powers of two, so that a larger bucket consists of complete smaller ones.
            self.bucket = max(self.bucket, 1 << (self._bucket_for(limit) - 1).bit_length())
            self._keep(self._representative(self.bucket, limit))

    def cut(self, step: int) -> None:
        """Remove the rows after ``step``, and metrics that have no rows left."""
        count = bisect.bisect_right(self.steps, step)
        if count == len(self.steps):
            return
        del self.steps[count:], self.epochs[count:], self.seconds[count:], self.places[count:]
        for name in [name for name, first in self.first_steps.items() if first > step]:
            del self.values[name], self.first_steps[name]
        for column in self.values.values():
            del column[count:]
            _strip(column)
        if not count:
            self.bucket = 1

    def last(self, name: str) -> float | None:
        """Return the latest finite value of ``name``, or None."""
        return next((value for value in reversed(self.values.get(name, [])) if value is not None), None)

    def downsample(self, points: int) -> Series:
        """Return about ``points`` rows at most, including those with extreme values."""
        limit = self._limit(points)
        if len(self.steps) <= limit:
            return self
        # `_keep` replaces the lists.
        thin = Series(self.steps, self.epochs, self.seconds, dict(self.values), self.places)
        thin._keep(thin._representative(thin._bucket_for(limit), limit))
        return thin

    def as_json(self) -> dict[str, Any]:
        count = len(self.steps)
        columns = {name: column + [None] * (count - len(column)) for name, column in self.values.items()}
        return {"step": self.steps, "epoch": self.epochs, "seconds": self.seconds, "values": columns}

    def is_valid(self) -> bool:
        """Return whether the columns are consistent, as `add` and `cut` leave them."""
        count = len(self.steps)
        return (
            len(self.epochs) == len(self.seconds) == len(self.places) == count <= 2 * MAX_CHART_POINTS
            and len(self.values) <= events.MAX_METRICS
            and self.values.keys() == self.first_steps.keys()
            and all(len(column) <= count for column in self.values.values())
            and all(map(int.__lt__, self.steps, self.steps[1:]))
            and all(map(int.__lt__, self.places, self.places[1:]))
            and (not count or 0 <= self.places[0] <= self.places[-1] < schema.MAX_INTEGER // 2)
            and self.bucket > 0
        )

    def _limit(self, points: int) -> int:
        """Return the number of rows to keep for about ``points`` points."""
        return max(8, min(points, MAX_CHART_CELLS // max(1, len(self.values))))

    def _with_extremes(self, limit: int) -> int:
        """Return the number of columns whose extremes fit into ``limit`` rows."""
        return min(len(self.values), limit // 4)

    def _bucket_for(self, limit: int) -> int:
        rows_each = 1 + 2 * self._with_extremes(limit)
        return math.ceil((self.places[-1] + 1) * rows_each / limit)

    def _representative(self, bucket: int, limit: int) -> list[int]:
        """Return the indices of the first row and the extremes of each bucket, and of the last row."""
        columns = list(self.values.values())[: self._with_extremes(limit)]
        count = len(self.steps)
        kept = {count - 1}
        begin = 0
        while begin < count:
            next_bucket = (self.places[begin] // bucket + 1) * bucket
            end = bisect.bisect_left(self.places, next_bucket, begin)
            kept.add(begin)
            for column in columns:
                values = column[begin:end]
                numbers = [value for value in values if value is not None]
                if numbers:
                    kept.add(begin + values.index(min(numbers)))
                    kept.add(begin + values.index(max(numbers)))
            begin = end
        return sorted(kept)

    def _keep(self, rows: list[int]) -> None:
        self.steps = [self.steps[row] for row in rows]
        self.epochs = [self.epochs[row] for row in rows]
        self.seconds = [self.seconds[row] for row in rows]
        self.places = [self.places[row] for row in rows]
        for name, column in self.values.items():
            kept = [column[row] for row in rows[: bisect.bisect_left(rows, len(column))]]
            _strip(kept)
            self.values[name] = kept


class MetricRange(Struct):
    """The latest, the smallest and the largest finite value of a metric."""

    last: float
    min: float
    max: float


class Metrics(Struct):
    """The metrics of a task.

    The training time in seconds starts with the first row and excludes the interruptions of a resumed training.
    ``clock`` is the Unix time at which it was 0, moved by the interruptions; None if there are no rows.
    """

    train: Series = field(default_factory=Series)
    val: Series = field(default_factory=Series)
    clock: float | None = None

    def add(self, event: events.Event) -> None:
        if isinstance(event, events.Measured) and event.stage in STAGES:
            self.stage(event.stage).add(event, self._seconds_at(event.at))
        elif isinstance(event, events.Resumed):
            self.train.cut(event.step)
            self.val.cut(event.step)
            if self.clock is not None:
                self.clock = event.at - self._last_seconds

    def _seconds_at(self, at: float) -> float:
        """Return the training time at the Unix time ``at``, which never decreases from row to row."""
        last = self._last_seconds
        if self.clock is None or at - self.clock < last:  # the machine's clock was set back
            self.clock = at - last
        return round(max(last, at - self.clock), 3)

    @property
    def _last_seconds(self) -> float:
        return max((series.seconds[-1] for series in (self.train, self.val) if series.seconds), default=0.0)

    @property
    def last_epoch(self) -> float:
        """The epoch of the latest row, or 0."""
        return max((series.epochs[-1] for series in (self.train, self.val) if series.epochs), default=0.0)

    def stage(self, name: str) -> Series:
        return self.train if name == "train" else self.val

    def as_json(self, points: int = MAX_CHART_POINTS) -> dict[str, Any]:
        """Return the data for charts: the clock, and both stages, downsampled to about ``points`` rows."""
        stages = {stage: self.stage(stage).downsample(points).as_json() for stage in STAGES}
        return {"clock": self.clock, **stages}

    def sparkline(self) -> list[float]:
        """Return the training loss in a few numbers, for a sparkline."""
        finite = [value for value in self.train.values.get("loss", []) if value is not None]
        stride = max(1, math.ceil(len(finite) / MAX_SPARKLINE_POINTS))
        return [float(f"{value:.4g}") for value in finite[::stride]]

    @property
    def _latest(self) -> tuple[Series, ...]:
        """The stages whose latest values stand for the model: none until the first validation after the start."""
        return () if self.val.steps and not self.val.steps[-1] else (self.val, self.train)

    def last_values(self) -> dict[str, float]:
        """Return the latest finite value of each validation metric, or of each training metric without validation."""
        series = next((stage for stage in self._latest if stage.steps), Series())
        latest = ((name, series.last(name)) for name in list(series.values)[:MAX_SUMMARIZED])
        return {name: value for name, value in latest if value is not None}

    def ranges(self) -> dict[str, MetricRange]:
        """Return the range of each metric, by the names of DIGITS 6: ``loss (train)``, ``accuracy (val)``."""
        ranges = {}
        for stage in STAGES:
            series = self.stage(stage)
            for name in list(series.values)[:MAX_SUMMARIZED]:
                numbers = [value for value in series.values[name] if value is not None]
                if numbers:
                    ranges[f"{name} ({stage})"] = MetricRange(numbers[-1], min(numbers), max(numbers))
        return ranges

    def last_accuracy(self) -> float | None:
        """Return the latest accuracy in percent: of the validation, or of the training without validation."""
        for series in self._latest:
            for name in series.values:
                value = series.last(name) if _ACCURACY.search(name) else None
                if value is not None and math.isfinite(100 * value):
                    return round(100 * value, 2)
        return None


def row_json(event: events.Measured) -> dict[str, Any]:
    """Return one row in the format for browsers."""
    values = events.for_browser(event.values)
    return {"stage": event.stage, "step": event.step, "epoch": event.epoch, "at": event.at, "values": values}


def _strip(column: list[float | None]) -> None:
    """Remove trailing None values."""
    while column and column[-1] is None:
        column.pop()
