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
