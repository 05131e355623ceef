"""Serve models to client programs by job ID or production name."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Response, after_this_request, jsonify, request, url_for
from gevent.lock import BoundedSemaphore
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.wrappers import Response as AnyResponse

from digits import __version__
from digits.core import snapshot_list
from digits.core.errors import BadRequest, NotFound, Unavailable
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob, epoch_label
from digits.data.manifest import Manifest
from digits.data.models import production
from digits.data.models.production import Production
from digits.runtime.offload import in_thread
from digits.runtime.request_batches import ClientRequest
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.snapshots import snapshot_of
from digits.web.resources.actions import Removed
from digits.web.resources.serving import ProductionModel, ProductionModels, Promoted, ServedModel, Tensor
from digits.web.responses.files import large_response
from digits.web.responses.representation import render_in_turns, respond, returns, twin
from digits.web.security.environ import MULTIPART
from digits.web.services import services
from digits.web.serving import protocols as serving

blueprint = Blueprint("serving", __name__)

OUTPUT, INPUT = "output", "images"
# The endpoints that return predictions.
PREDICTING = (
    "predict", "predict_json", "serve", "tensorflow", "tensorflow_version", "infer", "infer_version"
)  # fmt: skip

# Only one request at a time may modify the file of production models.
_changing = BoundedSemaphore()


@blueprint.post("/models/<job_id>/predict")
@blueprint.post("/models/<job_id>/predict.json", endpoint="predict_json")
def predict(job_id: str) -> Response:
    """Predict from the images in the body with a snapshot of a model (default: the best one)."""
    job = services().store.get(job_id, ModelJob)
    return _answer(job.id, job, snapshot_of(job, request.args.get("snapshot_epoch")).name)


@blueprint.post("/serve/<name>")
@blueprint.post("/serve/<name>/v1/models/<model>:predict", endpoint="tensorflow")
@blueprint.post("/serve/<name>/v1/models/<model>/versions/<version>:predict", endpoint="tensorflow_version")
def serve(name: str, model: str = "", version: str = "") -> Response:
    """Predict from the images in the body with a production model."""
    job, entry = production_model(name, version)
    return _answer(name, job, entry.snapshot)


def _answer(name: str, job: ModelJob, snapshot: str, format_: str = "json") -> Response:
    metrics = services().serving_metrics

    @after_this_request
    def count(response: Response) -> Response:
        metrics.answered(name, response.status_code)
        return response

    def read() -> ClientRequest:
        # Files are read only from multipart bodies: clients may send JSON with any other Content-Type, as curl -d does.
        if request.mimetype == MULTIPART:
            return serving.uploads(name)
        return serving.body_of(request.environ, name, format_)

    with metrics.request(name):
        answer = serving.answer(name, job, snapshot, read)
    return large_response([answer.body], answer.headers)


@blueprint.post("/serve/<name>/v2/models/<model>/infer")
@blueprint.post("/serve/<name>/v2/models/<model>/versions/<version>/infer", endpoint="infer_version")
def infer(name: str, model: str, version: str = "") -> Response:
    """Handle a KServe V2 inference request."""
    job, entry = production_model(name, version)
    return _answer(name, job, entry.snapshot, "kserve")


@blueprint.get("/serve/<name>/v2")
def server_metadata(name: str) -> Response:
    """Return KServe server metadata."""
    production_model(name, is_needed=False)
    return jsonify(name="digits", version=__version__, extensions=["binary_tensor_data"])


@blueprint.get("/serve/<name>/v2/models/<model>")
@blueprint.get("/serve/<name>/v2/models/<model>/versions/<version>", endpoint="describe_version")
@blueprint.get("/serve/<name>", endpoint="about")
@blueprint.get("/serve/<name>.json", endpoint="about_json")
@returns(ServedModel)
def describe(name: str, model: str = "", version: str = "") -> Response:
    """Return the inputs, outputs and labels of a production model as KServe model metadata."""
    job, entry = production_model(name, version)
    manifest = serving.manifest_of(job)
    inputs, outputs = _shapes(manifest)
    served = ServedModel(
        name=name,
        versions=[epoch_label(entry.epoch)],
        platform="tensorflow",
        inputs=[Tensor(INPUT, "FP32", inputs)],
        outputs=[Tensor(OUTPUT, "FP32", outputs)],
        labels=manifest.target.labels,
        model=job.id,
        snapshot=entry.snapshot,
    )
    return jsonify(served)


@blueprint.get("/serve/<name>/v1/models/<model>/metadata")
@blueprint.get("/serve/<name>/v1/models/<model>/versions/<version>/metadata", endpoint="metadata_version")
def metadata(name: str, model: str, version: str = "") -> Response:
    """Return the signature of a production model as TensorFlow Serving metadata."""
    job, entry = production_model(name, version)
    inputs, outputs = _shapes(serving.manifest_of(job))
    signature = {
        "inputs": {INPUT: _tensor_info(INPUT, inputs)},
        "outputs": {OUTPUT: _tensor_info(OUTPUT, outputs)},
        "method_name": "tensorflow/serving/predict",
    }
    return jsonify(
        model_spec={"name": model, "signature_name": "", "version": epoch_label(entry.epoch)},
        metadata={"signature_def": {"signature_def": {"serving_default": signature}}},
    )


def _shapes(manifest: Manifest) -> tuple[list[int], list[int]]:
    """Return the shapes of the input and of the output, with -1 for unknown sizes."""
    return [-1, *manifest.shape], [-1, manifest.target.outputs or -1]


def _tensor_info(name: str, shape: list[int]) -> dict[str, Any]:
    dimensions = [{"size": str(size), "name": ""} for size in shape]
    return {
        "name": name,
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": dimensions, "unknown_rank": False},
    }


@blueprint.get("/serve/<name>/v2/health/live")
def live(name: str) -> Response:
    """Return status 200 if the production name exists."""
    production_model(name, is_needed=False)
    return jsonify(name=name, live=True)


@blueprint.get("/serve/<name>/v2/health/ready")
@blueprint.get("/serve/<name>/v2/models/<model>/ready", endpoint="model_ready")
@blueprint.get("/serve/<name>/v2/models/<model>/versions/<version>/ready", endpoint="version_ready")
def ready(name: str, model: str = "", version: str = "") -> Response:
    """Return status 200 if the production model and its snapshot exist."""
    production_model(name, version)
    return jsonify(name=name, ready=True, live=True)


@blueprint.get("/serve/<name>/v1/models/<model>")
@blueprint.get("/serve/<name>/v1/models/<model>/versions/<version>", endpoint="version_status")
def status(name: str, model: str, version: str = "") -> Response:
    """Return the status of a production model in the format of TensorFlow Serving."""
    _, entry = production_model(name, version)
    current = {"version": epoch_label(entry.epoch), "state": "AVAILABLE"}
    return jsonify(model_version_status=[{**current, "status": {"error_code": "OK", "error_message": ""}}])


@twin(blueprint, "/serve", ProductionModels, "GET")
def index() -> AnyResponse:
    """List the production models."""
    rows = _rows()
    return respond(ProductionModels(rows), page=lambda: render_in_turns("serving.html", models=rows))


@blueprint.get("/serve/metrics")
def metrics() -> Response:
    """Return the metrics of all served models in the Prometheus text format."""
    return Response(services().serving_metrics.as_text(), content_type=CONTENT_TYPE_LATEST)


@twin(blueprint, "/models/<job_id>/promote", Promoted)
def promote(job_id: str) -> AnyResponse:
    """Promote a snapshot to the production name ``name``, replacing any model promoted to it before.

    Only the owner of that model may replace it.
    """
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
            replaced = _all().get(name)
            served = services().store.find(replaced.model) if replaced else None
            if served is not None:
                check_owner(served)
            in_thread(services().production.promote, name, model)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    except UnreadableFile as error:
        raise _damaged(error) from error
    promoted = Promoted(name, url_for("serving.serve", name=name))
    return respond(promoted, created=url_for("serving.index"))


@blueprint.delete("/serve/<name>")
@returns(Removed)
def remove(name: str) -> Response:
    """Remove a production name."""
    job, _ = production_model(name, is_needed=False)
    if job is not None:
        check_owner(job)
    with _changing:
        in_thread(services().production.remove, name)
    return jsonify(Removed(name))


def _rows() -> list[ProductionModel]:
    rows = []
    for name, entry in _all().items():
        job = services().store.find(entry.model)
        rows.append(
            ProductionModel(
                name=name,
                url=url_for("serving.serve", name=name),
                since=entry.since,
                epoch=epoch_label(entry.epoch),
                model=job.name if job else "",
                model_url=url_for("model_page.show", job_id=job.id) if job else "",
                metric=serializers.metric_words(job) if job else "",
                is_available=isinstance(job, ModelJob) and snapshot_list.exists(job.folder, entry.snapshot),
            )
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


def production_model(name: str, version: str = "", *, is_needed: bool = True) -> tuple[Any, Production]:
    """Return the model job and the entry of a production name.

    If the model was deleted, returns None for the job, or raises NotFound if it ``is_needed``, as for a deleted
    snapshot. Also raises NotFound if the name does not exist, or serves another version, which is an epoch.
    """
    entry = _all().get(name)
    if entry is None:
        raise NotFound(
            f"There is no production model named “{name[:64]}”.", "Promote a snapshot on the page of a model."
        )
    current = epoch_label(entry.epoch)
    if version and version != current:
        raise NotFound(f"“{name}” has no version {version[:20]}.", f"Its current version is {current}.")
    job = services().store.find(entry.model)
    if is_needed:
        again = "Promote another model to this name."
        if not isinstance(job, ModelJob):
            raise NotFound(f"The model behind “{name}” was deleted.", again)
        if not snapshot_list.exists(job.folder, entry.snapshot):
            raise NotFound(f"The snapshot behind “{name}”, {entry.snapshot}, was deleted.", again)
    return job, entry
