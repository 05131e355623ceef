"""The results of all models of a dataset on the same records, to select one of them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for

from digits.core import snapshot_list
from digits.core.model_job import ModelJob, epoch_label
from digits.core.splits import SPLITS
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import pareto_front
from digits.data.models.evaluation import Evaluation
from digits.kinds import Kind
from digits.kinds.forms.request_fields import choice
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.jobs import serializers
from digits.web.offload import in_thread, in_turns
from digits.web.resources.evaluations import DatasetResults, ModelResult, ProductionName
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import returns
from digits.web.services import services

blueprint = Blueprint("results", __name__)

MAX_MODELS = 1000
OTHER_COLUMNS = ("name", "milliseconds", "parameters", "seconds")


@blueprint.get("/datasets/<job_id>/results")
def show(job_id: str) -> str:
    """Show the models of a dataset: metrics, latency, size and training time, sorted by one of them."""
    dataset, split, rows, metrics, main = _results(job_id)
    sort = request.args.get("sort", main)
    first = _first_direction(sort, dataset.data_kind)
    is_descending = choice(request.args, "direction", first, ("asc", "desc")) == "desc"
    _sort(rows, sort, is_descending=is_descending)
    return render_in_turns(
        "results.html",
        job=serializers.row(dataset),
        views=views_of(dataset.data_kind),
        rows=rows,
        metrics=metrics,
        heads={
            name: {
                "order": ("descending" if is_descending else "ascending") if name == sort else "none",
                "url": url_for(
                    "results.show",
                    job_id=job_id,
                    split=split,
                    sort=name,
                    direction=("asc" if is_descending else "desc")
                    if name == sort
                    else _first_direction(name, dataset.data_kind),
                ),
            }
            for name in (*metrics, *OTHER_COLUMNS)
        },
        main=main,
        measured=_measured(rows, main),
        split=split,
    )


@blueprint.get("/datasets/<job_id>/results.json")
@returns(DatasetResults)
def show_json(job_id: str) -> Response:
    """Return the models of a dataset, and which are on the Pareto front of the metric and the latency."""
    _, split, rows, _, main = _results(job_id)
    return jsonify(DatasetResults(split, main, rows))


def _results(job_id: str) -> tuple[DatasetJob, str, list[ModelResult], list[str], str]:
    """Return the dataset, the split, a row per model, the names of the metrics, and the most important one.

    Models that were not evaluated on the split have rows without metrics if they could be.
    """
    dataset = services().store.get(job_id, DatasetJob)
    split = choice(request.args, "split", "val", SPLITS)
    manifest = dataset.manifest()
    content_hash = manifest.content_hash if manifest else ""
    children = services().store.children(dataset)
    models = [job for job in children if isinstance(job, ModelJob)][:MAX_MODELS]
    has_records = manifest is not None and split in manifest.splits and manifest.splits[split].count > 0
    rows = []
    for job in in_turns(iter(models)):
        best, has_snapshot = in_thread(_best, job, content_hash, split, dataset.data_kind)
        is_latent = services().scheduler.task_state(job, job.tasks[0]).latent
        if best is not None or (has_records and has_snapshot and not is_latent):
            rows.append(_row(job, best, has_snapshot=has_snapshot))
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    main = next(
        (name for name in (dataset.data_kind.metric, "loss") if name in metrics), *metrics[:1] or [""]
    )
    _mark_front(rows, main, dataset.data_kind)
    return dataset, split, rows, metrics, main


def _best(job: ModelJob, content_hash: str, split: str, kind: Kind) -> tuple[Evaluation | None, bool]:
    """Return the complete evaluation with the best metric of the ``kind`` on a split of the dataset, or None.

    Also return whether its snapshot exists; without an evaluation, whether there is any snapshot. Reads files.
    """
    complete = [
        item
        for item in evaluations.load_all(job.folder)
        if (item.content_hash, item.split) == (content_hash, split) and not item.is_partial
    ]
    sign = -1 if kind.lower_is_better(kind.metric) else 1
    best = max(complete, key=lambda item: sign * item.metrics.get(kind.metric, 0.0), default=None)
    if best is None:
        return None, snapshot_list.newest_name(job.folder) is not None
    return best, snapshot_list.exists(job.folder, best.snapshot)


def _row(job: ModelJob, result: Evaluation | None, *, has_snapshot: bool) -> ModelResult:
    state = services().scheduler.task_state(job, job.tasks[0])
    return ModelResult(
        id=job.id,
        name=job.name,
        url=url_for("model_page.show", job_id=job.id),
        evaluation_url=url_for("evaluation.show", job_id=job.id, name=result.name) if result else None,
        is_evaluating=services().background["evaluation"].state(job.id) is not None,
        epoch=epoch_label(result.epoch) if result else None,
        snapshot_epoch=result.epoch if result else None,
        has_snapshot=has_snapshot,
        production=[
            ProductionName(name, epoch_label(found.epoch))
            for name, found in services().production.of(job.id).items()
        ],
        metrics=result.metrics if result else {},
        milliseconds=result.milliseconds if result else None,
        parameters=state.parameters,
        seconds=job.elapsed,
    )


def _measured(rows: list[ModelResult], metric: str) -> list[tuple[ModelResult, float, float]]:
    """Return the models that have the metric, each with its value and the milliseconds."""
    return [
        (row, row.metrics[metric], row.milliseconds)
        for row in rows
        if metric in row.metrics and row.milliseconds is not None
    ]


def _mark_front(rows: list[ModelResult], metric: str, kind: Kind) -> None:
    measured = _measured(rows, metric)
    sign = -1 if kind.lower_is_better(metric) else 1
    points = [(sign * value, milliseconds) for _, value, milliseconds in measured]
    for (row, _, _), is_on_front in zip(measured, pareto_front(points), strict=True):
        row.is_on_front = is_on_front


def _sort(rows: list[ModelResult], column: str, *, is_descending: bool) -> None:
    """Sort ``rows`` by a column; those without a value are last."""
    rows.sort(key=lambda row: _value(row, column) or 0, reverse=is_descending)
    rows.sort(key=lambda row: _value(row, column) is None)


def _value(row: ModelResult, column: str) -> Any:
    value = getattr(row, column) if column in OTHER_COLUMNS else row.metrics.get(column)
    return value.casefold() if isinstance(value, str) else value


def _first_direction(column: str, kind: Kind) -> str:
    return "asc" if column in OTHER_COLUMNS or kind.lower_is_better(column) else "desc"
