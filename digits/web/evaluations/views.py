"""The evaluations of models: a page for each, its JSON, and the panel on the page of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, jsonify, request, url_for
from msgspec import UNSET
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import NotFound, NotReady
from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds import default_kind
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.evaluations import charts as evaluation_charts
from digits.web.evaluations.choices import check_fits, requested_records
from digits.web.evaluations.model_result import result_of, words_of
from digits.web.evaluations.panel import dataset_of, panel_state, records_url, title_of
from digits.web.evaluations.parts import (
    NO_OBJECT,
    chosen_threshold,
    excluded_words,
    load_matrix,
    load_points,
    metric_rows,
    shown_detections,
    shown_matrix,
    worst_records,
)
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.models.snapshots import snapshot_of
from digits.web.offload import in_thread
from digits.web.records.images import shown_size
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import EvaluationResult, Evaluations, EvaluationState
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import respond, returns, twin
from digits.web.services import require_tensorflow, services
from digits.web.services.background_recipes import evaluation_recipe

blueprint = Blueprint("evaluation", __name__)

ORDERS = {"classes": "Class order", "errors": "Most confused first"}


@twin(blueprint, "/models/<job_id>/evaluation", EvaluationState)
def start(job_id: str) -> AnyResponse:
    """Evaluate the snapshot of ``snapshot_epoch``, by default the best one, on a ``split`` of a dataset.

    This is the validation split of the model's own dataset by default, or that of ``dataset``. The evaluations of a
    model run one after another. With ``back=results``, redirects to the results of the dataset.
    """
    require_tensorflow()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    dataset, split = requested_records(job)
    check_fits(job, dataset, split)
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch"))
    recipe = evaluation_recipe(job, snapshot, dataset, split)
    task = services().background["evaluation"].task(job.id, recipe.name)
    if task is not None and not task.is_stopping:
        raise NotReady(
            f"An evaluation of this snapshot of “{job.name}” on these records is already running or waiting.",
            "Try again when the evaluation has finished.",
        )
    services().background["evaluation"].start(job, recipe, key=recipe.name)
    if request.form.get("back") == "results":
        page = url_for("results.show", job_id=dataset.id, split=split)
        return respond(lambda: panel_state(job), created=page, status=202)
    return _started_or_stopped(job)


@twin(blueprint, "/models/<job_id>/evaluation/stop", EvaluationState)
def stop(job_id: str) -> AnyResponse:
    """Stop the evaluation with the ``name``, by default all of the model; the results so far are kept."""
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    name = request.form.get("name", "")
    tasks = services().background["evaluation"]
    if not (tasks.task(job.id, name) if name else tasks.tasks(job.id)):
        raise NotReady(f"No such evaluation of “{job.name}” is running.", "It may have finished.")
    tasks.stop(job.id, name or None)
    return _started_or_stopped(job)


def _started_or_stopped(job: ModelJob) -> AnyResponse:
    page = url_for("model_page.show", job_id=job.id, _anchor="evaluation")
    return respond(lambda: panel_state(job), created=page, status=202)


@blueprint.get("/models/<job_id>/evaluation.json")
@returns(Evaluations)
def show_json(job_id: str) -> Response:
    """Return the state of the current evaluation, and all results, each with the confusion matrix of a classifier.

    The ``verdict`` is the result of the training in words.
    """
    job = services().store.get(job_id, ModelJob)
    results = in_thread(evaluations.load_all, job.folder)
    name = request.args.get("name", "")
    selected = [_find(results, name)] if name else results
    evaluated = [in_thread(_with_matrix, job, item) for item in selected]
    trained = result_of(job)
    verdict = words_of(trained, serializers.job_views(job)) if trained else ""
    return jsonify(describe(Evaluations, panel_state(job), evaluations=evaluated, verdict=verdict))


@blueprint.get("/models/<job_id>/evaluation")
def show(job_id: str) -> str:
    """Show an evaluation: the one with the ``name``, by default that of the latest epoch."""
    job = services().store.get(job_id, ModelJob)
    results = in_thread(evaluations.load_all, job.folder)
    result = _find(results, request.args.get("name", ""))
    dataset = services().store.find(result.dataset_id)
    kind = dataset.data_kind if isinstance(dataset, DatasetJob) else serializers.data_kind(job)
    views = views_of(kind or default_kind())
    current = dataset_of(result)
    options = request.args.to_dict()
    explore = records_url(job, result, kind or default_kind(), result.dataset_id)
    return render_in_turns(
        "evaluation.html",
        job=serializers.row(job),
        result=result,
        results=[(item.name, title_of(item, job)) for item in results],
        title=title_of(result, job),
        excluded=excluded_words(result, views),
        split_title=SPLIT_TITLES[result.split],
        dataset=serializers.row(dataset) if dataset else None,
        views=views,
        metrics=metric_rows(result, views),
        links=_links(job, result, options),
        size=shown_size(*current) if current else (1, 1),
        worst=worst_records(job, result, *current, threshold=chosen_threshold(result, options))
        if current
        else [],
        **in_thread(_parts, job, result, current[1] if current else None, explore, options, views.record),
    )


def _find(results: list[Evaluation], name: str) -> Evaluation:
    match = next((item for item in results if not name or item.name == name), None)
    if match is None:
        raise NotFound(
            "This model has no such evaluation." if name else "This model has not been evaluated.",
            "Start an evaluation on the page of the model.",
        )
    return match


def _with_matrix(job: ModelJob, result: Evaluation) -> EvaluationResult:
    matrix = load_matrix(job, result)
    return describe(EvaluationResult, result, confusion_matrix=UNSET if matrix is None else matrix.tolist())


def _parts(
    job: ModelJob,
    result: Evaluation,
    manifest: Manifest | None,
    explore: str,
    options: dict[str, str],
    record: str,
) -> dict[str, Any]:
    """Return the parts of the page that depend on the predictions; reads files.

    ``manifest`` is None if the dataset has changed. ``explore`` is the URL of all its records, sorted by error.
    """
    details = result.details
    names = result.names(manifest.target.names) if manifest else []
    threshold = chosen_threshold(result, options)
    parts: dict[str, Any] = {
        "names": names,
        "worst_url": explore,
        "matrix": None,
        "detections": None,
        "missed": NO_OBJECT,
        "legend": manifest.target.legend() if manifest else [],
        "charts": evaluation_charts.of(details, record),
        "details": details,
        "is_current": manifest is not None,
    }
    if manifest is None:
        return parts
    matrix = load_matrix(job, result)
    if matrix is not None:
        # Explore filters by the classes of the dataset.
        parts["matrix"] = shown_matrix(matrix, names, options, "" if result.classes else explore)
    if "pixels" in details:
        parts["matrix"] = shown_matrix(np.array(details["pixels"]), names, {"unit": "percent", **options}, "")
    if "detections" in details:
        parts["detections"] = detections = shown_detections(details, threshold)
        parts["details"] = {**details, "classes": detections["classes"]}
        parts["matrix"] = shown_matrix(detections["matrix"], [*names, NO_OBJECT], options, "")
    points = load_points(job, result, manifest)
    if points:
        parts["charts"] = [*evaluation_charts.scatters(points, names, record), *parts["charts"]]
    return parts


def _links(job: ModelJob, result: Evaluation, options: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the links that choose the order and the unit of the confusion matrix."""
    # Pixels are too many to compare their counts.
    order = options.get("order", "classes")
    unit = options.get("unit", "percent" if "pixels" in result.details else "counts")

    def url(**changes: str) -> str:
        arguments: dict[str, Any] = {"name": result.name, "order": order, "unit": unit} | changes
        if "threshold" in options:
            arguments["threshold"] = options["threshold"]
        return url_for("evaluation.show", job_id=job.id, **arguments, _anchor="matrix")

    units = {"counts": "Counts", "percent": "Percent of the true class"}
    return {
        "order": [
            {"words": words, "url": url(order=key), "on": key == order} for key, words in ORDERS.items()
        ],
        "unit": [{"words": words, "url": url(unit=key), "on": key == unit} for key, words in units.items()],
    }
