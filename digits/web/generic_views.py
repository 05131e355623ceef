"""The routes of DIGITS 6 for all datasets and models except those of image classification.

They name the kind (``image-gradients``) instead of its route (``images/gradients``), as an *extension*. Predictions are
the values of the network's output, without their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from flask import Blueprint, Response, jsonify, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.model_job import ModelJob
from digits.kinds import Kind, UnknownKind, kind_named
from digits.kinds.jobs import DatasetJob
from digits.web import dataset_views, inference_views, model_views, serializers
from digits.web.kind_routes import views_of
from digits.web.services import services

blueprint = Blueprint("generic", __name__)

# The images of one request; each takes a few milliseconds.
MAX_IMAGES = 1000


@blueprint.get("/datasets/generic/new/<extension>")
def new_dataset(extension: str) -> str:
    return dataset_views.new(_kind(extension))


@blueprint.post("/datasets/generic/create/<extension>")
def create_dataset(extension: str) -> AnyResponse | tuple[str | Response, int]:
    """Create a dataset of the kind ``extension``, with ``.json`` at its end as JSON."""
    return dataset_views.create(_kind(extension.removesuffix(".json")))


@blueprint.get("/datasets/generic/explore")
def explore() -> str:
    job = services().store.get(request.args.get("job_id", ""), DatasetJob)
    return dataset_views.explore(job.data_kind)


@blueprint.get("/datasets/inference-form/<extension>/<job_id>")
def inference_form(extension: str, job_id: str) -> str:
    """Render the fields from which models on a dataset predict; nothing if they predict from images only."""
    job = services().store.get(job_id, DatasetJob)
    kind = job.data_kind if extension == "all-default" else _kind(extension)
    return render_template(f"{kind.name}/input.html") if views_of(kind).has_input else ""


@blueprint.get("/models/images/generic/new/<extension>")
def new_model(extension: str) -> str:
    return model_views.new(_kind(extension))


@blueprint.post("/models/images/generic")
@blueprint.post("/models/images/generic.json", endpoint="create_model_json")
@blueprint.post("/models/images/generic/<extension>")
def create_model(extension: str = "") -> AnyResponse | tuple[str | Response, int]:
    """Create a model; its dataset determines the kind."""
    name = extension.removesuffix(".json")
    job = services().store.get(request.form.get("dataset", ""), DatasetJob)
    return model_views.create(_kind(name) if name else job.data_kind)


# DIGITS has no slash here.
blueprint.add_url_rule("/models/images/generic<extension>", view_func=create_model, methods=["POST"])


@blueprint.route("/models/images/generic/infer_one", methods=["GET", "POST"], endpoint="infer_one_page")
@blueprint.route("/models/images/generic/infer_extension", methods=["GET", "POST"])
def infer_page() -> Response:
    """Predict from an image or from the fields of the kind; return a page."""
    return inference_views.predict(_kind_of(_model()), "infer_one")


@blueprint.post("/models/images/generic/infer_one.json")
def infer_one() -> Response:
    """Return the values of the output for one image: ``outputs``, by name, of a batch of one."""
    return jsonify(outputs={"output": [inference_views.predict_values(_model())]})


@blueprint.post("/models/images/generic/infer_extension.json")
def infer_extension() -> Response:
    """Return the values of the output for the input in the fields of the kind: ``outputs``, by record and by name.

    For a model that generates images, the records are the vectors of the grid.
    """
    job = _model()
    kind = _kind_of(job)
    if services().scheduler.task_state(job, job.tasks[0]).latent:
        values = inference_views.generated_values(job)
        return jsonify(outputs={str(number): {"output": value} for number, value in enumerate(values)})
    if not views_of(kind).has_input:
        raise BadRequest(
            f"Models for {kind.title.lower()} predict from images only.", "Send the image to infer_one.json."
        )
    return jsonify(outputs={"0": {"output": inference_views.predict_values(job)}})


@blueprint.post("/models/images/generic/infer_many.json")
def infer_many() -> Response:
    """Return the values of the output for all images of a list: ``outputs``, by path and by name.

    Images that cannot be read are in ``skipped``, with the reasons.
    """
    job = _model()
    outputs: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for path in _listed_images():
        try:
            outputs[path] = {"output": inference_views.predict_values(job, path)}
        except (BadRequest, NotFound) as error:
            skipped[path] = error.sentences
    if skipped and not outputs:
        raise BadRequest(f"None of {len(skipped):,} images can be used: {next(iter(skipped.values()))}")
    return jsonify(outputs=outputs, skipped=skipped)


def _listed_images() -> Iterator[str]:
    """Yield the paths in the uploaded list: one per line, followed by an optional number."""
    upload = request.files.get("image_list")
    if upload is None or not upload.filename:
        raise BadRequest("Upload a list of images.", "The field is “image_list”, with one path per line.")
    folder = request.form.get("image_folder", "").strip()
    limit = request.form.get("num_test_images", "").strip() or str(MAX_IMAGES)
    if not limit.isdecimal() or not 1 <= int(limit[:9]) <= MAX_IMAGES:
        raise BadRequest(f"“num_test_images” must be a number from 1 to {MAX_IMAGES:,}.")
    lines = (line.decode("utf-8", "replace").strip() for line in upload.stream)
    for line in islice(filter(None, lines), int(limit)):
        path, _, number = line.rpartition(" ")
        path = path.strip() if path and number.isdecimal() else line
        yield f"{folder.rstrip('/')}/{path}" if folder and not path.startswith("/") else path


def _kind(extension: str) -> Kind:
    try:
        return kind_named(extension)
    except UnknownKind:
        raise NotFound(f"There is no kind of dataset called “{extension}”.") from None


def _kind_of(job: ModelJob) -> Kind:
    kind = serializers.data_kind(job)
    if kind is None:
        raise NotFound(f"The dataset of “{job.name}” no longer exists.")
    return kind


def _model() -> ModelJob:
    return services().store.get(request.values.get("job_id", ""), ModelJob)
