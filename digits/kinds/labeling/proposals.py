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


def newest_run(folder: Path) -> str:
    """Return the id of the newest run that has begun in the ``folder`` of a job; empty without one."""
    return max((path.parent.name for path in (folder / FOLDER).glob(f"*/{ROWS_FILE}")), default="")


class Proposals:
    """The proposals of the run ``id`` in the ``folder`` of a job, as far as it is; none without a run.

    ``scores`` are those of the images, -1 without a proposal, and ``answers`` the `digest` of the classes, 0
    without classes.
    """

    def __init__(self, folder: Path, id: str = "") -> None:
        self._job = folder
        self.id = id
        self.run: Run | None = None
        with contextlib.suppress(UnreadableFile):  # without a run, or if it is damaged
            self.run = RUNS.load(folder, id)
        self.folder = folder / FOLDER / id
        # The model and the run, as entries name them.
        self.source = f"{self.run.model}/{id}" if self.run else ""
        self._places, self.scores, self.answers = array("q"), array("f"), array("q")
        self._cursor = 0

    def update(self) -> None:
        """Read the rows that are new; raises UnreadableFile."""
        if self.run is None:
            return
        for brief, end in append_log.read(self.folder / ROWS_FILE, _Brief, self._cursor, below=self._job):
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
        """Return whether this is the newest run, and `update` would find nothing new."""
        rows = self.folder / ROWS_FILE
        return newest_run(self._job) == self.id and (not rows.exists() or rows.stat().st_size <= self._cursor)

    def __len__(self) -> int:
        return len(self._places) - self._places.count(-1)

    def find(self, image: int) -> Proposal | None:
        """Return the proposal for an image; None without one. Raises UnreadableFile."""
        if image >= len(self._places) or self._places[image] < 0:
            return None
        rows = append_log.read(self.folder / ROWS_FILE, Proposal, self._places[image], below=self._job)
        found = next(rows)[0]
        return None if found.error else found

    def order(self) -> NDArray[np.int32]:
        """Return the numbers of the images in the best order to label them: that of the run, if it has ended."""
        for folder in (self.folder, self._job):
            with contextlib.suppress(UnreadableFile):
                return load_rows(folder / ORDER_FILE, below=self._job, dtype=np.dtype("<i4"))
        return np.zeros(0, np.int32)
