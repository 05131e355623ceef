"""Batch predictions: the tasks, and the pages of their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flask import Response, jsonify, request, url_for
from msgspec.structs import asdict
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import Predict
from digits.data.images import images
from digits.data.models import predictions as files
from digits.data.models.predictions import BatchPrediction, Row
from digits.kinds.decoding import SmallArray, SmallImage
from digits.kinds.forms.request_fields import choice, whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.activities import Activity, error_of
from digits.web.jobs.query import Page, page_of
from digits.web.predictions import record_inputs
from digits.web.predictions.runs import (
    FindSource,
    Results,
    as_csv,
    best_of_classes,
    labels_of,
    prepare,
    results_of,
)
from digits.web.records.confusion import confusion
from digits.web.request_limits import limited
from digits.web.resources.actions import Deleted
from digits.web.resources.encoding import as_json, describe
from digits.web.resources.predictions import Batch, Batches, BatchState
from digits.web.responses.representation import (
    json_with_list,
    render_in_turns,
    respond,
    returns,
    stream,
    twin,
)
from digits.web.services import services

PAGE_IMAGES = 24
MAX_PARTS = 16
PAGE_CLASSES = 20
TOP = "top"


def _recipe(job: ModelJob) -> Predict:
    """Start a batch prediction, and redirect to the results page, with ``top_n`` if ``show`` is ``top``."""
    _shown()
    return prepare(job, inputs_of_kind(job))


def _shown() -> dict[str, Any]:
    """Return the arguments of the results page in a form; raises BadRequest."""
    return {"show": TOP, "top_n": limited("top_n")} if request.form.get("show") == TOP else {}


def _result(job: ModelJob) -> dict[str, Any]:
    return {"predictions": in_thread(files.load_all, job.folder)}


def _started(job: ModelJob, recipe: Predict) -> dict[str, Any]:
    about = in_thread(files.load, job.folder, _id_of(recipe))
    return {"id": about.id, "url": _page(job, recipe), "images": about.total}


def _page(job: ModelJob, recipe: Predict | None) -> str:
    if recipe is None:
        return url_for("model_page.show", job_id=job.id, _anchor="predictions")
    return url_for("predictions.show", job_id=job.id, prediction_id=_id_of(recipe), **_shown())


def _id_of(recipe: Predict) -> str:
    return Path(recipe.target).name


predictions = Activity(
    name="prediction",
    path="predictions",
    noun="prediction",
    title="Predictions",
    job_type=ModelJob,
    task_folder="predict",
    pool="prediction",
    results=files.FOLDER,
    recipe=_recipe,
    key=_id_of,
    resource=Batches,
    result=_result,
    started=_started,
    template="_predictions.html",
    page=_page,
    is_open=True,
)
blueprint = predictions.blueprint


@blueprint.get("/models/<job_id>/predictions/<prediction_id>")
def show(job_id: str, prediction_id: str) -> str:
    """Show the results so far: accuracy, confusion matrix, and images with their predictions.

    These are all images, the ``wrong`` or ``unreadable`` ones, or the ``top_n`` most probable ones for each class.
    """
    job, about = _find(job_id, prediction_id)
    results, labels = results_of(job, about), labels_of(job)
    selection = choice(request.args, "show", "all", ("all", "wrong", "unreadable", TOP))
    top = limited("top_n") if selection == TOP and labels else 0
    number = page_of(request.args, "page")
    places: dict[str, Sequence[int]] = {"wrong": results.sums.wrong, "unreadable": results.sums.unreadable}
    page = Page.of(places.get(selection, range(len(results))), number, PAGE_IMAGES)
    classes = Page.of(range(len(labels)), number, PAGE_CLASSES)
    kind = serializers.kind_of(job)
    matrix = results.sums.matrix()
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    views = views_of(kind)
    parts = manifest.channels // data.kind_recipe.channels if manifest and isinstance(data, DatasetJob) else 1
    # Stacked arrays are not image files.
    has_pictures = views.shows_images and (
        manifest is None or (manifest.dtype == "uint8" and (views.has_inputs or manifest.channels in (1, 3)))
    )
    best = in_thread(best_of_classes, results, classes.items, top) if top else []
    return render_in_turns(
        "predictions.html",
        job=serializers.row(job),
        about=about,
        state=_state(job, about, results),
        kind=kind,
        views=views,
        labels=labels,
        results=results,
        matrix=None if matrix is None else confusion(matrix, labels),
        page=classes if top else page,
        cards=list(zip(page.items, results.read(page.items), strict=True)),
        parts=parts if has_pictures else 0,
        top=top,
        best=best,
        names=names_of(results, best),
        show=selection,
        address=lambda number: url_for(
            "predictions.show",
            job_id=job.id,
            prediction_id=about.id,
            show=selection,
            top_n=top or None,
            page=number,
        ),
    )


@blueprint.get("/models/<job_id>/predictions/<prediction_id>.json")
@returns(Batch)
def show_one_json(job_id: str, prediction_id: str) -> Response:
    """Return the state, metrics and results so far as JSON."""
    job, about = _find(job_id, prediction_id)
    results, labels = results_of(job, about), labels_of(job)
    matrix = results.sums.matrix()
    body = describe(
        Batch,
        about,
        **asdict(_state(job, about, results)),
        source=about.title,
        images=about.total,
        unreadable=len(results.sums.unreadable),
        labels=labels,
        accuracy=results.sums.accuracy(),
        top5_accuracy=results.top5_accuracy,
        confusion_matrix=None if matrix is None else matrix.tolist(),
    )
    rows = (_row_json(row, labels) for row in results.read())
    return Response(stream(json_with_list(as_json(body), "results", rows)), mimetype="application/json")


@blueprint.get("/models/<job_id>/predictions/<prediction_id>.csv")
def table(job_id: str, prediction_id: str) -> Response:
    job, about = _find(job_id, prediction_id)
    return Response(
        stream(as_csv(results_of(job, about).read(), labels_of(job))),
        mimetype="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{job.id}-{about.id}.csv"'},
    )


@blueprint.get("/models/<job_id>/predictions/<prediction_id>/images/<int:number>")
def image(job_id: str, prediction_id: str, number: int) -> Response:
    """Return a PNG thumbnail of an image in the list, or of a ``part`` of stacked ones, without metadata."""
    job, about = _find(job_id, prediction_id)
    folder = files.folder_of(job.folder, about.id)
    part = whole(request.args, "part", 0, 0, MAX_PARTS - 1)

    def find() -> SmallImage | SmallArray:
        listed = files.load_list(folder)
        if number >= len(listed):
            raise NotFound(f"There is no image {number}.", f"Choose a number from 0 to {len(listed) - 1}.")
        parts = listed[number].paths
        path = parts[min(part, len(parts) - 1)]
        own = path.startswith(f"{folder}/")
        if own and path.endswith(files.ARRAY_SUFFIX):
            return SmallArray(path, str(folder))
        return SmallImage(path if own else str(roots.resolve(path, "file")))

    roots = services().roots
    try:
        data = services().decoder.run(in_thread(find)).data
    except (images.UnusableImage, UnreadableFile) as error:
        raise BadRequest("The file cannot be displayed as an image.", str(error)) from error
    return Response(data, mimetype="image/png", headers={"Cache-Control": "private, max-age=3600"})


@twin(blueprint, "/models/<job_id>/predictions/<prediction_id>/stop", BatchState)
def stop_one(job_id: str, prediction_id: str) -> AnyResponse:
    """Stop a batch prediction; the results so far are kept."""
    job, about = _find(job_id, prediction_id)
    check_owner(job)
    if not predictions.tasks.task(job.id, about.id):
        raise NotReady("These predictions are not running.", "They may have finished.")
    predictions.tasks.stop(job.id, about.id)
    page = url_for("predictions.show", job_id=job.id, prediction_id=about.id)
    return respond(lambda: _state(job, about, results_of(job, about)), created=page, status=202)


@blueprint.delete("/models/<job_id>/predictions/<prediction_id>")
@returns(Deleted)
def delete(job_id: str, prediction_id: str) -> Response:
    """Delete the results of a batch prediction, and stop it if it is waiting or running."""
    job, about = _find(job_id, prediction_id)
    check_owner(job)
    predictions.tasks.stop(job.id, about.id)
    services().store.discard(files.folder_of(job.folder, about.id))
    return jsonify(Deleted(about.id))


def inputs_of_kind(job: ModelJob) -> FindSource | None:
    """Return the inputs in the fields of a kind that does not predict from images; None for other kinds."""
    views = serializers.job_views(job)
    if not views.has_inputs:
        return None
    find = record_inputs.inputs_of_request(job)
    if find is None:
        raise BadRequest(
            f"The request contains no {views.records}.", "Use the fields on the page of the model."
        )
    return find


def names_of(results: Results, best: list[list[tuple[int, float]]]) -> dict[int, str]:
    """Return the names of the images in the lists of `best_of_classes`."""
    places = sorted({place for images in best for place, _ in images})
    return {place: row.name for place, row in zip(places, results.read(places), strict=True)}


def _find(job_id: str, prediction_id: str) -> tuple[ModelJob, BatchPrediction]:
    job = services().store.get(job_id, ModelJob)
    try:
        return job, in_thread(files.load, job.folder, prediction_id)
    except UnreadableFile as error:
        raise NotFound(
            "These predictions do not exist.", "They may have been deleted. Run them again."
        ) from error


def _state(job: ModelJob, about: BatchPrediction, results: Results) -> BatchState:
    """Return the state of a batch prediction, and how many images are done."""
    task = predictions.tasks.task(job.id, about.id)
    failure = predictions.tasks.failure(job.id, about.id)
    done = len(results)
    state: Any
    if task is not None:
        state = "waiting" if task.is_waiting else "running"
    elif done == about.total:
        state = "done"
    else:
        state = "failed" if failure else "incomplete"
    return BatchState(
        id=about.id,
        state=state,
        doing=task.state.doing if task else "",
        progress=round(100 * done / max(1, about.total), 1),
        done=done,
        error=error_of(failure if state == "failed" else None),
    )


def _row_json(row: Row, labels: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"image": row.name}
    if row.truth is not None and row.truth < len(labels):
        body["true_class"] = labels[row.truth]
    return body | ({"error": row.error} if row.error else {"predictions": row.predictions})
