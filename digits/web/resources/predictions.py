"""Predictions, as programs see them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from digits.data.models.predictions import BatchPrediction, Problem
from digits.web.resources.tasks import ActivityState, TaskProgress


class Prediction(Struct):
    """A prediction for one input; the form of ``predictions`` depends on the kind.

    ``snapshot`` is the title of the snapshot. Requests may add the layers as ``visualizations``, and what a ``view``
    draws, with its ``name`` and ``options``.
    """

    predictions: Any
    snapshot: str
    milliseconds: float
    visualizations: list[dict[str, Any]] | UnsetType = UNSET
    view: dict[str, Any] | UnsetType = UNSET


class GeneratedImages(Struct):
    """Images that a network generates from ``vectors``: a ``grid``, and the images of each vector, as data URIs."""

    grid: str
    vectors: list[list[float]]
    width: int
    height: int
    classes: list[str]
    images: list[list[str]]
    rows: int
    columns: int
    seed: int
    snapshot: str
    milliseconds: float
    animation: str | UnsetType = UNSET


class EpochPredictions(Struct):
    """The predictions of a snapshot for several records."""

    epoch: str
    predictions: list[Any]


class FollowedRecords(Struct):
    """The predictions of each snapshot for the ``records`` of a split, by number."""

    split: str
    records: list[int]
    epochs: list[EpochPredictions]


class Batches(ActivityState, kw_only=True):
    """The batch predictions of a model, the newest first.

    ``id``, ``url`` and ``images`` are the one that a request started, its page, and the number of its images.
    """

    predictions: list[BatchPrediction]
    id: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    images: int | UnsetType = UNSET


class ClassifiedImages(Struct):
    """The classes of images by path, up to five each, and the page of the results."""

    classifications: dict[str, list[Any]]
    skipped: dict[str, str]
    problems: list[Problem]
    accuracy: float | None
    url: str


class TopImages(Struct):
    """The most probable images for each class, with their percentage."""

    top_n: dict[str, list[tuple[str, float]]]
    skipped: dict[str, str]


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
