"""The evaluations of models: a page for each, its JSON, and the panel on the page of a model."""

from __future__ import annotations

from typing import Any, cast, get_args
from urllib.parse import urlencode

import msgspec
import numpy as np
from flask import Blueprint, Response, jsonify, redirect, request, url_for
from numpy.typing import NDArray
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import Split
from digits.core.status import Status
from digits.data import evaluation as evaluations
from digits.data.evaluation import Evaluation
from digits.data.manifest import Manifest
from digits.data.record_index import IndexCache
from digits.kinds import default_kind
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, format_number
from digits.web import evaluation_charts, serializers
from digits.web.evaluation_panel import state_of, title_of
from digits.web.evaluation_runs import evaluation_recipe
from digits.web.explore_views import SPLIT_TITLES, GalleryItem, gallery_items
from digits.web.job_views import check_owner
from digits.web.kind_routes import views_of
from digits.web.long_pages import render_in_turns
from digits.web.model_views import snapshot_of
from digits.web.offload import in_thread
from digits.web.record_selection import Place
from digits.web.record_views import RecordImages, shown_size
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("evaluation", __name__)

# More classes do not fit on a page: the most confused ones are shown.
MAX_MATRIX = 40
# Detections with lower scores are not drawn.
MIN_SCORE = 0.3
MAX_POINTS = 2000
TITLES = {
    "top5_accuracy": "Top-5 accuracy",
    "f1_macro": "F1, mean of classes",
    "log_loss": "Log loss",
    "calibration_error": "Calibration error",
    "exact_match": "All labels right",
    "accuracy": "Accuracy",
    "best_accuracy": "Best accuracy",
    "pixel_accuracy": "Pixel accuracy",
}
IN_PERCENT = {*TITLES} - {"log_loss"}
ORDERS = {"classes": "Class order", "errors": "Most confused first"}


@blueprint.post("/models/<job_id>/evaluation")
def start(job_id: str) -> AnyResponse | tuple[Response, int]:
    """Evaluate the snapshot of ``snapshot_epoch``, by default the best one, on a ``split`` of a dataset.

    This is the validation split of the model's own dataset by default, or that of ``dataset``.
    """
    require_tensorflow()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    dataset = services().store.get(request.form.get("dataset") or job.dataset_id, DatasetJob)
    if dataset.status is not Status.DONE:
        raise BadRequest(f"“{dataset.name}” cannot be used: it is {dataset.status.title}, not Done.")
    split = request.form.get("split", "val")
    if split not in get_args(Split) or split not in _manifest(dataset).splits:
        raise BadRequest(f"“{dataset.name}” has no split called “{split[:20]}”.")
    own = serializers.data_kind(job)
    if own is not None and own.name != dataset.data_kind.name:
        raise BadRequest(
            f"“{dataset.name}” is a dataset for {dataset.data_kind.title.lower()}, "
            f"and “{job.name}” a model for {own.title.lower()}.",
            "Choose a dataset of the same kind.",
        )
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch"))
    if services().evaluations.state(job.id):
        raise NotReady(f"“{job.name}” is being evaluated.", "Try again when the evaluation has finished.")
    services().evaluations.start(job, evaluation_recipe(job, snapshot, dataset, cast(Split, split)))
    if request.accept_mimetypes.best == "application/json" or request.headers.get("X-Requested-With"):
        return jsonify(state_of(job)), 202
    return redirect(url_for("models.show", job_id=job.id, _anchor="evaluation"))


@blueprint.get("/models/<job_id>/evaluation.json")
def show_json(job_id: str) -> Response:
    """Return the state of the current evaluation, and all results, each with the confusion matrix of a classifier."""
    job = services().store.get(job_id, ModelJob)
    results = in_thread(evaluations.load_all, job.folder)
    asked = request.args.get("name", "")
    chosen = [_find(results, asked)] if asked else results
    return jsonify({**state_of(job), "evaluations": [in_thread(_as_json, job, item) for item in chosen]})


@blueprint.get("/models/<job_id>/evaluation")
def show(job_id: str) -> str:
    """Show an evaluation: the one with the ``name``, by default that of the latest epoch."""
    job = services().store.get(job_id, ModelJob)
    results = in_thread(evaluations.load_all, job.folder)
    result = _find(results, request.args.get("name", ""))
    dataset = services().store.find(result.dataset_id)
    kind = dataset.data_kind if isinstance(dataset, DatasetJob) else serializers.data_kind(job)
    views = views_of(kind or default_kind())
    manifest = dataset.manifest() if isinstance(dataset, DatasetJob) else None
    is_same = manifest is not None and manifest.content_hash == result.content_hash
    options = request.args.to_dict()
    evaluated = {"job_id": result.dataset_id, "evaluation": f"{job.id}/{result.name}", "db": result.split}
    explore = f"{url_for('explore.show', kind=kind or default_kind())}?{urlencode(evaluated)}"
    return render_in_turns(
        "evaluation.html",
        job=serializers.row(job),
        result=result,
        results=[(item.name, title_of(item, job)) for item in results],
        title=title_of(result, job),
        split_title=SPLIT_TITLES[result.split],
        dataset=serializers.row(dataset) if dataset else None,
        views=views,
        metrics=[
            describe_metric(views, name, value) for name, value in result.metrics.items() if "/" not in name
        ],
        links=_links(job, result, options),
        size=shown_size(dataset, manifest) if isinstance(dataset, DatasetJob) and manifest else (1, 1),
        worst=_worst(job, result, dataset, manifest)
        if is_same and manifest and isinstance(dataset, DatasetJob)
        else [],
        **in_thread(_parts, job, result, manifest if is_same else None, explore, options),
    )


