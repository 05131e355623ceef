"""Stream all rows of a training's metrics as CSV from its event log."""

from __future__ import annotations

import bisect
import csv
import io
from collections.abc import Iterator
from pathlib import Path

from digits.core import events
from digits.core.csv_cells import harmless
from digits.core.metrics.series import STAGES

# Limits memory if a log invalidates earlier rows again and again.
_MAX_CUTS = 100_000
# Placeholder for a missing column; longer than any metric name.
_NONE = "-" * (events.MAX_METRIC_NAME + 1)


def table(log: Path) -> Iterator[str]:
    """Yield the CSV text in pieces: a row per stage and step (training first), and a column per metric.

    Each piece takes about `events.TURN_SECONDS` and may be empty. Rows invalidated by a resumed training are omitted.
    """
    stages = {stage: _Stage() for stage in STAGES}
    end = events.end(log)
    for happened, _ in events.row_turns(log, 0, end):
        for event in happened:
            if isinstance(event, events.Resumed):
                for stage in stages.values():
                    stage.cut(event.step)
            elif event.stage in stages:
                stages[event.stage].add(event)
        yield ""
    names = sorted({name for stage in stages.values() for name in stage.first_steps})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["stage", "step", "epoch", *map(harmless, names)])
    yield text.getvalue()
    for name, stage in stages.items():
        count = 0
        columns = [metric if metric in stage.first_steps else _NONE for metric in names]
        for happened, _ in events.row_turns(log, 0, end if stage.count else 0):
            text.seek(0)
            text.truncate()
            for event in happened:
                if isinstance(event, events.Measured) and event.stage == name:
                    count += 1
                    if stage.is_valid(count, event.step):
                        values = map(event.values.get, columns)
                        writer.writerow([name, event.step, event.epoch, *values])
            yield text.getvalue()


class _Stage:
    """The metrics of a stage with the step of their first valid row, and the invalidated rows.

    Among the first ``_counts[i]`` rows, those after step ``_steps[i]`` are invalid. Both lists are ascending.
    """

    def __init__(self) -> None:
        self.first_steps: dict[str, int] = {}
        self.count = self._last = 0
        self._counts: list[int] = []
        self._steps: list[int] = []

    def add(self, event: events.Measured) -> None:
        if self.count and event.step <= self._last:
            self.cut(event.step - 1)  # the step was repeated
        self.count += 1
        self._last = event.step
        for name in event.values:
            if name not in self.first_steps and len(self.first_steps) < events.MAX_METRICS:
                self.first_steps[name] = event.step

    def cut(self, step: int) -> None:
        if self._last <= step:
            return
        self._last = step
        while self._steps and self._steps[-1] >= step:
            self._counts.pop()
            self._steps.pop()
        self._counts.append(self.count)
        self._steps.append(step)
        if len(self._counts) > _MAX_CUTS:
            del self._counts[: _MAX_CUTS // 2], self._steps[: _MAX_CUTS // 2]
        for name in [name for name, first in self.first_steps.items() if first > step]:
            del self.first_steps[name]

    def is_valid(self, number: int, step: int) -> bool:
        """Return whether row ``number``, counted from 1, with this ``step`` is valid."""
        index = bisect.bisect_left(self._counts, number)
        return index == len(self._steps) or step <= self._steps[index]
