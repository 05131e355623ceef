"""The evaluations of models: a page for each, its JSON, and the panel on the page of a model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flask import request, url_for
from msgspec import UNSET
from msgspec.structs import replace

from digits.core.errors import NotFound
from digits.core.model_job import ModelJob
from digits.core.recipe import Evaluate
from digits.core.splits import Split
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds import default_kind
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.evaluations.choices import (
    MAX_OTHERS,
    check_fits,
    dataset_of,
    evaluation_recipe,
    offered_splits,
    other_datasets,
    records_title,
    records_url,
    requested_records,
    title_of,
)
from digits.web.evaluations.model_result import result_of, words_of
from digits.web.evaluations.parts import (
    NO_OBJECT,
    EvaluatedRecords,
    chosen_threshold,
    interval_words,
    shown_detections,
)
from digits.web.jobs import serializers
from digits.web.jobs.activities import Activity
from digits.web.jobs.snapshots import snapshot_of
from digits.web.records.confusion import confusion
from digits.web.records.images import shown_size
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import EvaluationResult, Evaluations
from digits.web.responses.representation import render_in_turns
from digits.web.services import Services, services

AnyEvaluation = TypeVar("AnyEvaluation", bound=Evaluation)


@dataclass(frozen=True)
class Choices:
    """What the panel offers: other ``datasets``, each with the reason why it does not fit, and their ``splits``.

    ``models`` are others of the dataset that have been evaluated on the same records.
    """

    datasets: list[tuple[DatasetJob, str]]
    splits: Sequence[str]
    models: list[ModelJob]


def _recipe(job: ModelJob) -> Evaluate:
    """Evaluate the snapshot of ``snapshot_epoch``, by default the best one, on a ``split`` of a dataset.

    This is the validation split of the model's own dataset by default, or that of ``dataset``. The evaluations of a
    model run one after another. With ``back=results``, redirects to the results of the dataset.
    """
    dataset, split = requested_records(job)
    check_fits(job, dataset, split)
    return evaluation_recipe(job, snapshot_of(job, request.form.get("snapshot_epoch")), dataset, split)


def _first(site: Services, job: ModelJob) -> list[Evaluate]:
    """Return the recipes that evaluate the best snapshot on the test split and on the validation split.

    Splits without records are left out. Empty without a snapshot, and for models that generate images.
    """
    dataset = site.store.find(job.dataset_id)
    is_wanted = site.settings.evaluations and site.tensorflow.available and not job.tasks[0].state.latent
    if not is_wanted or not isinstance(dataset, DatasetJob) or dataset.status is not Status.DONE:
        return []
    manifest, snapshot = dataset.manifest(), job.snapshots().default
    if manifest is None or snapshot is None:
        return []
    splits: tuple[Split, ...] = ("test", "val")
    return [
        evaluation_recipe(job, snapshot, dataset, split)
        for split in splits
        if split in manifest.splits and manifest.splits[split].count
    ]


def _choices(job: ModelJob) -> Choices:
    datasets = other_datasets(job)
    has_fitting = any(not reason for _, reason in datasets)
    return Choices(datasets, offered_splits(job, has_fitting), _comparable(job))


def _comparable(job: ModelJob) -> list[ModelJob]:
    """Return the newest other models of the dataset that have been evaluated on the same records as ``job``."""
    dataset = services().store.find(job.dataset_id)
    if dataset is None:
        return []
    children = services().store.children(dataset)
    models = (other for other in children if isinstance(other, ModelJob) and other.id != job.id)
    recent = list(itertools.islice(models, MAX_OTHERS))

    def records_of(model: ModelJob) -> set[tuple[str, str]]:
        results = evaluations.load_all(model.folder)
        return {(item.content_hash, item.split) for item in results if item.is_comparable}

    own = in_thread(records_of, job)
    return in_thread(lambda: [other for other in recent if own & records_of(other)]) if own else []


def _result(job: ModelJob) -> dict[str, Any]:
    results = in_thread(evaluations.load_all, job.folder)
    return {"evaluations": [describe(EvaluationResult, item) for item in results]}


def _detail(job: ModelJob, state: Evaluations) -> Evaluations:
    """Add the confusion matrices of classifiers and the ``verdict``; with a ``name``, keep only this evaluation."""
    name = request.args.get("name", "")
    selected = [_find(state.evaluations, name)] if name else state.evaluations
    evaluated = [in_thread(_with_matrix, job, item) for item in selected]
    trained = result_of(job)
    verdict = words_of(trained, serializers.job_views(job)) if trained else ""
    return replace(state, evaluations=evaluated, verdict=verdict)


def _page(job: ModelJob, recipe: Evaluate | None) -> str:
    if recipe and request.form.get("back") == "results":
        return url_for("comparison.results", job_id=Path(recipe.dataset).name, split=recipe.split)
    return url_for("model_page.show", job_id=job.id, _anchor="evaluation")


evaluation = Activity(
    name="evaluation",
    path="evaluation",
    noun="evaluation",
    title="Evaluation",
    job_type=ModelJob,
    task_folder="evaluate",
    pool="evaluation",
    results=evaluations.FOLDER,
    recipe=_recipe,
    key=lambda recipe: recipe.name,
    task_title=lambda job, recipe: records_title(job, recipe.epoch, recipe.split, Path(recipe.dataset).name),
    resource=Evaluations,
    result=_result,
    detail=_detail,
    choices=_choices,
    template="_evaluation.html",
    page=_page,
    first=_first,
)
blueprint = evaluation.blueprint
blueprint.add_app_template_filter(title_of, "title_of")
blueprint.add_app_template_filter(interval_words, "interval")


@blueprint.get("/models/<job_id>/evaluation")
def show(job_id: str) -> str:
    """Show an evaluation: the one with the ``name``, by default that of the latest epoch."""
    job = services().store.get(job_id, ModelJob)
    results = in_thread(evaluations.load_all, job.folder)
    result = _find(results, request.args.get("name", ""))
    dataset = services().store.find(result.dataset_id)
    kind = dataset.data_kind if isinstance(dataset, DatasetJob) else serializers.data_kind(job)
    current, options, records = dataset_of(result), request.args.to_dict(), EvaluatedRecords(job, result)
    threshold = chosen_threshold(result, options)
    explore = records_url(job, result, kind or default_kind(), result.dataset_id)
    return render_in_turns(
        "evaluation.html",
        job=serializers.row(job),
        result=result,
        results=[(item.name, title_of(item, job)) for item in results],
        dataset=serializers.row(dataset) if dataset else None,
        views=views_of(kind or default_kind()),
        threshold=options.get("threshold"),
        explore=explore,
        is_current=current is not None,
        size=shown_size(*current) if current else (1, 1),
        legend=current[1].target.legend() if current else [],
        worst=records.worst(*current, threshold=threshold) if current else [],
        **(in_thread(_parts, records, current[1], explore, options, threshold) if current else {}),
    )


def _find(results: list[AnyEvaluation], name: str) -> AnyEvaluation:
    match = next((item for item in results if not name or item.name == name), None)
    if match is None:
        raise NotFound(
            "This model has no such evaluation." if name else "This model has not been evaluated.",
            "Start an evaluation on the page of the model.",
        )
    return match


def _with_matrix(job: ModelJob, result: EvaluationResult) -> EvaluationResult:
    matrix = EvaluatedRecords(job, result).matrix()
    return replace(result, confusion_matrix=UNSET if matrix is None else matrix.tolist())


def _parts(
    records: EvaluatedRecords, manifest: Manifest, explore: str, options: dict[str, str], threshold: int
) -> dict[str, Any]:
    """Return the parts of the page that depend on the predictions; reads files.

    ``explore`` is the URL of all records, sorted by error.
    """
    result = records.result
    details, names = result.details, result.names(manifest.target.names)
    parts: dict[str, Any] = {"names": names, "points": records.points(), "missed": NO_OBJECT}
    if "detections" in details:
        parts["detections"] = detections = shown_detections(details, threshold)
        parts["matrix"] = confusion(detections["matrix"], [*names, NO_OBJECT], options)
    elif "pixels" in details:  # too many to compare their counts
        parts["matrix"] = confusion(np.array(details["pixels"]), names, {"unit": "percent", **options})
    elif (matrix := records.matrix()) is not None:
        # Explore filters by the classes of the dataset.
        parts["matrix"] = confusion(matrix, names, options, "" if result.classes else explore)
    return parts
