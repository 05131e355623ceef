"""Evaluations and embedding maps of models, as pages and programs see them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from digits.data.models.embedding_map import EmbeddingMap
from digits.data.models.evaluation import Evaluation
from digits.web.resources.tasks import ActivityState


class EvaluationResult(Evaluation, frozen=True, kw_only=True):
    """The result of an evaluation; classifiers have a confusion matrix, with rows for the true classes."""

    confusion_matrix: list[list[int]] | UnsetType = UNSET


class Evaluations(ActivityState, kw_only=True):
    """The state of the running evaluation of a model, and its results.

    ``verdict`` says in words how good the model is, "" if nothing measures it.
    """

    evaluations: list[EvaluationResult]
    verdict: str = ""


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


class ModelFacts(Struct):
    """The numbers of a compared model; None where they are unknown.

    ``metrics`` are the validation metrics at ``epoch``, that of the best snapshot, or the latest ones. ``flops`` are
    the floating-point operations for one image; memory is in bytes, and ``milliseconds`` the time per image.
    """

    id: str
    name: str
    status: str
    dataset: str | None
    epoch: float | None
    metrics: dict[str, float]
    parameters: int | None
    flops: int | None
    seconds: float | None
    peak_memory: int | None
    peak_gpu_memory: int | None
    milliseconds: float | None


class Difference(Struct):
    """A setting that differs between models, with its ``values`` as text."""

    name: str
    values: list[str]


class ComparedClass(Struct):
    """The outcomes of a class: ``support`` is the number of its records, ``label`` its number."""

    label: int
    name: str
    fixed: int
    broken: int
    both_wrong: int
    support: int


class ComparedPair(Struct, kw_only=True):
    """The predictions of two models for the same records: the numbers of records by outcome, in all and by class.

    Only classifiers have ``classes`` and the ``p_value`` of McNemar's test.
    """

    models: list[str]
    evaluations: list[str]
    metrics: list[dict[str, float]]
    counts: dict[str, int] | None
    p_value: float | None
    classes: list[ComparedClass] | None


class PairDifference(Struct):
    name: str
    first: str
    second: str


class ComparedModels(ComparedPair, kw_only=True):
    """The comparison of two models."""

    settings: list[PairDifference]


class Comparison(Struct):
    """The comparison of several models. ``pair`` is None if no evaluations of the two are of the same records."""

    models: list[ModelFacts]
    settings: list[Difference]
    pair: ComparedPair | None


class MapResult(EmbeddingMap, frozen=True, kw_only=True):
    """An embedding map; ``partial`` says that it shows a part of the records."""

    partial: bool


class Maps(ActivityState, kw_only=True):
    """All embedding maps of a model, with the ``points`` of one by column. ``name`` is the map of a request for one."""

    maps: list[MapResult]
    name: str | UnsetType = UNSET
    points: dict[str, list[Any]] | UnsetType = UNSET