def describe_metric(views: Views[Any], name: str, value: float) -> tuple[str, str]:
    """Return the title of a metric, and its value for display."""
    title = TITLES.get(name)
    if title is not None and name in IN_PERCENT:
        return title, f"{100 * value:.2f}%"
    for chart in views.charts:
        if name in chart.metrics:
            word = chart.word(name)
            return title or word[0].upper() + word[1:], chart.format(value)
    return title or name.replace("_", " ").capitalize(), format_number(value)


def _find(results: list[Evaluation], name: str) -> Evaluation:
    found = next((item for item in results if not name or item.name == name), None)
    if found is None:
        raise NotFound(
            "This model has no such evaluation." if name else "This model has not been evaluated.",
            "Start an evaluation on the page of the model.",
        )
    return found


def _manifest(dataset: DatasetJob) -> Manifest:
    manifest = dataset.manifest()
    if manifest is None:
        raise BadRequest(f"“{dataset.name}” is damaged.", "Clone it to create it again.")
    return manifest


def _as_json(job: ModelJob, result: Evaluation) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(result)
    matrix = _matrix(job, result)
    return body | ({} if matrix is None else {"confusion_matrix": matrix.tolist()})


def _matrix(job: ModelJob, result: Evaluation) -> NDArray[np.int64] | None:
    """Return the number of records of each true class, by row, and predicted class; None for other kinds."""
    try:
        predictions = evaluations.load_array(job.folder, result.name, evaluations.PREDICTIONS_FILE)
        targets = evaluations.load_array(job.folder, result.name, evaluations.TARGETS_FILE)
    except UnreadableFile:
        return None
    if targets.dtype.kind != "i" or targets.ndim != 1:
        return None
    classes = predictions.shape[1]
    pairs = targets * classes + predictions.argmax(axis=1)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def _parts(
    job: ModelJob, result: Evaluation, manifest: Manifest | None, explore: str, options: dict[str, str]
) -> dict[str, Any]:
    """Return the parts of the page that depend on the predictions; reads files.

    ``manifest`` is None if the dataset has changed. ``explore`` is the URL of all its records, sorted by error.
    """
    details = result.details
    names = manifest.target.names if manifest else []
    parts: dict[str, Any] = {
        "names": names,
        "worst_url": explore,
        "matrix": None,
        "charts": evaluation_charts.of(details, names),
        "details": details,
        "is_current": manifest is not None,
    }
    if manifest is None:
        return parts
    matrix = _matrix(job, result)
    if matrix is not None:
        parts["matrix"] = _shown_matrix(matrix, names, options, explore)
    points = _points(job, result, manifest)
    if points:
        parts["charts"] = [*evaluation_charts.scatters(points, names), *parts["charts"]]
    return parts


