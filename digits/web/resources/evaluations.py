"""Evaluations and embedding maps of models, as pages and programs see them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from digits.data.embedding_map import EmbeddingMap
from digits.data.evaluation import Evaluation
from digits.web.resources.tasks import TaskProgress


class EvaluationTask(Struct):
    """An evaluation that is waiting, running or stopping."""

    name: str
    title: str
    state: Literal["waiting", "running", "stopping"]


class EvaluationState(TaskProgress, kw_only=True):
    """The state of the running evaluation of a model; ``tasks`` are this one and the waiting ones."""

    tasks: list[EvaluationTask]


class EvaluationResult(Evaluation, frozen=True, kw_only=True):
    """The result of an evaluation; classifiers have a confusion matrix, with rows for the true classes."""

    confusion_matrix: list[list[int]] | UnsetType = UNSET


class Evaluations(EvaluationState, kw_only=True):
    """The state of the running evaluation of a model, and its results."""

    evaluations: list[EvaluationResult]


class ProductionName(Struct):
    """A production name of a model, and the epoch of its snapshot."""

    name: str
    epoch: str


class ModelResult(Struct):
    """A model of a dataset with the ``metrics`` of its best evaluation; those are empty if it was not evaluated.

    ``milliseconds`` is the time per image, ``seconds`` the one of the training. ``is_on_front``: no other model is both
    better and faster.
    """

    id: str
    name: str
    url: str
    evaluation_url: str | None
    is_evaluating: bool
    epoch: str | None
    snapshot_epoch: float | None
    has_snapshot: bool
    production: list[ProductionName]
    metrics: dict[str, float]
    milliseconds: float | None
    parameters: int | None
    seconds: float
    is_on_front: bool = False


class DatasetResults(Struct):
    """The models of a dataset on the records of a split; ``metric`` is the most important one."""

    split: str
    metric: str
    models: list[ModelResult]


class MapState(TaskProgress, kw_only=True):
    """The state of the running embedding map; ``name`` is the one that a request started."""

    name: str | UnsetType = UNSET


class MapResult(EmbeddingMap, frozen=True, kw_only=True):
    """An embedding map; ``partial`` says that it shows a part of the records."""

    partial: bool


class Neighbor(Struct):
    record: int
    distance: float


class Maps(MapState, kw_only=True):
    """All embedding maps of a model, with the ``points`` of one by column, and the ``neighbors`` of a record."""

    maps: list[MapResult]
    points: dict[str, list[Any]] | UnsetType = UNSET
    neighbors: list[Neighbor] | UnsetType = UNSET
