"""Validation: the metrics of the network over all validation records."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from digits.worker.input import feeds
from digits.worker.training import numerics
from digits.worker.training.pace import Pace
from digits.worker.training.side_effects import SideEffects
from digits.worker.training.steps import Evaluation, Rows

# Limits of the values of records that are kept for the metrics of a validation, and returned by a call.
MAX_RECORD_VALUES = 50_000_000
MAX_RECORD_VALUES_PER_CALL = 4_000_000


class Validation:
    """Runs ``evaluation`` over ``records`` in batches of ``batch_size``, up to ``limit`` batches per call."""

    def __init__(
        self,
        evaluation: Evaluation,
        records: feeds.Records,
        batch_size: int,
        side_effects: SideEffects,
        limit: int,
    ) -> None:
        self._evaluation, self._records, self._batch_size = evaluation, records, batch_size
        self._side_effects, self._pace = side_effects, Pace(limit)

    def run(self, step: int, rate: float, interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """The mean of each metric over all records, each counted once, after ``step`` steps.

        Calls ``interrupted`` between calls of the evaluation; where it returns True, all side effects are
        undone and the result is None. ``rate`` is the learning rate, for messages. Raises UserFault if an
        operation yields NaN or infinity while numerics are checked.
        """
        saved = self._side_effects.save()
        sizes = feeds.evaluation_sizes(len(self._records), self._batch_size)
        rows: list[Rows] = []
        values: list[Rows] = []
        self._evaluation.begin(step)
        feed = self._records.feed(feeds.evaluation_order(len(self._records), self._batch_size))
        try:
            left = sizes.count(self._batch_size)
            while left:
                batches = min(left, self._pace.steps, self._most_batches())
                began = time.monotonic()
                self._evaluate(feed, batches, step, rate, rows, values)
                self._pace.update(batches, time.monotonic() - began)
                left -= batches
                if interrupted():
                    saved.restore()
                    return None
            if sizes[-1] != self._batch_size:
                self._evaluate(feed, 1, step, rate, rows, values)
        finally:
            feed.close()
        # Restore moving averages and the like; the counters of tf.metrics continue.
        saved.restore_network()
        # Summed at the end, so that the result does not depend on the number of batches per call.
        means = np.array(sizes) @ np.concatenate(rows).astype(np.float64) / len(self._records)
        return self._evaluation.summarize(means.tolist(), np.concatenate(values))

    def _most_batches(self) -> int:
        """Return the number of batches per call that the values of their records permit."""
        return max(1, MAX_RECORD_VALUES_PER_CALL // max(1, self._batch_size * self._evaluation.record_width))

    def _evaluate(
        self, feed: feeds.Feed, batches: int, step: int, rate: float, rows: list[Rows], values: list[Rows]
    ) -> None:
        """Evaluate the next batches, and append their metrics and the values of their records."""
        with numerics.explained(step + 1, rate):
            found, of_records = self._evaluation(feed.take(batches))
        rows.append(found)
        room = MAX_RECORD_VALUES // max(1, self._evaluation.record_width) - sum(map(len, values))
        values.append(of_records[: max(0, room)])
