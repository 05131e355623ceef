"""The page of a project: a dataset with its versions, their models, and the best of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

from flask import Blueprint, url_for

from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import CreateVersion
from digits.kinds.views import Views, views_of
from digits.runtime.offload import in_thread, in_turns
from digits.web.datasets.serializers import version_of
from digits.web.evaluations.compared_pair import decision_of
from digits.web.jobs import serializers
from digits.web.records.images import find_dataset
from digits.web.responses.representation import render_in_turns
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
    split: str
    models: Sequence[Measured]


@blueprint.get("/projects/<job_id>")
def show(job_id: str) -> str:
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
    first = family[-1]
    return render_in_turns(
        "project.html",
        name=first.recipe.parent_name if isinstance(first.recipe, CreateVersion) else first.name,
        views=views,
        metric=views.metric(asked.data_kind.metric),
        versions=[_version(each, manifests) for each in in_turns(family)],
        models=[(serializers.row(job), measured.get(job.id)) for job in in_turns(ranked)],
        benchmark=benchmark,
        best=_best(benchmark, views) if benchmark else None,
        newest=next(iter(finished), None),
    )


def _version(job: DatasetJob, manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """Return what the page shows of a version: the numbers of its records, and how it differs from its parent."""
    manifest, before = manifests.get(job.id), manifests.get(job.parent_id)
    counts = {name: split.count for name, split in manifest.splits.items()} if manifest else {}
    change = sum(counts.values()) - sum(split.count for split in before.splits.values()) if before else 0
    return {"row": serializers.row(job), "parent": version_of(job), "counts": counts, "change": change}


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
    for split in ("test", "val"):
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


def _best(benchmark: Benchmark, views: Views[Any]) -> dict[str, Any]:
    """Return the best model, the records that say so, and the next one with whether the difference is certain."""
    best, *others = benchmark.models
    interval = best.evaluation.intervals.get(benchmark.dataset.data_kind.metric)
    metric = views.metric(benchmark.dataset.data_kind.metric)
    found: dict[str, Any] = {
        "job": serializers.row(best.job),
        "value": metric.format(best.value),
        "interval": " to ".join(map(metric.format, (interval.low, interval.high))) if interval else "",
        "records": best.evaluation.records,
        "split": SPLIT_TITLES[benchmark.split].lower(),
    }
    if others:
        second = others[0]
        decision = decision_of(second.job, best.job, (second.evaluation, best.evaluation))
        found["second"] = serializers.row(second.job)
        found["is_certain"] = decision is not None and decision.is_certain and decision.better == 1
        found["compare"] = url_for("comparison.show", first=best.job.id, second=second.job.id)
    return found
