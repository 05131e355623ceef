"""Inside the network: layers, weights and heat maps of a trained model for one image."""

from __future__ import annotations

from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request, url_for
from msgspec import Struct, convert
from msgspec.structs import asdict
from werkzeug.wrappers import Response as AnyResponse

from digits.core.model_job import ModelJob, epoch_label
from digits.kinds.forms.request_fields import choice, whole
from digits.kinds.views import views_of
from digits.web.jobs import serializers
from digits.web.jobs.snapshots import requested_snapshot, spread_snapshots
from digits.web.models import serializers as model_serializers
from digits.web.predictions.inputs import input_of
from digits.web.resources.inside import (
    Explanation,
    Filters,
    InspectedLayers,
    LayerChoices,
    OfImage,
    SnapshotFilters,
)
from digits.web.responses.representation import render, respond, returns, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services

blueprint = Blueprint("inside", __name__)

AnyAnswer = TypeVar("AnyAnswer", bound=OfImage)

METHODS = {"grad_cam": "Grad-CAM", "integrated_gradients": "Integrated gradients"}
# The page selects at most this many layers by default.
SELECTED_LAYERS = 12
# Filters are shown for at most this many snapshots.
MAX_SNAPSHOTS = 60


@blueprint.route("/models/<job_id>/inside", methods=["GET", "POST"])
def show(job_id: str) -> Response:
    """Return the page of a model's layers; a POST request adds those of its image, or returns only these."""
    job = _model(job_id)
    body = asdict(_inspect(job)) if request.method == "POST" else {}
    kind = serializers.kind_of(job)
    return render(
        "inside.html",
        part="_layers.html",
        job=serializers.row(job),
        kind=kind,
        views=views_of(kind),
        snapshots=model_serializers.snapshots(job),
        record=_first_record(job),
        methods=METHODS,
        **body,
    )


@blueprint.post("/models/<job_id>/inside.json")
@returns(InspectedLayers)
def inspect_json(job_id: str) -> Response:
    """Return the activations and weights of layers for an image."""
    return jsonify(_inspect(_model(job_id)))


@twin(blueprint, "/models/<job_id>/layers", LayerChoices, "GET")
@not_from_other_sites
def layers(job_id: str) -> AnyResponse:
    """Return the layers that can be inspected, and the outputs that can be explained."""
    job = _model(job_id)
    snapshot = requested_snapshot(job)
    answer = services().inference.ask(job.folder, {"call": "layers", "snapshot": snapshot.name})
    choices = convert(answer, LayerChoices)
    selected = [layer["name"] for layer in choices.layers if layer["parameters"]][:SELECTED_LAYERS]
    return _respond(choices, "_layer_choice.html", selected=selected)


@twin(blueprint, "/models/<job_id>/heat-map", Explanation)
def heat_map(job_id: str) -> AnyResponse:
    """Return a heat map of the pixels that an output depends on."""
    method = choice(request.values, "method", "grad_cam", METHODS)
    output = whole(request.values, "output", None, 0, 10**9)
    layer = request.values.get("layer", "")
    explanation = _ask(_model(job_id), Explanation, "explain", method=method, output=output, layer=layer)
    return _respond(explanation, "_heat_map.html")


@twin(blueprint, "/models/<job_id>/filters", Filters, "GET")
@not_from_other_sites
def filters(job_id: str) -> AnyResponse:
    """Return the filters of the first convolution in at most `MAX_SNAPSHOTS` snapshots, evenly spread."""
    job = _model(job_id)
    default = requested_snapshot(job)
    epochs = spread_snapshots(job, MAX_SNAPSHOTS)
    message = {"call": "filters", "snapshot": default.name, "snapshots": list(epochs)}
    answer = services().inference.ask(job.folder, message)
    snapshots = [SnapshotFilters(epochs[item["snapshot"]], **item) for item in answer["filters"]]
    return _respond(Filters(answer["layer"], answer["shape"], snapshots), "_filters.html")


def _respond(resource: Struct, part: str, **context: Any) -> AnyResponse:
    """Return ``resource`` as JSON, or the ``part`` of the page that shows it."""
    return respond(resource, page=lambda: render(part, methods=METHODS, **context, **asdict(resource)))


def _model(job_id: str) -> ModelJob:
    return services().store.get(job_id, ModelJob)


def _inspect(job: ModelJob) -> InspectedLayers:
    """Return the activations and weights of the ``layers`` of this request, by default all; raises BadRequest."""
    return _ask(job, InspectedLayers, "inspect", layers=request.values.getlist("layers") or None)


def _ask(job: ModelJob, form: type[AnyAnswer], call: str, **options: Any) -> AnyAnswer:
    """Ask the inference server of ``job`` about the image of this request."""
    snapshot = requested_snapshot(job)
    message = {"call": call, "snapshot": snapshot.name, **options}
    answer, _ = input_of(job).exchange(job, message)
    return convert({**answer, "snapshot": f"Epoch {epoch_label(snapshot.epoch)}"}, form)


def _first_record(job: ModelJob) -> dict[str, str] | None:
    """Return the name and URL of the first validation record, as an example; None if the dataset has none."""
    data = serializers.finished_dataset(job.dataset_id)
    if data is None:
        return None
    dataset, manifest = data
    split = next((name for name in ("val", "test", "train") if name in manifest.splits), None)
    if split is None or not manifest.splits[split].count:
        return None
    return {
        "name": split,
        "last": str(manifest.splits[split].count - 1),
        "url": url_for("records.image", job_id=dataset.id, split=split, number=0).removesuffix("0"),
    }
