"""Comparing models: all of a dataset by their results on a split, and chosen ones with their curves and settings."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.core.splits import SPLITS
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import pareto_front
from digits.kinds.forms.request_fields import choice
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread, in_turns
from digits.web.evaluations import compared_models
from digits.web.evaluations.choices import check_fits, evaluation_recipe, requested_records
from digits.web.evaluations.compared_best import best_of, verdict_of
from digits.web.evaluations.compared_pair import common_evaluations, describe_pair, parts_of
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.snapshots import snapshot_of
from digits.web.resources.evaluations import Comparison, DatasetResults, ModelFacts
from digits.web.responses.representation import render_in_turns, returns
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("comparison", __name__)

MAX_RESULTS = 1000


@blueprint.get("/datasets/<job_id>/results")
def results(job_id: str) -> str:
    """Show the models of a dataset: metrics, latency, size and training time, sorted by one of them."""
    dataset, split, models, main = _results(job_id)
    views = views_of(dataset.data_kind)
    columns = compared_models.columns(models, lambda model: views)
    shown = {column.name: column for column in columns}
    directions = {name: "asc" if column.is_lower_better else "desc" for name, column in shown.items()}
    sort = request.args.get("sort", main)
    direction = choice(request.args, "direction", directions.get(sort, "asc"), ("asc", "desc"))

    def value(model: ModelFacts) -> Any:
        return shown[sort].value(model) if sort in shown else model.name.casefold()

    models.sort(key=lambda model: value(model) or 0, reverse=direction == "desc")
    models.sort(key=lambda model: value(model) is None)  # last

    def head(name: str) -> dict[str, str]:
        opposite = "asc" if direction == "desc" else "desc"
        toggled = opposite if name == sort else directions.get(name, "asc")
        url = url_for("comparison.results", job_id=job_id, split=split, sort=name, direction=toggled)
        return {"order": f"{direction}ending" if name == sort else "none", "url": url}

    return render_in_turns(
        "results.html",
        job=serializers.row(dataset),
        views=views,
        models=models,
        columns=columns,
        head=head,
        main=main,
        measured=_measured(models, main),
        split=split,
    )


@blueprint.get("/datasets/<job_id>/results.json")
@returns(DatasetResults)
def results_json(job_id: str) -> Response:
    """Return the models of a dataset, and which are on the Pareto front of the metric and the latency."""
    _, split, models, main = _results(job_id)
    return jsonify(DatasetResults(split, main, models))


@blueprint.get("/models/compare")
def show() -> str:
    """Compare the models with the ``ids``, and the predictions of two of them, ``first`` and ``second``."""
    jobs, first, second = _models()
    ids, pair = ",".join(job.id for job in jobs), in_thread(common_evaluations, first, second)
    models, by_id = _facts(jobs), {job.id: job for job in jobs}
    label_of = dict(zip(by_id, compared_models.labels(jobs), strict=True))
    names = [label_of[first.id], label_of[second.id]]
    views, best = serializers.job_views(second), best_of(jobs)
    return render_in_turns(
        "comparison.html",
        jobs=[serializers.row(job) for job in jobs],
        curves=compared_models.curves(jobs),
        models=models,
        columns=compared_models.columns(models, lambda model: serializers.job_views(by_id[model.id])),
        pair=[serializers.row(job) for job in (first, second)],
        evaluated=pair or [],
        settings=compared_models.shown_differences(jobs),
        datasets=compared_models.datasets(models),
        evaluating=[
            url_for("evaluation.show_json", job_id=job.id)
            for job in (first, second)
            if services().background["evaluation"].tasks(job.id)
        ],
        evaluate_url=url_for("comparison.evaluate", ids=ids, first=first.id, second=second.id),
        dataset_id=second.dataset_id if services().store.find(second.dataset_id) else "",
        ids=ids,
        names=names,
        overall=verdict_of(best, jobs, [*label_of.values()]) if best else (),
        views=views,
        **(parts_of(first, second, *pair, names) if pair else {}),
    )


@blueprint.post("/models/compare/evaluation")
def evaluate() -> AnyResponse:
    """Evaluate the models ``first`` and ``second`` on the ``split`` of the ``dataset``, unless they have been."""
    require_tensorflow()
    jobs, first, second = _models()
    tasks = services().background["evaluation"]
    for job in (first, second):
        check_owner(job)
        dataset, split = requested_records(job)
        check_fits(job, dataset, split)
        recipe = evaluation_recipe(job, snapshot_of(job, None), dataset, split)
        results = in_thread(evaluations.load_all, job.folder)
        is_done = any(item.name == recipe.name and not item.is_partial for item in results)
        if not is_done and tasks.task(job.id, recipe.name) is None:
            tasks.start(job, recipe, key=recipe.name)
    ids = ",".join(job.id for job in jobs)
    return redirect(
        url_for("comparison.show", ids=ids, first=first.id, second=second.id, _anchor="pair-title")
    )


@blueprint.get("/models/compare.json")
@returns(Comparison)
def show_json() -> Response:
    """Return the numbers of all models with the ``ids``, the settings that differ, and the comparison of two."""
    jobs, first, second = _models()
    common = in_thread(common_evaluations, first, second)
    pair = describe_pair(first, second, common) if common else None
    return jsonify(Comparison(_facts(jobs), compared_models.differences(jobs), pair, best_of(jobs)))


def _models() -> tuple[list[ModelJob], ModelJob, ModelJob]:
    """Return the models of a request, and the two whose predictions are compared; raises BadRequest, NotFound."""
    pair = [request.args.get(name, "") for name in ("first", "second")]
    listed = [item for value in request.args.getlist("ids") for item in value.split(",") if item]
    ids = list(dict.fromkeys(listed)) or pair
    if len(set(ids)) < 2 or len(ids) > compared_models.MAX_MODELS:
        raise BadRequest(
            f"Choose 2 to {compared_models.MAX_MODELS} different models.",
            "Set “ids” to the IDs of the models, separated by commas.",
        )
    if not all(pair):
        pair = ids[:2]
    if pair[0] == pair[1] or not set(pair) <= set(ids):
        raise BadRequest("Choose two different models to compare their predictions.")
    by_id = {job_id: services().store.get(job_id, ModelJob) for job_id in ids}
    return list(by_id.values()), by_id[pair[0]], by_id[pair[1]]


def _facts(jobs: list[ModelJob]) -> list[ModelFacts]:
    """Return the models with the metrics of their best snapshots, or the latest metrics of their trainings."""
    found = []
    for job in in_turns(jobs):
        snapshot = in_thread(job.snapshots).default
        complete = [item for item in in_thread(evaluations.load_all, job.folder) if not item.is_partial]
        measured = next((item for item in complete if item.records), None)
        state = services().scheduler.task_state(job, job.tasks[0])
        metrics = snapshot.metrics if snapshot and snapshot.metrics else state.metrics.last_values()
        epoch = snapshot.epoch if snapshot else None
        found.append(compared_models.facts(job, metrics, epoch, measured, has_snapshot=bool(snapshot)))
    return found


def _results(job_id: str) -> tuple[DatasetJob, str, list[ModelFacts], str]:
    """Return the dataset, the split, its models with their metrics on the split, and the most important metric.

    Models that were not evaluated on the split have no metrics; they are left out if they cannot be.
    """
    dataset = services().store.get(job_id, DatasetJob)
    split = choice(request.args, "split", "val", SPLITS)
    manifest, kind = dataset.manifest(), dataset.data_kind
    content_hash = manifest.content_hash if manifest else ""
    children = services().store.children(dataset)
    jobs = [job for job in children if isinstance(job, ModelJob)][:MAX_RESULTS]
    has_records = manifest is not None and split in manifest.splits and manifest.splits[split].count > 0
    models = []
    for job in in_turns(jobs):
        best, has_snapshot = in_thread(compared_models.best_evaluation, job, content_hash, split, kind)
        is_latent = services().scheduler.task_state(job, job.tasks[0]).latent
        if best is not None or (has_records and has_snapshot and not is_latent):
            measured, epoch = (best.metrics, best.epoch) if best else ({}, None)
            models.append(compared_models.facts(job, measured, epoch, best, has_snapshot=has_snapshot))
    names = dict.fromkeys(name for model in models for name in model.metrics)
    main = next((name for name in (kind.metric, "loss", *names) if name in names), "")
    points, sign = _measured(models, main), -1 if kind.lower_is_better(main) else 1
    front = pareto_front([(sign * value, milliseconds) for _, value, milliseconds in points])
    for (model, _, _), is_on_front in zip(points, front, strict=True):
        model.is_on_front = is_on_front
    return dataset, split, models, main


def _measured(models: list[ModelFacts], metric: str) -> list[tuple[ModelFacts, float, float]]:
    """Return the models that have the metric, each with its value and the milliseconds."""
    return [
        (model, model.metrics[metric], model.milliseconds)
        for model in models
        if metric in model.metrics and model.milliseconds is not None
    ]
