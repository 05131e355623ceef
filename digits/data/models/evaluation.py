"""Evaluations: the predictions of a snapshot for the records of a split, compared with their targets.

Each is a folder below `FOLDER` in the folder of its model, which appears complete, by one rename. It contains:

- `FILE_NAME`: an `Evaluation`;
- `PREDICTIONS_FILE`: the predictions, float32 [records, outputs], such as the probabilities of the classes, if they are
  numbers rather than images, masks or boxes;
- `TARGETS_FILE`: the targets, int64 [records] for classes (-1 for one that the model lacks), else float32 [records,
  outputs], in the same case;
- `ERRORS_FILE`: how wrong each prediction is, float32 [records]: the larger, the worse; NaN where this is unknown;
- `WORST_FILE`: the predictions for the `WORST` records, by number as `digits.kinds.network.targets.Targets.describe`
  returns them, if they are images, masks or boxes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field

from digits.core.files import UnreadableFile, read_json
from digits.core.recipe import FileName, MetricName
from digits.core.schema import Count, JsonObject
from digits.core.splits import Split
from digits.data.models.result_folders import ArrayFormat, ResultFolders

FOLDER = "evaluations"
FILE_NAME = "evaluation.json"
PREDICTIONS_FILE = "predictions.npy"
TARGETS_FILE = "targets.npy"
ERRORS_FILE = "errors.npy"
WORST_FILE = "worst.json"
# Records with the largest errors, which a page shows.
WORST = 12
_SNAPSHOT_ENDING = ".ckpt"


class Interval(Struct, frozen=True):
    """The 95% confidence interval of a metric, and the method that computed it."""

    low: float
    high: float
    method: Literal["Wilson", "bootstrap"]


class Evaluation(Struct, frozen=True, kw_only=True):
    """The result of an evaluation for the first ``records`` of the ``total`` in a split; all, unless it is partial.

    ``dataset_id`` and ``content_hash`` identify the dataset of the records. ``predicting_seconds`` is the time for the
    predictions, without loading and tracing the model. ``seconds_per_record`` is the time per record in the fastest
    batch, the one least delayed by other programs; 0 if unknown. ``metrics`` are those of the kind, some with
    ``intervals``, and ``details`` the data for its pages.

    ``classes`` are the names of the model's classes, labels or numbers if those of the dataset differ, else empty. All
    arrays, metrics and details refer to the model's. ``lacking`` are the names in the dataset that the model lacks, and
    ``excluded`` is the number of records of these classes, which do not count.
    """

    name: FileName
    snapshot: FileName
    epoch: Annotated[float, Meta(ge=0)]
    dataset_id: str
    content_hash: str
    split: Split
    records: Count
    total: Count = 0
    seconds: Annotated[float, Meta(ge=0)]
    predicting_seconds: Annotated[float, Meta(ge=0)]
    seconds_per_record: Annotated[float, Meta(ge=0)] = 0.0
    metrics: dict[MetricName, float]
    intervals: dict[MetricName, Interval] = field(default_factory=dict)
    details: JsonObject
    classes: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    excluded: Count = 0

    def names(self, of_dataset: list[str]) -> list[str]:
        """Return the names of the classes, labels or numbers; ``of_dataset`` are those of the dataset."""
        return self.classes or of_dataset

    @property
    def is_comparable(self) -> bool:
        """Whether it can be compared with that of another model: it is complete and uses the names of the dataset."""
        return not self.is_partial and not self.classes

    @property
    def milliseconds(self) -> float:
        """The time per record in a batch."""
        return 1000 * (self.seconds_per_record or self.predicting_seconds / max(1, self.records))

    @property
    def is_partial(self) -> bool:
        """Whether the evaluation is running, or ended early."""
        return self.records < self.total


def name_of(snapshot: str, split: str, other_dataset: str = "") -> str:
    """Return the name of the evaluation of ``snapshot`` on ``split`` of its training dataset, or of another by id."""
    return "-".join(part for part in (snapshot.removesuffix(_SNAPSHOT_ENDING), other_dataset, split) if part)


def _arrays(result: Evaluation) -> dict[str, ArrayFormat]:
    count, numbers = result.records, np.dtype(np.float32)
    return {
        ERRORS_FILE: ArrayFormat(numbers, (count,)),
        PREDICTIONS_FILE: ArrayFormat(numbers, (count, None)),
        TARGETS_FILE: ArrayFormat(None, (count, ...)),
    }


EVALUATIONS = ResultFolders(
    FOLDER,
    FILE_NAME,
    Evaluation,
    "evaluation",
    key=lambda item: (-item.epoch, item.dataset_id, item.split),  # the latest epoch first
    arrays=_arrays,
)
folder_of, load, load_all = EVALUATIONS.folder_of, EVALUATIONS.load, EVALUATIONS.load_all
load_array, load_arrays = EVALUATIONS.load_array, EVALUATIONS.load_arrays


def has_predictions(model_folder: Path, name: str) -> bool:
    """Return whether an evaluation contains predictions that are numbers; raises UnreadableFile for an invalid name."""
    return (folder_of(model_folder, name) / PREDICTIONS_FILE).is_file()


def load_worst(model_folder: Path, name: str) -> dict[str, Any]:
    """Load the predictions for the worst records, by number; empty if there are none."""
    try:
        return read_json(folder_of(model_folder, name) / WORST_FILE, dict[str, Any], below=model_folder)
    except UnreadableFile:
        return {}
