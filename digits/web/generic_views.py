"""The routes of DIGITS 6 for all datasets and models except those of image classification.

They name the kind (``image-gradients``) instead of its route (``images/gradients``), as an *extension*. Predictions are
the raw values of the network's output. Without an extension, the routes of datasets are those of
the kind ``generic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from flask import Blueprint, Response, jsonify, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.model_job import ModelJob
from digits.data import images
from digits.data.record_features import Features
from digits.data.record_files import paths_at
from digits.data.tfrecords import examples
from digits.kinds import Kind, UnknownKind, kind_named
from digits.kinds.jobs import DatasetJob
from digits.kinds.record_form import resolve_records
from digits.web import dataset_views, explore_views, inference_views, model_views, serializers
from digits.web.kind_routes import views_of
from digits.web.services import services
from digits.web.view_choice import chosen_view

blueprint = Blueprint("generic", __name__)

GENERIC = "generic"
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
    return explore_views.show(job.data_kind)


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
    job = services().store.find(request.form.get("dataset", ""))
    own = job.data_kind if isinstance(job, DatasetJob) else kind_named(GENERIC)
    return model_views.create(_kind(name) if name else own)


# DIGITS has no slash here.
blueprint.add_url_rule("/models/images/generic<extension>", view_func=create_model, methods=["POST"])


@blueprint.route("/models/images/generic/infer_one", methods=["GET", "POST"], endpoint="infer_one_page")
@blueprint.route("/models/images/generic/infer_extension", methods=["GET", "POST"])
def infer_page() -> Response:
    """Predict from an image or from the fields of the kind; return a page."""
    return inference_views.predict(_kind_of(_model()), "infer_one")


@blueprint.post("/models/images/generic/infer_one.json")
def infer_one() -> Response:
    """Return the values of the output for one image: ``outputs``, by name, of a batch of one.

    The view is checked but does not change them, as in DIGITS 6.
    """
    job = _model()
    chosen_view(_kind_of(job), request.values)
    found = inference_views.infer(job)
    return jsonify({"outputs": {"output": [found.pop("values")]}, **found})


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
    chosen_view(kind, request.values)
    return jsonify(outputs={"0": {"output": inference_views.predict_values(job)}})


@blueprint.post("/models/images/generic/generate.json")
def generate_json() -> Response:
    """Generate images from latent vectors; return the grid, each image and the vectors."""
    return inference_views.generate_json(_kind_of(_model()))


@blueprint.post("/models/images/generic/generate")
def generate() -> Response:
    """Generate images from latent vectors; return a page or the part of a page that shows them."""
    return inference_views.generate(_kind_of(_model()))


@blueprint.post("/models/images/generic/infer_many.json")
def infer_many() -> Response:
    """Return the values of the output for all images of a list: ``outputs``, by path and by name.

    Images that cannot be read are in ``skipped``, with the reasons.
    """
    job = _model()
    found = _Outputs("images")
    for path in _listed_images():
        found.add(path, partial(inference_views.predict_values, job, path))
    return found.as_json()


@blueprint.post("/models/images/generic/infer_db")
@blueprint.post("/models/images/generic/infer_db.json", endpoint="infer_db_json")
def infer_db() -> Response:
    """Return the values of the output for the records of TFRecord files: ``outputs``, by file and record, and by name.

    ``db_path`` is a file, a folder or a pattern. Records that cannot be used are in ``skipped``, with the reasons.
    """
    job = _model()
    dataset = services().store.find(job.dataset_id)
    manifest = dataset.manifest() if isinstance(dataset, DatasetJob) else None
    if not isinstance(dataset, DatasetJob) or manifest is None:
        raise NotFound(f"The dataset of “{job.name}” no longer exists.")
    size = (manifest.width, manifest.height) if request.form.get("dont_resize", "0") in ("1", "y") else None
    views, recipe = views_of(dataset.data_kind), dataset.kind_recipe
    found = _Outputs("records")

    def predict(features: Features) -> Any:
        try:
            source = views.read_record(recipe, features)
            if size and isinstance(source, bytes) and (own := images.header(source)[1]) != size:
                raise ValueError(f"its image is {own[0]}×{own[1]} pixels, not {size[0]}×{size[1]}")
        except ValueError as error:
            raise BadRequest(f"The record cannot be used: {error}.") from error
        return inference_views.predict_values(job, source)

    for name, features in islice(_records(), _limit()):
        found.add(name, partial(predict, features))
    return found.as_json()


def _records() -> Iterator[tuple[str, Features]]:
    """Yield the records of the files at ``db_path``, with a name of each; raises BadRequest."""
    text = request.form.get("db_path", "").strip()
    if not text:
        raise BadRequest(
            "Enter the path of TFRecord files.", "Set “db_path” to a file, a folder or a pattern."
        )
    for path in paths_at(resolve_records(services().roots, text)):
        for frame, features in examples(path):
            yield f"{path.name}:{frame.number}", features


class _Outputs:
    """The outputs of several inputs, and the reasons why others were skipped."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._outputs: dict[str, Any] = {}
        self._skipped: dict[str, str] = {}

    def add(self, name: str, predict: Callable[[], Any]) -> None:
        try:
            self._outputs[name] = {"output": predict()}
        except (BadRequest, NotFound) as error:
            self._skipped[name] = error.sentences

    def as_json(self) -> Response:
        """Return the response; raises BadRequest if there are no outputs."""
        if self._skipped and not self._outputs:
            reason = next(iter(self._skipped.values()))
            raise BadRequest(f"None of the {len(self._skipped):,} {self._noun} can be used: {reason}")
        return jsonify(outputs=self._outputs, skipped=self._skipped)


def _listed_images() -> Iterator[str]:
    """Yield the paths in the uploaded list: one per line, followed by an optional number."""
    upload = request.files.get("image_list")
    if upload is None or not upload.filename:
        raise BadRequest("Upload a list of images.", "The field is “image_list”, with one path per line.")
    folder = request.form.get("image_folder", "").strip()
    lines = (line.decode("utf-8", "replace").strip() for line in upload.stream)
    for line in islice(filter(None, lines), _limit()):
        path, _, number = line.rpartition(" ")
        path = path.strip() if path and number.isdecimal() else line
        yield f"{folder.rstrip('/')}/{path}" if folder and not path.startswith("/") else path


def _limit() -> int:
    limit = request.form.get("num_test_images", "").strip() or str(MAX_IMAGES)
    if not limit.isdecimal() or not 1 <= int(limit[:9]) <= MAX_IMAGES:
        raise BadRequest(f"“num_test_images” must be a number from 1 to {MAX_IMAGES:,}.")
    return int(limit)


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
