"""Models, as pages and programs see them. Epochs are whole where possible."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from digits.core.schema import JsonObject
from digits.web.resources.jobs import BriefJob

_KEYS_OF_DIGITS = {
    "job_id": "job id",
    "submitted": "creation time",
    "shape": "image dimensions",
    "resize_mode": "image resize mode",
    "mean_file": "mean file",
    "mean": "mean subtraction",
    "crop_size": "crop size",
    "labels_file": "labels file",
    "model_file": "model file",
    "snapshot_file": "snapshot file",
}


class BriefModel(BriefJob, rename=_KEYS_OF_DIGITS):
    """A model in lists, and in the archives of its snapshots."""

    dataset_id: str
    job_id: str
    submitted: float
    username: str | None
    shape: list[int] | None
    resize_mode: str | None
    mean: str
    crop_size: int | None
    whitening: bool
    snapshot_file: str
    framework: str = "tensorflow"
    mean_file: str = "mean.npy"
    labels_file: str = "labels.txt"
    model_file: str = "network.py"


class SnapshotMetrics(Struct):
    """The validation metrics of a snapshot; ``file`` is the prefix of its files."""

    epoch: float
    file: str
    metrics: JsonObject | None


class StepTrace(Struct):
    """The trace of a training step: a file in Chrome's trace format at ``url``."""

    step: int
    url: str


class Model(BriefModel, rename=_KEYS_OF_DIGITS, kw_only=True):
    """A model: ``snapshots`` are the epochs of its snapshots, the newest first. ``progress`` is in percent.

    ``environment`` is what a repetition needs besides the settings: software, hardware, the hash of the dataset, and
    the seed.
    """

    directory: str
    snapshots: list[float]
    best_epoch: float | None
    snapshot_metrics: list[SnapshotMetrics]
    step_traces: list[StepTrace]
    environment: dict[str, str]
    error: str | None
    progress: float


class CreatedModels(Struct):
    """The models of a sweep."""

    jobs: list[Model]


class Snapshot(Struct):
    """A snapshot in lists and choices.

    ``metrics`` is the formatted validation metrics, and ``words`` the complete label. ``default`` marks the snapshot
    that is selected by default.
    """

    epoch: float
    title: str
    metrics: str
    words: str
    best: bool
    default: bool
    intact: bool


class CurveMark(Struct):
    """What to mark on the curves of a model at an ``epoch``."""

    kind: Literal["snapshot", "best", "phase", "warning"]
    epoch: float
    text: str


class Series(Struct):
    """The rows of a stage as columns; ``seconds`` start at the clock of the curves."""

    step: list[int]
    epoch: list[float]
    seconds: list[float]
    values: dict[str, list[float | None]]


class Curves(Struct):
    """The metrics of a model. ``clock`` is a Unix time that excludes interruptions."""

    cursor: int
    clock: float | None
    train: Series
    val: Series
    marks: list[CurveMark]
