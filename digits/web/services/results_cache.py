"""The sums of the batch predictions that were shown last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from digits.data.models.prediction_results import PredictionResults
from digits.runtime.offload import in_thread

# One of 100,000 images takes a megabyte.
KEPT = 16


class ResultsCache:
    """Keeps the sums of at most `KEPT` batch predictions in memory, so that a page reads only new rows."""

    def __init__(self) -> None:
        self._updating = threading.Lock()
        self._sums: OrderedDict[Path, PredictionResults] = OrderedDict()

    def update(self, folder: Path, labels: list[str]) -> PredictionResults:
        """Return the sums of the rows so far in the ``folder`` of a batch prediction. Raises UnreadableFile."""
        with self._updating:
            sums = self._sums.pop(folder, None)
            if sums is None or sums.labels != labels:
                sums = PredictionResults(folder, labels)
            in_thread(sums.update)
            self._sums[folder] = sums
            if len(self._sums) > KEPT:
                self._sums.popitem(last=False)
        return sums
