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
    epoch: float


class ModelFacts(Struct):
    """The numbers of a model; None where they are unknown.

    Among the results of a dataset, ``metrics`` are those of the best evaluation, and empty without one; in a
    comparison, they are the validation metrics of the best snapshot, or the latest ones. They were measured at
    ``epoch``. ``flops`` are the floating-point operations for one image, ``milliseconds`` the time per image, and
    ``seconds`` the one of the training; memory is in bytes. ``is_on_front``: no other model is both better and faster.
    """

    id: str
    name: str
    url: str
    status: str
    dataset_id: str
    dataset: str | None
    evaluation_url: str | None
    is_evaluating: bool
    epoch: float | None
    has_snapshot: bool
    production: list[ProductionName]
    metrics: dict[str, float]
    milliseconds: float | None
    parameters: int | None
    flops: int | None
    seconds: float | None
    peak_memory: int | None
    peak_gpu_memory: int | None
    is_on_front: bool = False


class DatasetResults(Struct):
    """The models of a dataset on the records of a split; ``metric`` is the most important one."""

    split: str
    metric: str
    models: list[ModelFacts]


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


class ComparedPair(Struct):
    """The predictions of two models for the same records: the numbers of records by outcome, in all and by class.

    ``better`` is the id of the better model, null if neither is. It ``is_certain`` if the ``p_value`` is below 5%: that
    of McNemar's test for classifiers, which have ``classes``, else that of the permutation test of the errors.
    """

    models: list[str]
    evaluations: list[str]
    metrics: list[dict[str, float]]
    counts: dict[str, int] | None
    better: str | None
    is_certain: bool
    p_value: float | None
    classes: list[ComparedClass] | None


class ComparedRival(Struct):
    """The ``value`` of the metric of another ``model`` than the best one, by its ``evaluation``.

    The ``p_value`` is that of its comparison with the best one, corrected for their number by Holm's method; if it is
    not below 5%, the models are not distinguishable, and it is not certain that the best one is better.
    """

    model: str
    evaluation: str
    value: float
    p_value: float
    is_certain: bool


class ComparedBest(Struct):
    """The ``model`` with the best ``value`` of the ``metric`` on the same records of a split, and its ``rivals``.

    The models that are ``missing`` were not evaluated on these records.
    """

    model: str
    evaluation: str
    dataset: str
    split: str
    records: int
    metric: str
    value: float
    rivals: list[ComparedRival]
    missing: list[str]


class Comparison(Struct):
    """The comparison of several models. ``pair`` is None if no evaluations of the two are of the same records.

    ``best`` is None unless at least three of the models were evaluated on the same records.
    """

    models: list[ModelFacts]
    settings: list[Difference]
    pair: ComparedPair | None
    best: ComparedBest | None


class MapResult(EmbeddingMap, frozen=True, kw_only=True):
    """An embedding map; ``partial`` says that it shows a part of the records."""

    partial: bool


class Maps(ActivityState, kw_only=True):
    """All embedding maps of a model, with the ``points`` of one by column. ``name`` is the map of a request for one."""

    maps: list[MapResult]
    name: str | UnsetType = UNSET
    points: dict[str, list[Any]] | UnsetType = UNSET
