"""What a model proposes for the images of labels: the runs in the folder of the job, and their rows.

Each run is a sub-folder of `FOLDER` with a `Run`, a line of `ROWS_FILE` for each image, appended while it is computed,
masks in ``masks/``, and at the end the order in which its images are labeled best.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from pathlib import Path

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from digits.core import append_log
from digits.core.files import UnreadableFile
from digits.core.schema import Count, Fraction, NonNegative, UnixTime
from digits.data.arrays import load_rows
from digits.data.models.result_folders import ResultFolders
from digits.kinds.labeling.answers import Brief, Proposal, classes_of, digest
from digits.kinds.labeling.ordering import ORDER_FILE

FOLDER = "predictions"
ROWS_FILE = "rows.jsonl"


class Run(Struct, kw_only=True):
    """A run: the ``model`` with its ``name``, its snapshot of an ``epoch``, and when it began."""

    id: str
    model: str
    name: str
    snapshot: str
    epoch: NonNegative
    at: UnixTime
    total: Count = 0


RUNS = ResultFolders(
    FOLDER,
    "run.json",
    Run,
    "run of predictions",
    key=lambda run: run.at,
    reverse=True,  # the newest first
    pattern=re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}\Z", re.ASCII),
)


class _Brief(Brief, kw_only=True, gc=False):
    score: Fraction = 0.0
    error: str = ""


class Proposals:
    """The proposals of the newest run in the ``folder`` of a job, as far as it is. ``run`` is None without one.

    ``scores`` are those of the images, -1 without a proposal, and ``answers`` the `digest` of the classes, 0
    without classes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.run: Run | None = None
        self._forget()

    def _forget(self) -> None:
        self._places, self.scores, self.answers, self._cursor = array("q"), array("f"), array("q"), 0

    def update(self) -> None:
        """Read the rows that are new; raises UnreadableFile."""
        newest = next(iter(RUNS.load_all(self._folder)), None)
        if newest is None or self.run is None or newest.id != self.run.id:
            self._forget()
        self.run = newest
        if newest is None:
            return
        for brief, end in append_log.read(self._file, _Brief, self._cursor, below=self._folder):
            missing = brief.image + 1 - len(self._places)
            self._places.extend([-1] * missing)
            self.scores.extend([-1.0] * missing)
            self.answers.extend([0] * missing)
            self._places[brief.image] = self._cursor
            if any(value is not UNSET for value in (brief.label, brief.labels, brief.objects)):
                self.answers[brief.image] = digest(classes_of(brief))
            self.scores[brief.image] = -1.0 if brief.error else brief.score
            self._cursor = end

    def is_current(self) -> bool:
        """Return whether `update` would find nothing new."""
        newest = max((self._folder / FOLDER).glob("*/run.json"), default=None)
        if newest is None or self.run is None:
            return newest is None and self.run is None
        rows = newest.parent / ROWS_FILE
        return newest.parent.name == self.run.id and (
            not rows.exists() or rows.stat().st_size <= self._cursor
        )

    @property
    def _file(self) -> Path:
        assert self.run is not None
        return self.folder / ROWS_FILE

    @property
    def source(self) -> str:
        """The model and the run, as entries name them; empty without a run."""
        return f"{self.run.model}/{self.run.id}" if self.run else ""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        assert self.run is not None
        return RUNS.folder_of(self._folder, self.run.id)

    def __len__(self) -> int:
        return len(self._places) - self._places.count(-1)

    def find(self, image: int) -> Proposal | None:
        """Return the proposal for an image; None without one. Raises UnreadableFile."""
        if image >= len(self._places) or self._places[image] < 0:
            return None
        rows = append_log.read(self._file, Proposal, self._places[image], below=self._folder)
        found = next(rows)[0]
        return None if found.error else found

    def order(self, folder: Path) -> NDArray[np.int32]:
        """Return the numbers of the images in the best order to label them: that of the run, if it has ended."""
        folders = [self.folder, folder] if self.run else [folder]
        for each in folders:
            with contextlib.suppress(UnreadableFile):
                return load_rows(each / ORDER_FILE, below=self._folder, dtype=np.dtype("<i4"))
        return np.zeros(0, np.int32)
