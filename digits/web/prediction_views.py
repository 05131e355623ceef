"""Batch predictions: the task, the results page, and the DIGITS 6 routes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob, epoch_label
from digits.data import images, predictions
from digits.data.predictions import BatchPrediction, Row
from digits.kinds import default_kind
from digits.web import serializers
from digits.web.inference_views import as_small_png
from digits.web.job_query import Page, page_of
from digits.web.job_views import check_owner
from digits.web.kind_routes import views_of
from digits.web.long_pages import render_in_turns
from digits.web.model_views import snapshot_of
from digits.web.offload import in_thread, in_turns
from digits.web.prediction_runs import (
    FindSource,
    Results,
    as_csv,
    best_of_classes,
    is_among,
    labels_of,
    results_of,
    start,
)
from digits.web.services import refuse_other_sites, require_tensorflow, services

blueprint = Blueprint("predictions", __name__)

PAGE_IMAGES = 24
POLL_SECONDS = 0.05
DEFAULT_TOP_N = 9
MAX_TOP_N = 100
SHOWN = ("all", "wrong", "unreadable")


@blueprint.post("/models/<job_id>/predictions")
@blueprint.post("/models/<job_id>/predictions.json", endpoint="create_json")
def create(job_id: str) -> AnyResponse | tuple[Response, int]:
    """Start a batch prediction, and redirect to the results page."""
    return begin(job_id)


def begin(job_id: str, find: FindSource | None = None) -> AnyResponse | tuple[Response, int]:
    """Start a batch prediction as `start` does, and redirect to the results page."""
    require_tensorflow()
    refuse_other_sites()
    job = services().store.get(job_id, ModelJob)
    about = start(job, snapshot_of(job, request.values.get("snapshot_epoch")), find)
    address = url_for("predictions.show", job_id=job.id, prediction_id=about.id)
    if request.path.endswith(".json") or request.headers.get("X-Requested-With"):
        return jsonify(id=about.id, url=address, images=about.total), 202
    return redirect(address)


@blueprint.get("/models/<job_id>/predictions/<prediction_id>")
def show(job_id: str, prediction_id: str) -> str:
    """Show the results so far: accuracy, confusion matrix, and images with their predictions."""
    job, about = _find(job_id, prediction_id)
    results, labels = results_of(job, about), labels_of(job)
    shown = request.args.get("show", "all")
    chosen = [(number, row) for number, row in enumerate(results.rows) if _is_shown(row, labels, shown)]
    page = Page.of(chosen, page_of(request.args, "page"), PAGE_IMAGES)
    kind = serializers.data_kind(job) or default_kind()
    matrix = results.matrix(labels)
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    has_pictures = views_of(kind).shows_images and (
        manifest is None or (manifest.dtype == "uint8" and manifest.channels in (1, 3))
    )
    return render_in_turns(
        "predictions.html",
        job=serializers.row(job),
        about=about,
        title=f"Epoch {epoch_label(about.epoch)}",
        state=_state(job, about, results),
        kind=kind,
        views=views_of(kind),
        labels=labels,
        tiles=_tiles(about, results, labels),
        matrix=None if matrix is None else matrix.tolist(),
        page=page,
        cards=[_card(job, about, number, row, labels, has_pictures) for number, row in page.items],
        show=shown,
        choices=_choices(results, labels),
        address=lambda number: url_for(
            "predictions.show", job_id=job.id, prediction_id=about.id, show=shown, page=number
        ),
    )


@blueprint.get("/models/<job_id>/predictions/<prediction_id>.json")
def show_json(job_id: str, prediction_id: str) -> Response:
    """Return the state, metrics and results so far as JSON."""
    job, about = _find(job_id, prediction_id)
    results, labels = results_of(job, about), labels_of(job)
    matrix = results.matrix(labels)
    return jsonify(
        id=about.id,
        source=about.title,
        epoch=about.epoch,
        **_state(job, about, results),
        images=about.total,
        unreadable=results.unreadable,
        problems=[{"line": item.line, "message": item.message} for item in about.problems],
        problem_count=about.problem_count,
        labels=labels,
        accuracy=results.accuracy(labels),
        top5_accuracy=results.accuracy(labels, 5) if len(labels) > 5 else None,
        confusion_matrix=None if matrix is None else matrix.tolist(),
        results=[_row_json(row, labels) for row in in_turns(iter(results.rows))],
    )


@blueprint.get("/models/<job_id>/predictions/<prediction_id>.csv")
def table(job_id: str, prediction_id: str) -> Response:
    job, about = _find(job_id, prediction_id)
    rows = results_of(job, about).rows
    return Response(
        in_turns(as_csv(rows, labels_of(job))),
        mimetype="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{job.id}-{about.id}.csv"'},
    )


@blueprint.get("/models/<job_id>/predictions/<prediction_id>/images/<int:number>")
def image(job_id: str, prediction_id: str, number: int) -> Response:
    """Return a PNG thumbnail of an image in the list, without metadata."""
    job, about = _find(job_id, prediction_id)
    folder = predictions.folder_of(job.folder, about.id)

    def read() -> bytes:
        listed = predictions.load_list(folder)
        if number >= len(listed):
            raise NotFound(f"There is no image {number}.", f"Choose a number from 0 to {len(listed) - 1}.")
        path = listed[number].path
        own = path.startswith(f"{folder}/")
        if own and path.endswith(predictions.ARRAY_SUFFIX):
            return _array_as_png(folder / path)
        return as_small_png(folder / path if own else roots.resolve(path, "file"))

    roots = services().roots
    try:
        data = in_thread(read)
    except (images.UnusableImage, UnreadableFile) as error:
        raise BadRequest("The file cannot be displayed as an image.", str(error)) from error
    return Response(data, mimetype="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _array_as_png(path: Path) -> bytes:
    """Return the file of an array of pixels as a PNG; raises UnusableImage."""
    try:
        return images.encode(np.load(path, allow_pickle=False), "png")
    except (OSError, ValueError, EOFError) as error:
        raise images.UnusableImage(f"the pixels cannot be read: {error}") from error


@blueprint.delete("/models/<job_id>/predictions/<prediction_id>")
def delete(job_id: str, prediction_id: str) -> Response:
    job, about = _find(job_id, prediction_id)
    check_owner(job)
    if services().predictions.state(job.id):
        services().predictions.stop(job.id)
    services().store.discard(predictions.folder_of(job.folder, about.id))
    return jsonify(deleted=about.id)


@blueprint.post("/models/images/classification/classify_many.json")
def classify_many_json() -> Response:
    """Run a batch prediction to completion, and return up to five classes per image."""
    return _all_at_once(
        lambda results, labels: {
            "classifications": {row.name: row.predictions for row in results.rows if not row.error}
        }
    )


@blueprint.route("/models/images/classification/classify_many", methods=["GET", "POST"])
@blueprint.route("/models/images/generic/infer_many", methods=["GET", "POST"])
def many() -> AnyResponse | tuple[Response, int]:
    """Start a batch prediction, and redirect to the results page."""
    return create(request.values.get("job_id", ""))


@blueprint.post("/models/images/classification/top_n")
@blueprint.post("/models/images/classification/top_n.json", endpoint="top_n_json")
def top_n() -> AnyResponse | str:
    """Run a batch prediction to completion, and show the most probable images for each class."""
    count = _top_n()
    job, about, results = run_to_completion()
    labels = labels_of(job)
    if not labels:
        raise BadRequest(f"“{job.name}” does not predict classes.", "Choose a classification model.")
    folder = predictions.folder_of(job.folder, about.id)
    best = in_thread(best_of_classes, folder, results.rows, labels, count)
    if request.path.endswith(".json"):
        return jsonify(
            top_n={
                label: [[results.rows[place].name, percent] for place, percent in found]
                for label, found in best
            },
            skipped=_skipped(results),
        )
    return render_in_turns(
        "top_n.html",
        job=serializers.row(job),
        title=f"Epoch {epoch_label(about.epoch)}",
        about=about,
        classes=[
            (
                label,
                [
                    {
                        "url": _image_url(job, about, place),
                        "name": results.rows[place].name,
                        "percent": percent,
                    }
                    for place, percent in found
                ],
            )
            for label, found in best
        ],
    )


def _top_n() -> int:
    text = request.values.get("top_n", "").strip() or str(DEFAULT_TOP_N)
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_TOP_N:
        raise BadRequest(f"“top_n” must be a number from 1 to {MAX_TOP_N}.")
    return int(text)


def _all_at_once(body: Callable[[Results, list[str]], dict[str, Any]]) -> Response:
    job, about, results = run_to_completion()
    if results.rows and results.unreadable == len(results.rows):
        raise BadRequest(f"None of the {len(results.rows):,} images can be used: {results.rows[0].error}")
    labels = labels_of(job)
    return jsonify(
        **body(results, labels),
        skipped=_skipped(results),
        problems=[{"line": item.line, "message": item.message} for item in about.problems],
        accuracy=results.accuracy(labels),
        url=url_for("predictions.show", job_id=job.id, prediction_id=about.id),
    )


def run_to_completion(
    find: FindSource | None = None, *, keeps_values: bool = False
) -> tuple[ModelJob, BatchPrediction, Results]:
    """Run a batch prediction as `start` does, and return its results when it has finished."""
    require_tensorflow()
    refuse_other_sites()
    job = services().store.get(request.values.get("job_id", ""), ModelJob)
    snapshot = snapshot_of(job, request.values.get("snapshot_epoch"))
    about = start(job, snapshot, find, keeps_values=keeps_values)
    while services().predictions.state(job.id):
        gevent.sleep(POLL_SECONDS)
    failure = services().predictions.failure(job.id)
    if failure:
        raise BadRequest(failure.message, failure.hint)
    return job, about, results_of(job, about)


def _skipped(results: Results) -> dict[str, str]:
    return {row.name: row.error for row in results.rows if row.error}


def _find(job_id: str, prediction_id: str) -> tuple[ModelJob, BatchPrediction]:
    job = services().store.get(job_id, ModelJob)
    try:
        return job, in_thread(predictions.load, job.folder, prediction_id)
    except UnreadableFile as error:
        raise NotFound(
            "These predictions do not exist.", "They may have been deleted. Run them again."
        ) from error


def _state(job: ModelJob, about: BatchPrediction, results: Results) -> dict[str, Any]:
    """Return the ``state`` (running, done, failed or incomplete), the ``progress`` in percent, and any ``error``."""
    running, failure = services().predictions.state(job.id), services().predictions.failure(job.id)
    newest = in_thread(predictions.load_all, job.folder)[:1]
    is_newest = bool(newest) and newest[0].id == about.id
    done = len(results.rows)
    if running and is_newest:
        state = "running"
    elif done == about.total:
        state = "done"
    else:
        state = "failed" if failure and is_newest else "incomplete"
    return {
        "state": state,
        "progress": round(100 * done / max(1, about.total), 1),
        "done": done,
        "error": {"message": failure.message, "hint": failure.hint}
        if failure and state == "failed"
        else None,
    }


def _tiles(about: BatchPrediction, results: Results, labels: list[str]) -> list[tuple[str, str]]:
    tiles = [("Images", f"{about.total:,}")]
    for words, top in (("Accuracy", 1), ("Top-5 accuracy", 5)):
        accuracy = results.accuracy(labels, top) if top == 1 or len(labels) > top else None
        if accuracy is not None:
            tiles.append((words, f"{100 * accuracy:.1f}%"))
    if results.unreadable:
        tiles.append(("Unreadable", f"{results.unreadable:,}"))
    return tiles


def _choices(results: Results, labels: list[str]) -> list[tuple[str, str, int]]:
    """Return the filters of the image list as tuples of value, title and number of images."""
    counts = {shown: sum(_is_shown(row, labels, shown) for row in results.rows) for shown in SHOWN}
    titles = {"all": "All", "wrong": "Wrong", "unreadable": "Unreadable"}
    return [(name, titles[name], count) for name, count in counts.items() if count]


def _is_shown(row: Row, labels: list[str], shown: str) -> bool:
    if shown == "wrong":
        return row.truth is not None and not row.error and not is_among(row, labels)
    return bool(row.error) if shown == "unreadable" else True


def _card(
    job: ModelJob, about: BatchPrediction, number: int, row: Row, labels: list[str], has_pictures: bool
) -> dict[str, Any]:
    url = _image_url(job, about, number)
    has_truth = row.truth is not None and row.truth < len(labels)
    return {
        "name": row.name,
        "url": url,
        "picture": {"url": url, "width": row.width, "height": row.height} if has_pictures else None,
        "predictions": row.predictions,
        "error": row.error,
        "truth": labels[row.truth] if has_truth and row.truth is not None else "",
        "is_right": has_truth and not row.error and is_among(row, labels),
    }


def _image_url(job: ModelJob, about: BatchPrediction, number: int) -> str:
    return url_for("predictions.image", job_id=job.id, prediction_id=about.id, number=number)


def _row_json(row: Row, labels: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"image": row.name}
    if row.truth is not None and row.truth < len(labels):
        body["true_class"] = labels[row.truth]
    return body | ({"error": row.error} if row.error else {"predictions": row.predictions})