def _links(job: ModelJob, result: Evaluation, options: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the links that choose the order and the unit of the confusion matrix."""
    order, unit = options.get("order", "classes"), options.get("unit", "counts")

    def url(**changes: str) -> str:
        arguments: dict[str, Any] = {"name": result.name, "order": order, "unit": unit} | changes
        return url_for("evaluation.show", job_id=job.id, **arguments, _anchor="matrix")

    units = {"counts": "Counts", "percent": "Percent of the true class"}
    return {
        "order": [
            {"words": words, "url": url(order=key), "on": key == order} for key, words in ORDERS.items()
        ],
        "unit": [{"words": words, "url": url(unit=key), "on": key == unit} for key, words in units.items()],
    }


def _shown_matrix(
    matrix: NDArray[np.int64], names: list[str], options: dict[str, str], explore: str
) -> dict[str, Any]:
    """Return the rows of the confusion matrix, at most `MAX_MATRIX`, with links to the images of each cell."""
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    confused = np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")
    chosen = confused[:MAX_MATRIX] if len(names) > MAX_MATRIX else np.arange(len(names))
    if options.get("order") != "errors":
        chosen = np.sort(chosen)
    else:
        chosen = confused[: len(chosen)]
    in_percent = options.get("unit") == "percent"
    totals = matrix.sum(axis=1)
    rows = []
    for true in chosen.tolist():
        total = int(totals[true])
        cells = []
        for predicted in chosen.tolist():
            count = int(matrix[true, predicted])
            share = count / total if total else 0.0
            cells.append(
                {
                    "count": count,
                    "text": (f"{100 * share:.0f}" if in_percent else f"{count:,}") if count else "",
                    "share": round(share, 3),
                    "is_right": true == predicted,
                    "predicted": names[predicted],
                    "url": f"{explore}&label={true}&predicted={predicted}" if count else "",
                }
            )
        rows.append({"name": names[true], "cells": cells, "total": total})
    pairs = np.argsort(-wrong.ravel(), kind="stable")[:10]
    return {
        "columns": [names[place] for place in chosen.tolist()],
        "rows": rows,
        "hidden": len(names) - len(chosen),
        "in_percent": in_percent,
        "confused": [
            {
                "true": names[pair // len(names)],
                "predicted": names[pair % len(names)],
                "count": int(wrong.flat[pair]),
                "url": f"{explore}&label={pair // len(names)}&predicted={pair % len(names)}",
            }
            for pair in pairs.tolist()
            if wrong.flat[pair]
        ],
    }


def _worst(
    job: ModelJob, result: Evaluation, dataset: DatasetJob, manifest: Manifest
) -> list[dict[str, Any]]:
    """Return the records with the largest errors, each as in the gallery, with its prediction."""
    pictures = RecordImages(dataset, manifest)
    return in_thread(_load_worst, job, result, dataset, manifest, pictures, services().record_indexes)


def _load_worst(
    job: ModelJob,
    result: Evaluation,
    dataset: DatasetJob,
    manifest: Manifest,
    pictures: RecordImages,
    indexes: IndexCache,
) -> list[dict[str, Any]]:
    try:
        errors = evaluations.load_array(job.folder, result.name, evaluations.ERRORS_FILE)
        order = np.argsort(-errors, kind="stable")[: evaluations.WORST]
        known = [int(place) for place in order if np.isfinite(errors[place])]
        places = [Place(result.split, number) for number in known]
        items = gallery_items(dataset, manifest, pictures, places, indexes)
    except UnreadableFile:
        return []
    described = _describe_predictions(job, result, manifest, known)
    predicted = evaluations.load_worst(job.folder, result.name)
    return [
        {
            "item": item,
            "words": words or item.label,
            "prediction": _draw(predicted.get(str(item.number)), item, manifest),
        }
        for item, words in zip(items, described, strict=True)
    ]


def _draw(predicted: Any, item: GalleryItem, manifest: Manifest) -> dict[str, Any] | None:
    """Return how to draw a prediction, for the macro ``drawn``; None for one that is not drawn."""
    if predicted is None:
        return None
    if manifest.target.spatial == "image":
        return {"url": predicted["image"]}
    if manifest.target.spatial == "mask":
        return {"url": item.thumbnail, "mask": predicted["mask"]}
    colors = {each["label"]: each["color"] for each in predicted}
    rows = [(*each["box"], each["label"], each["score"]) for each in predicted if each["score"] >= MIN_SCORE]
    boxes = [
        {
            "left": 100 * left / manifest.width,
            "top": 100 * top / manifest.height,
            "width": 100 * (right - left) / manifest.width,
            "height": 100 * (bottom - top) / manifest.height,
            "name": f"{label} {100 * score:.0f}%",
            "color": colors[label],
        }
        for left, top, right, bottom, label, score in rows
    ]
    return {"url": item.thumbnail, "boxes": boxes}


def _describe_predictions(
    job: ModelJob, result: Evaluation, manifest: Manifest, places: list[int]
) -> list[str]:
    try:
        predictions = evaluations.load_array(job.folder, result.name, evaluations.PREDICTIONS_FILE)
        targets = evaluations.load_array(job.folder, result.name, evaluations.TARGETS_FILE)
    except UnreadableFile:
        return [""] * len(places)
    target = manifest.target
    if target.classes:
        return [
            f"{target.names[targets[place]]}, predicted {target.names[predictions[place].argmax()]} "
            f"({100 * predictions[place].max():.0f}%)"
            for place in places
        ]
    shown = predictions >= 0.5 if target.multi_hot else predictions
    return [
        f"{target.describe(targets[place])}; predicted {target.describe(shown[place])}" for place in places
    ]


def _points(job: ModelJob, result: Evaluation, manifest: Manifest) -> list[list[tuple[float, float]]]:
    """Return the true and the predicted value of up to `MAX_POINTS` records, for each number of a regression."""
    if not result.details.get("numbers"):
        return []
    try:
        predictions = evaluations.load_array(job.folder, result.name, evaluations.PREDICTIONS_FILE)
        targets = evaluations.load_array(job.folder, result.name, evaluations.TARGETS_FILE)
    except UnreadableFile:
        return []
    places = np.linspace(0, len(targets) - 1, min(len(targets), MAX_POINTS)).astype(int)
    return [
        list(zip(targets[places, column].tolist(), predictions[places, column].tolist(), strict=True))
        for column in range(targets.shape[1])
    ]
