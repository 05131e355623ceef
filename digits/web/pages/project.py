"""The page of a project: a dataset with its versions, their models, and the best of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from flask import Blueprint
from werkzeug.wrappers import Response as AnyResponse

from digits.core.model_job import ModelJob
from digits.core.splits import Split
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import CreateVersion
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread, in_turns
from digits.web.datasets.serializers import version_of
from digits.web.evaluations.compared_pair import decision_of
from digits.web.jobs import serializers
from digits.web.records.images import find_dataset
from digits.web.resources.encoding import describe
from digits.web.resources.projects import Project, ProjectBest, ProjectModel, ProjectVersion
from digits.web.responses.representation import render_in_turns, respond, returns
from digits.web.services import services

blueprint = Blueprint("project", __name__)

MAX_MODELS = 200


@dataclass(frozen=True)
class Measured:
    """A model, and its best evaluation on the split by which the models of a project are compared."""

    job: ModelJob
    evaluation: Evaluation
    value: float


@dataclass(frozen=True)
class Benchmark:
    """The ``split`` of a dataset by which the models are compared: the best one comes first."""

    dataset: DatasetJob
    split: Split
    models: Sequence[Measured]


@blueprint.get("/projects/<job_id>")
def show(job_id: str) -> AnyResponse:
    """Show a dataset with its versions and their models; ``job_id`` is that of any of the datasets."""
    store, asked = services().store, find_dataset(job_id)
    family, views = store.index.family(asked), views_of(asked.data_kind)
    children = (job for each in family for job in store.children(each))
    models = [*islice((job for job in children if isinstance(job, ModelJob)), MAX_MODELS)]
    manifests = {each.id: manifest for each in in_turns(family) if (manifest := each.manifest())}
    finished = [each for each in family if each.id in manifests]
    benchmark = in_thread(_benchmark, [(each, manifests[each.id]) for each in finished], models)
    measured = {each.job.id: each for each in benchmark.models} if benchmark else {}
    ranked = [each.job for each in measured.values()] + [job for job in models if job.id not in measured]
    first, counts = family[-1], Counter(job.dataset_id for job in models)
    project = Project(
        name=first.recipe.parent_name if isinstance(first.recipe, CreateVersion) else first.name,
        kind=asked.data_kind.name,
        metric=asked.data_kind.metric,
        dataset_id=benchmark.dataset.id if benchmark else None,
        split=benchmark.split if benchmark else None,
        best=_best(benchmark) if benchmark else None,
        versions=[_version(each, manifests, counts[each.id]) for each in in_turns(family)],
        models=[_model(job, measured.get(job.id)) for job in in_turns(ranked)],
    )

    def page() -> str:
        return render_in_turns(
            "project.html",
            project=project,
            rows={job.id: serializers.row(job) for job in in_turns([*family, *models])},
            views=views,
            metric=views.metric(project.metric),
            benchmark=benchmark,
            newest=next(iter(finished), None),
        )

    return respond(project, page=page)


@blueprint.get("/projects/<job_id>.json")
@returns(Project)
def show_json(job_id: str) -> AnyResponse:
    """Return a dataset with its versions and their models as JSON."""
    return show(job_id)


def _version(job: DatasetJob, manifests: Mapping[str, Manifest], models: int) -> ProjectVersion:
    """Return a dataset with the numbers of its records, and how it differs from its parent."""
    manifest, before = manifests.get(job.id), manifests.get(job.parent_id)
    counts = {name: split.count for name, split in manifest.splits.items()} if manifest else {}
    return describe(
        ProjectVersion,
        job,
        status=job.status.title,
        url=serializers.job_url(job),
        parent=version_of(job),
        change=sum(counts.values()) - sum(split.count for split in before.splits.values()) if before else 0,
        splits=counts,
        models=models,
    )


def _model(job: ModelJob, measured: Measured | None) -> ProjectModel:
    return describe(
        ProjectModel,
        job,
        status=job.status.title,
        url=serializers.job_url(job),
        evaluation=measured.evaluation.name if measured else None,
        value=measured.value if measured else None,
    )


def _benchmark(
    finished: Sequence[tuple[DatasetJob, Manifest]], models: Sequence[ModelJob]
) -> Benchmark | None:
    """Return the test split of the newest version on which models were evaluated, else the validation split.

    Reads the files of each model once.
    """
    hashes = {manifest.content_hash for _, manifest in finished}
    by_records: dict[tuple[str, str], list[tuple[ModelJob, Evaluation]]] = {}
    for job in models:
        for result in evaluations.load_all(job.folder):
            if result.is_comparable and result.content_hash in hashes:
                by_records.setdefault((result.content_hash, result.split), []).append((job, result))
    splits: tuple[Split, ...] = ("test", "val")
    for split in splits:
        for dataset, manifest in finished:
            kind = dataset.data_kind
            ranked = sorted(
                (
                    Measured(job, result, result.metrics[kind.metric])
                    for job, result in by_records.get((manifest.content_hash, split), [])
                    if split in manifest.splits and kind.metric in result.metrics
                ),
                key=attrgetter("value"),
                reverse=not kind.lower_is_better(kind.metric),
            )
            best: dict[str, Measured] = {}
            for each in ranked:
                best.setdefault(each.job.id, each)
            if best:
                return Benchmark(dataset, split, [*best.values()])
    return None


def _best(benchmark: Benchmark) -> ProjectBest:
    """Return the best model, and the next one with whether the difference is certain."""
    best, *others = benchmark.models
    interval = best.evaluation.intervals.get(benchmark.dataset.data_kind.metric)
    second = others[0] if others else None
    decision = second and decision_of(second.job, best.job, (second.evaluation, best.evaluation))
    return ProjectBest(
        model=best.job.id,
        value=best.value,
        interval=(interval.low, interval.high) if interval else None,
        second=second.job.id if second else None,
        is_certain=bool(decision and decision.is_certain and decision.better == 1),
    )
