"""The evaluations of a model on its page."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from flask import url_for
from msgspec.structs import asdict

from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Evaluate
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.models import dataset_fit
from digits.data.models import evaluation as evaluations
from digits.data.models.embedding_map import EmbeddingMap
from digits.data.models.evaluation import Evaluation
from digits.data.targets.target import DatasetFit, UnfitDataset
from digits.kinds import Kind, kind_named
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.background_tasks import BackgroundTask
from digits.web.jobs import serializers
from digits.web.offload import in_thread
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import EvaluationState, EvaluationTask
from digits.web.services import services
from digits.web.services.background import state_of

# Models that the page offers for a comparison, and newest datasets among which it looks for other records.
MAX_OTHERS = 25


def panel(job: ModelJob) -> dict[str, Any]:
    """Return the panel on the page of a model: the state, the results, and the choices for another evaluation."""
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    others = datasets_to_evaluate(manifest, job.dataset_id) if manifest else []
    fitting = [other for other in others if not other["reason"]]
    offered = (manifest.splits if manifest else ()) if not job.is_imported else SPLITS if fitting else ()
    views = serializers.job_views(job)
    results = in_thread(evaluations.load_all, job.folder)
    return {
        **asdict(panel_state(job)),
        "results": [
            {
                "title": title_of(item, job),
                "url": url_for("evaluation.show", job_id=job.id, name=item.name),
                "metrics": views.describe_metrics(item.metrics),
                "records": item.records,
                "total": item.total if item.is_partial else 0,
            }
            for item in results
        ],
        "others": _others(job, {(item.content_hash, item.split) for item in results if item.is_comparable}),
        "datasets": others,
        "splits": [(name, SPLIT_TITLES[name]) for name in offered],
    }


def _others(job: ModelJob, evaluated: set[tuple[str, str]]) -> list[dict[str, str]]:
    """Return the newest other models of the dataset that have been evaluated on the same records."""
    dataset = services().store.find(job.dataset_id)
    if dataset is None or not evaluated:
        return []
    children = services().store.children(dataset)
    models = (other for other in children if isinstance(other, ModelJob) and other.id != job.id)

    def is_comparable(other: ModelJob) -> bool:
        results = evaluations.load_all(other.folder)
        return any((item.content_hash, item.split) in evaluated for item in results if item.is_comparable)

    recent = list(itertools.islice(models, MAX_OTHERS))
    comparable = in_thread(lambda: [other for other in recent if is_comparable(other)])
    return [{"id": other.id, "name": other.name} for other in comparable]


def fit_of(manifest: Manifest, other: Manifest) -> DatasetFit:
    """Return how the records of ``other`` map to those of ``manifest``, that of a model; raises UnfitDataset."""
    views = views_of(kind_named(manifest.kind))
    return dataset_fit.fit(manifest, other, takes_image=views.takes_image and not views.has_input)


def datasets_to_evaluate(manifest: Manifest, own: str) -> list[dict[str, str]]:
    """Return the newest other datasets of the kind of ``manifest``, those that fit its models first.

    ``reason`` says why a dataset does not fit, as a clause; "" if it does.
    """

    def reason(other: Manifest) -> str:
        try:
            fit_of(manifest, other)
        except UnfitDataset as error:
            return str(error)
        return ""

    datasets = [
        {"id": job.id, "name": job.name, "reason": reason(other)} for job, other in _recent(manifest, own)
    ]
    return sorted(datasets, key=lambda item: bool(item["reason"]))


def other_datasets(manifest: Manifest, own: str) -> list[dict[str, str]]:
    """Return the newest other datasets whose records have the same size and targets as those of ``manifest``."""

    def fits(other: Manifest) -> bool:
        return (other.shape, other.dtype) == (manifest.shape, manifest.dtype) and (
            other.target.names,
            other.target.feature,
        ) == (manifest.target.names, manifest.target.feature)

    return [{"id": job.id, "name": job.name} for job, other in _recent(manifest, own) if fits(other)]


def _recent(manifest: Manifest, own: str) -> list[tuple[DatasetJob, Manifest]]:
    """Return the newest intact datasets of the kind of ``manifest``, except ``own``."""
    of_kind = services().store.index.newest(DatasetJob, kind_named(manifest.kind).name)
    recent = (job for job in of_kind if job.status is Status.DONE and job.id != own)
    newest = list(itertools.islice(recent, MAX_OTHERS))
    read = in_thread(lambda: [(job, job.manifest()) for job in newest])
    return [(job, other) for job, other in read if other is not None]


def panel_state(job: ModelJob) -> EvaluationState:
    """Return the state of the evaluations of a model."""
    has_result = (job.folder / evaluations.FOLDER).is_dir()
    running = services().background["evaluation"]
    tasks = [_describe_task(job, task) for task in running.tasks(job.id)]
    return describe(EvaluationState, state_of(running, job.id, has_result), tasks=tasks)


def title_of(result: Evaluation | EmbeddingMap, job: ModelJob) -> str:
    """Return the title of an evaluation or a map, such as ``Epoch 3, validation``."""
    return _title(job, result.epoch, result.split, result.dataset_id)


def records_url(job: ModelJob, result: Evaluation, kind: Kind, dataset_id: str) -> str:
    """Return the URL of the evaluated records of a dataset, those with the largest errors first."""
    return url_for(
        "explore.show",
        kind=kind,
        job_id=dataset_id,
        evaluation=f"{job.id}/{result.name}",
        db=result.split,
    )


def dataset_of(result: Evaluation | EmbeddingMap) -> tuple[DatasetJob, Manifest] | None:
    """Return the dataset of an evaluation or a map, unless it was deleted or changed."""
    data = serializers.finished_dataset(result.dataset_id)
    return data if data and data[1].content_hash == result.content_hash else None


def _title(job: ModelJob, epoch: float, split: str, dataset_id: str) -> str:
    words = f"Epoch {epoch_label(epoch)}, {SPLIT_TITLES[split].lower()}"
    if dataset_id == job.dataset_id:
        return words
    other = services().store.find(dataset_id)
    return f"{words} of {other.name if other else 'a deleted dataset'}"


def _describe_task(job: ModelJob, task: BackgroundTask) -> EvaluationTask:
    recipe = task.recipe
    assert isinstance(recipe, Evaluate)
    title = _title(job, recipe.epoch, recipe.split, Path(recipe.dataset).name)
    state: Any = "stopping" if task.is_stopping else "waiting" if task.is_waiting else "running"
    return EvaluationTask(task.key, title, state)
