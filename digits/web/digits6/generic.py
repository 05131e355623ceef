"""The JSON routes of DIGITS 6 for all datasets and models except those of image classification.

They name the kind (``image-gradients``) instead of its route (``images/gradients``), as an *extension*. Predictions are
the raw values of the network's output. Without an extension, the routes of datasets are those of
the kind ``generic``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.model_job import ModelJob
from digits.data.models import predictions
from digits.data.models.predictions import ListedImage
from digits.kinds import Kind, UnknownKind, kind_named
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.datasets import views as dataset_views
from digits.web.digits6.batches import check_readable, run_to_completion
from digits.web.jobs import serializers
from digits.web.jobs.access import requested_job
from digits.web.models import form_views as model_form_views
from digits.web.predictions import inference as inference_views
from digits.web.predictions import record_inputs
from digits.web.predictions.runs import FindSource
from digits.web.predictions.view_choice import requested_view
from digits.web.resources.datasets import CreatedDataset
from digits.web.resources.models import Model
from digits.web.resources.predictions import GeneratedImages
from digits.web.responses.files import large_response
from digits.web.responses.representation import returns, stream, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services

blueprint = Blueprint("generic", __name__)

GENERIC = "generic"


@twin(blueprint, "/datasets/generic/create/<extension>", CreatedDataset)
def create_dataset(extension: str) -> AnyResponse | tuple[str | Response, int]:
    """Create a dataset of the kind ``extension``, by default with images of the size in the source."""
    return dataset_views.create(_kind(extension), keeps_size=True)


@twin(blueprint, "/models/images/generic", Model)
@twin(blueprint, "/models/images/generic<extension>", Model)  # DIGITS has no slash here
@twin(blueprint, "/models/images/generic/<extension>", Model)
def create_model(extension: str = "") -> AnyResponse | tuple[str | Response, int]:
    """Create a model; its dataset determines the kind."""
    job = services().store.find(request.form.get("dataset", ""))
    own = job.data_kind if isinstance(job, DatasetJob) else kind_named(GENERIC)
    return model_form_views.create(_kind(extension) if extension else own)


# The route of a new model, which contains an extension, would also match these.
@blueprint.route("/models/images/generic/infer_one", methods=["GET", "POST"])
@not_from_other_sites
def infer_one_page() -> Response:
    """Predict from an image or from the fields of the kind; return a page."""
    return inference_views.predict(_kind_of(_model()), "infer_one")


@blueprint.post("/models/images/generic/generate.json")
@returns(GeneratedImages)
def generate_json() -> Response:
    """Generate images from latent vectors; return the grid, each image and the vectors."""
    return inference_views.generate_json(_kind_of(_model()))


@blueprint.post("/models/images/generic/generate")
def generate() -> Response:
    """Generate images from latent vectors; return a page or the part of a page that shows them."""
    return inference_views.generate(_kind_of(_model()))


@blueprint.post("/models/images/generic/infer_one.json")
def infer_one() -> Response:
    """Return the output values for one image: ``outputs`` by name, with a batch dimension of 1.

    The prediction is ``output``. If a network returns several outputs, each is also included under its name. The view
    is validated but does not change them, as in DIGITS 6.
    """
    job = _model()
    requested_view(_kind_of(job), request.values)
    outputs, rest = inference_views.infer(job)
    return _with_outputs(outputs, rest, ("{", "}"), ("[", "]"))


@blueprint.post("/models/images/generic/infer_extension.json")
def infer_extension() -> Response:
    """Return the values of the output for the input in the fields of the kind: ``outputs``, by record and by name.

    For several inputs, runs a batch prediction. For a model that generates images, the records are the vectors of the
    grid.
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
    requested_view(kind, request.values)
    if find := record_inputs.inputs_of_request(job):
        return _outputs_of("records", find, key=lambda place, image: str(place))
    outputs, rest = inference_views.infer(job)
    return _with_outputs(outputs, rest, ('{"0":{', "}}"), ("", ""))


def _with_outputs(
    outputs: Mapping[str, bytearray],
    rest: Mapping[str, Any],
    around_all: tuple[str, str],
    around_each: tuple[str, str],
) -> Response:
    """Return a response with the JSON texts of ``outputs`` by name and the ``rest``, without copying the texts."""
    parts: list[bytes | bytearray] = [f'{{"outputs":{around_all[0]}'.encode()]
    for number, (name, text) in enumerate(outputs.items()):
        comma = "," if number else ""
        parts += [f"{comma}{json.dumps(name)}:{around_each[0]}".encode(), text, around_each[1].encode()]
    end = json.dumps(rest, separators=(",", ":"))[1:]
    parts.append(f"{around_all[1]}{',' if rest else ''}{end}\n".encode())
    return large_response(parts, {"Content-Type": "application/json"})


@blueprint.post("/models/images/generic/infer_many.json")
def infer_many() -> Response:
    """Run a batch prediction; return the values of the output for each image: ``outputs``, by path and by name.

    Images that cannot be read are in ``skipped``, with the reasons.
    """
    return _outputs_of("images", key=lambda place, image: image.path)


@blueprint.post("/models/images/generic/infer_db.json")
def infer_db_json() -> Response:
    """Run a batch prediction; return the values of the output for the records of TFRecord files or of a database.

    ``outputs`` are by file and record, or by key, and by name. Records that cannot be used are in ``skipped``, with
    the reasons.
    """
    return _outputs_of("records", record_inputs.records_of_request(_model()))


def _outputs_of(
    noun: str,
    find: FindSource | None = None,
    *,
    key: Callable[[int, ListedImage], str] = lambda place, image: image.name,
) -> Response:
    """Predict the images of this request, or the records that ``find`` returns; ``key`` returns their keys.

    Raises BadRequest if there are no outputs.
    """
    job, about, results = run_to_completion(find, keeps_values=True)
    check_readable(results, noun)
    folder = predictions.folder_of(job.folder, about.id)
    listed = in_thread(predictions.load_list, folder)
    values = in_thread(predictions.read_values, folder)
    if not values or len(listed) != len(results):
        raise BadRequest("The values of the predictions cannot be read.", "Send the request again.")
    rest = {
        "problems": [{"line": item.line, "message": item.message} for item in about.problems],
        "url": url_for("predictions.show", job_id=job.id, prediction_id=about.id),
    }

    def pieces() -> Iterator[str]:
        skipped = {}
        given: set[str] = set()  # an image may be listed twice
        yield '{"outputs": {'
        comma = ""
        rows = zip(listed, results.read(), *values.values(), strict=True)
        for place, (image, row, *arrays) in enumerate(rows):
            name = key(place, image)
            if name in given:
                continue
            if row.error:
                skipped[name] = row.error
                continue
            outputs = {each: array.tolist() for each, array in zip(values, arrays, strict=True)}
            given.add(name)
            yield f"{comma}{json.dumps(name)}: {json.dumps(outputs)}"
            comma = ", "
        yield f'}}, "skipped": {json.dumps(skipped)}, {json.dumps(rest)[1:]}'

    return Response(stream(pieces()), mimetype="application/json")


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
    return requested_job(ModelJob)
