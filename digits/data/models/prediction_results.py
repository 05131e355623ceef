"""The results of a batch prediction: what they add up to, and where each of them is in their file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.files import MissingFile, UnreadableFile, open_plain
from digits.data.models.predictions import MAX_FILE_BYTES, ROWS_FILE, Row, decode_line

# The confusion matrix is omitted for models with more classes.
MAX_MATRIX_CLASSES = 50
MAX_ROW_BYTES = 1 << 26
TOP = 5


class PredictionResults:
    """The results so far of the batch prediction in ``folder``, for a classifier with the classes ``labels``.

    `update` reads each row once, when it has been appended, and `read` those that are listed. Call them in threads,
    `update` in one at a time. ``wrong`` and ``unreadable`` are the numbers of rows. ``judged`` counts those that have
    both a true class and a prediction.
    """

    def __init__(self, folder: Path, labels: Sequence[str] = ()) -> None:
        self.folder = folder
        self.labels = list(labels)
        self._numbers = {label: number for number, label in enumerate(self.labels)}
        self._reset()

    def _reset(self) -> None:
        self.wrong, self.unreadable = array("L"), array("L")
        self.judged = 0
        self._right = {1: 0, TOP: 0}
        self._counts: dict[tuple[int, int], int] = {}
        self._starts = array("Q")
        self._end = 0

    def __len__(self) -> int:
        return len(self._starts)

    def update(self) -> None:
        """Add the rows that were appended, except an incomplete last one. Raises UnreadableFile."""
        try:
            file = open_plain(self.folder / ROWS_FILE, below=self.folder)
        except MissingFile:
            return self._reset()
        with file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_FILE_BYTES:
                raise UnreadableFile(f"{ROWS_FILE} is larger than {MAX_FILE_BYTES:,} bytes")
            if size < self._end:
                self._reset()
            file.seek(self._end)
            while (line := file.readline(MAX_ROW_BYTES)).endswith(b"\n"):
                self._add(decode_line(line, Row, ROWS_FILE))
                self._starts.append(self._end)
                self._end += len(line)
        return None

    def _add(self, row: Row) -> None:
        place = len(self._starts)
        if row.error:
            self.unreadable.append(place)
        elif row.truth is not None and row.truth < len(self.labels):
            names, truth = [name for name, _ in row.predictions[:TOP]], self.labels[row.truth]
            self.judged += 1
            self._right[TOP] += truth in names
            if names[:1] == [truth]:
                self._right[1] += 1
            else:
                self.wrong.append(place)
            cell = row.truth, self._numbers.get(names[0], -1) if names else -1
            self._counts[cell] = self._counts.get(cell, 0) + 1

    def read(self, places: Iterable[int]) -> Iterator[Row]:
        """Yield the rows with these numbers. Raises UnreadableFile."""
        with open_plain(self.folder / ROWS_FILE, below=self.folder) as file:
            for place in places:
                file.seek(self._starts[place])
                yield decode_line(file.readline(MAX_ROW_BYTES), Row, ROWS_FILE)

    def accuracy(self, top: int = 1) -> float | None:
        """Return the top-k accuracy of the judged rows for k = ``top``, 1 or `TOP`; None if there are none."""
        return self._right[top] / self.judged if self.judged else None

    def matrix(self) -> NDArray[np.int64] | None:
        """Return the confusion matrix of the judged rows, int64 [true class, predicted class].

        Returns None if there are no such rows, or more than `MAX_MATRIX_CLASSES` classes.
        """
        if not self.judged or len(self.labels) > MAX_MATRIX_CLASSES:
            return None
        counts = np.zeros((len(self.labels), len(self.labels)), np.int64)
        for (truth, predicted), count in list(self._counts.items()):
            if predicted >= 0:
                counts[truth, predicted] = count
        return counts
