"""Predictions, as programs see them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from digits.web.resources.tasks import TaskProgress


class Prediction(Struct):
    """A prediction for one input; the form of ``predictions`` depends on the kind.

    ``snapshot`` is the title of the snapshot. Requests may add keys, such as ``visualizations`` and ``view``.
    """

    predictions: Any
    snapshot: str
    milliseconds: float


class StartedBatch(Struct):
    """A batch prediction that was started: its page, and the number of images."""

    id: str
    url: str
    images: int


class Problem(Struct):
    """A line of a list that cannot be used."""

    line: int
    message: str


class BatchState(TaskProgress, kw_only=True):
    """The state of a batch prediction, with the number of ``done`` images."""

    id: str
    done: int


class Batch(BatchState, kw_only=True):
    """A batch prediction: its source, metrics, and the ``results`` so far, one for each image."""

    source: str
    epoch: float
    images: int
    unreadable: int
    problems: list[Problem]
    problem_count: int
    labels: list[str]
    accuracy: float | None
    top5_accuracy: float | None
    confusion_matrix: list[list[int]] | None
    results: list[dict[str, Any]] = []
