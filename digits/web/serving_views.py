"""Serve models to client programs by job ID or production name."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from flask import Blueprint, Response, jsonify, redirect, request, url_for
from gevent.lock import BoundedSemaphore
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, TooBusy, Unavailable
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob, epoch_label
from digits.data import production
from digits.data.manifest import Manifest
from digits.data.production import Production
from digits.web import serializers, serving
from digits.web.job_views import check_owner
from digits.web.long_pages import render_in_turns
from digits.web.model_views import snapshot_of
from digits.web.negotiation import wants_json
from digits.web.offload import in_thread
from digits.web.services import refuse_other_sites, require_tensorflow, services
from digits.web.serving import InferRequest

blueprint = Blueprint("serving", __name__)

OUTPUT, INPUT = "output", "images"
# The endpoints that return predictions.
PREDICTING = ("predict", "predict_json", "serve", "tensorflow", "infer")

# Only one request at a time may modify the file of production models.
_changing = BoundedSemaphore()


def answers_busy(view: Callable[..., Response]) -> Callable[..., Response]:
    """Add a Retry-After header to responses with status 429."""

    @functools.wraps(view)
    def wrapped(*arguments: Any, **keywords: Any) -> Response:
        try:
            return view(*arguments, **keywords)
        except TooBusy as error:
            response = jsonify(error={"message": error.message, "hint": error.hint, "type": "TooBusy"})
            response.status_code = error.http_status
            response.headers["Retry-After"] = "1"
            return response

    return wrapped


@blueprint.post("/models/<job_id>/predict")
@blueprint.post("/models/<job_id>/predict.json", endpoint="predict_json")
@answers_busy
def predict(job_id: str) -> Response:
    """Predict from the images in the body with a snapshot of a model (default: the best one)."""
    job = services().store.get(job_id, ModelJob)
    return _answer(job.id, job, snapshot_of(job, request.args.get("snapshot_epoch")).name)


@blueprint.post("/serve/<name>")
@blueprint.post("/serve/<name>/v1/models/<model>:predict", endpoint="tensorflow")
@answers_busy
def serve(name: str, model: str = "") -> Response:
    """Predict from the images in the body with a production model."""
    job, found = _production(name)
    return _answer(name, job, found.snapshot)


def _answer(name: str, job: ModelJob, snapshot: str) -> Response:
    refuse_other_sites()
    require_tensorflow()
    metrics = services().serving_metrics
    with metrics.request(name):
        manifest = serving.manifest_of(job)
        is_json = request.mimetype == "application/json" or not request.files
        if not is_json:
            answers = serving.predict(job, snapshot, serving.uploads())
            body: dict[str, Any] = {
                "predictions": [answer["predictions"] for answer in answers],
            }
        else:
            given = serving.body_as(dict[str, Any])
            if _is_kserve(given):
                return _infer(name, job, snapshot, manifest, msgspec.convert(given, InferRequest))
            answers = serving.predict(
                job, snapshot, serving.in_turn(serving.instances_of, given, manifest.shape)
            )
            key = "predictions" if "instances" in given else "outputs"
            body = {key: [answer["values"] for answer in answers]}
        metrics.predicted(name, len(answers))
    return _json(body)


def _is_kserve(body: dict[str, Any]) -> bool:
    try:
        msgspec.convert(body, InferRequest)
    except msgspec.ValidationError:
        return False
    return True


@blueprint.post("/serve/<name>/v2/models/<model>/infer")
@answers_busy
def infer(name: str, model: str) -> Response:
    """Handle a KServe V2 inference request."""
    job, found = _production(name)
    refuse_other_sites()
    require_tensorflow()
    with services().serving_metrics.request(name):
        return _infer(name, job, found.snapshot, serving.manifest_of(job), serving.body_as(InferRequest))


def _infer(name: str, job: ModelJob, snapshot: str, manifest: Manifest, body: InferRequest) -> Response:
    answers = serving.predict(job, snapshot, serving.in_turn(serving.tensors_of, body, manifest.shape))
    services().serving_metrics.predicted(name, len(answers))
    values = [answer["values"] for answer in answers]
    shape, flat = _flattened(values)
    return _json(
        {
            "model_name": name,
            **({"id": body.id} if body.id else {}),
            "outputs": [{"name": OUTPUT, "shape": shape, "datatype": "FP32", "data": flat}],
        }
    )


def _flattened(values: list[Any]) -> tuple[list[int], list[float]]:
    """Return the shape of nested lists of equal lengths, and their values as a flat list."""
    found = np.asarray(values, np.float32)
    return list(found.shape), found.ravel().tolist()


@blueprint.get("/serve/<name>/v2/models/<model>")
@blueprint.get("/serve/<name>", endpoint="about")
@blueprint.get("/serve/<name>.json", endpoint="about_json")
def describe(name: str, model: str = "") -> Response:
    """Return the inputs, outputs and labels of a production model as KServe model metadata."""
    job, found = _production(name)
    manifest = serving.manifest_of(job)
    height, width, channels = manifest.shape
    return jsonify(
        name=name,
        versions=[epoch_label(found.epoch)],
        platform="tensorflow",
        inputs=[{"name": INPUT, "datatype": "FP32", "shape": [-1, height, width, channels]}],
        outputs=[{"name": OUTPUT, "datatype": "FP32", "shape": [-1, manifest.target.outputs or -1]}],
        labels=manifest.target.labels,
        model=job.id,
        snapshot=found.snapshot,
    )


@blueprint.get("/serve/<name>/v2/health/<any(live, ready):what>")
@blueprint.get("/serve/<name>/v2/models/<model>/ready", endpoint="model_ready")
def ready(name: str, what: str = "", model: str = "") -> Response:
    """Return status 200 if the production model exists."""
    _production(name)
    return jsonify(name=name, ready=True, live=True)


@blueprint.get("/serve/<name>/v1/models/<model>")
def status(name: str, model: str) -> Response:
    """Return the status of a production model in the format of TensorFlow Serving."""
    _, found = _production(name)
    version = {"version": epoch_label(found.epoch), "state": "AVAILABLE"}
    return jsonify(model_version_status=[{**version, "status": {"error_code": "OK", "error_message": ""}}])


@blueprint.get("/serve")
def index() -> str:
    """List the production models."""
    return render_in_turns("serving.html", models=_rows())


@blueprint.get("/serve.json")
def index_json() -> Response:
    return jsonify(models=_rows())


@blueprint.get("/serve/metrics")
def metrics() -> Response:
    """Return the metrics of all served models in the Prometheus text format."""
    return Response(services().serving_metrics.as_text(), content_type=CONTENT_TYPE_LATEST)


@blueprint.post("/models/<job_id>/promote")
@blueprint.post("/models/<job_id>/promote.json", endpoint="promote_json")
def promote(job_id: str) -> AnyResponse:
    """Promote a snapshot to the production name ``name``, replacing any model promoted to it before."""
    refuse_other_sites()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    snapshot = snapshot_of(job, request.values.get("snapshot_epoch"))
    name = request.values.get("name", "").strip()
    serving.manifest_of(job)
    if name == "metrics":
        raise BadRequest("The name “metrics” is reserved.", "Choose another name.")
    model = Production(model=job.id, snapshot=snapshot.name, epoch=snapshot.epoch, since=time.time())
    try:
        with _changing:
            in_thread(services().production.promote, name, model)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    except UnreadableFile as error:
        raise _damaged(error) from error
    if wants_json():
        return jsonify(name=name, url=url_for("serving.serve", name=name))
    return redirect(url_for("serving.index"))


@blueprint.delete("/serve/<name>")
def remove(name: str) -> Response:
    """Remove a production name."""
    refuse_other_sites()
    job, _ = _production(name, is_needed=False)
    if job is not None:
        check_owner(job)
    with _changing:
        in_thread(services().production.remove, name)
    return jsonify(removed=name)


def _rows() -> list[dict[str, Any]]:
    rows = []
    for name, found in _all().items():
        job = services().store.find(found.model)
        rows.append(
            {
                "name": name,
                "url": url_for("serving.serve", name=name),
                "since": found.since,
                "epoch": epoch_label(found.epoch),
                "model": job.name if job else "",
                "model_url": url_for("models.show", job_id=job.id) if job else "",
                "metric": serializers.metric_words(job) if job else "",
                "is_available": isinstance(job, ModelJob)
                and any(item.name == found.snapshot for item in job.snapshots()),
            }
        )
    return rows


def _all() -> dict[str, Production]:
    try:
        return services().production.all()
    except UnreadableFile as error:
        raise _damaged(error) from error


def _damaged(error: UnreadableFile) -> Unavailable:
    return Unavailable(
        f"The list of production models is damaged: {error}.",
        f"Repair or remove the file {production.FILE_NAME} in the jobs folder.",
    )


def _production(name: str, *, is_needed: bool = True) -> tuple[Any, Production]:
    """Return the model job and the entry of a production name.

    If the model was deleted, returns None for the job, or raises NotFound if it ``is_needed``. Also raises NotFound if
    the name does not exist.
    """
    found = _all().get(name)
    if found is None:
        raise NotFound(
            f"There is no production model named “{name[:64]}”.", "Promote a snapshot on the page of a model."
        )
    job = services().store.find(found.model)
    if is_needed and not isinstance(job, ModelJob):
        raise NotFound(f"The model behind “{name}” was deleted.", "Promote another model to this name.")
    return job, found


def _json(body: dict[str, Any]) -> Response:
    # Much faster than Flask's JSON provider for long lists of numbers.
    return Response(msgspec.json.encode(body), mimetype="application/json")
