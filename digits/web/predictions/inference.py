"""Predictions of trained models for the user's images."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from flask import Blueprint, Response, jsonify, render_template, request, url_for
from msgspec import UNSET
from numpy.typing import NDArray
from werkzeug.datastructures import FileStorage

from digits.core.csv_cells import harmless
from digits.core.errors import BadRequest, NotFound
from digits.core.model_job import ModelJob, epoch_label
from digits.core.snapshot_list import Snapshot
from digits.data import number_text
from digits.data.images import images
from digits.data.models import evaluation
from digits.data.numbers import parse_number
from digits.kinds import Kind
from digits.kinds.builtin_views.gan.view import GenerationOptions
from digits.kinds.decoding import Animation, SmallImage
from digits.kinds.forms.request_fields import flag, whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.predictions.rendering import Prediction, check_options
from digits.kinds.views import views_of
from digits.runtime.offload import each_in_thread, in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import requested_job
from digits.web.jobs.snapshots import requested_snapshot
from digits.web.predictions.inputs import Input, input_of, saved
from digits.web.predictions.runs import may_resize
from digits.web.predictions.view_choice import (
    ViewChoice,
    fitting,
    rendering,
    requested,
    requested_view,
    view_named,
    views_for,
)
from digits.web.request_limits import limited
from digits.web.resources import predictions as resources
from digits.web.responses.representation import render, returns
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services
from digits.web.services.recent_predictions import Recent

blueprint = Blueprint("inference", __name__)

TOP = 5
MEDIA_TYPES = {"json": "application/json", "csv": "text/csv", "npy": "application/octet-stream"}
# The view of generated images in DIGITS 6.
GAN = "image-gan"
# The frames of an animation.
CHAIN = {"interpolate": True, "chained": True}


@blueprint.post("/models/<kind:kind>/<any(infer_one, classify_one):call>.json")
@returns(resources.Prediction)
def predict_json(kind: Kind, call: str) -> Response:
    """Return the prediction, and with ``view_extension_id``, what the view draws."""
    job = _model()
    choice = requested_view(serializers.data_kind(job) or kind, request.values)
    if choice.view is None:
        return jsonify(_predict(job))
    recent, layers = _predict_outputs(job, choice.kind)
    return jsonify(_described(recent, choice, layers))


@blueprint.route("/models/<kind:kind>/<any(infer_one, classify_one):call>", methods=["GET", "POST"])
@not_from_other_sites
def predict(kind: Kind, call: str) -> Response:
    """Predict from an image; return a page or the part of a page that shows the prediction."""
    job = _model()
    path = request.values.get("image_path", "").strip()
    uploaded = bool(request.files.get("image_file"))
    image_url = url_for("inference.image", path=path) if path and not uploaded else None
    choice = requested_view(serializers.data_kind(job) or kind, request.values)
    recent, layers = _predict_outputs(job, choice.kind)
    return _shown(choice, recent, services().recent_predictions.add(recent), image_url=image_url, **layers)


@blueprint.get("/models/recent-predictions/<name>")
def recent_prediction(name: str) -> Response:
    """Show a recent prediction in another view."""
    recent = services().recent_predictions.get(name)
    job = services().store.get(recent.job_id, ModelJob)
    return _shown(requested_view(serializers.kind_of(job), request.values), recent, name)


@blueprint.get("/models/recent-predictions/<name>.json")
@returns(resources.Prediction)
def recent_prediction_json(name: str) -> Response:
    """Return what a view draws for a recent prediction."""
    recent = services().recent_predictions.get(name)
    choice = requested_view(
        serializers.kind_of(services().store.get(recent.job_id, ModelJob)), request.values
    )
    return jsonify(_described(recent, choice, {}))


def _described(recent: Recent, choice: ViewChoice, layers: dict[str, Any]) -> resources.Prediction:
    """Return a prediction with what a view draws for it, and the ``visualizations`` in ``layers``, if any."""
    predictions, view = recent.prediction.predictions, choice.as_json(recent.prediction)
    return resources.Prediction(predictions, recent.snapshot, recent.milliseconds, **layers, **view)


@blueprint.get("/models/recent-predictions/<name>/outputs.<any(json, csv, npy):ending>")
def recent_outputs(name: str, ending: str) -> Response:
    """Return the outputs of a recent prediction, or the one named ``output``. A ``npy`` file contains one output."""
    outputs = services().recent_predictions.get(name).prediction.outputs
    output = request.args.get("output", "")
    if output and output not in outputs:
        raise NotFound(f"The network has no output “{output}”.", f"Its outputs are {', '.join(outputs)}.")
    selected = {output: outputs[output]} if output else dict(outputs)
    if not selected:
        raise NotFound("The outputs were too large to be kept.")
    headers = {"Content-Disposition": f'attachment; filename="outputs.{ending}"', "Cache-Control": "no-store"}
    return Response(
        each_in_thread(output_file(selected, ending)), mimetype=MEDIA_TYPES[ending], headers=headers
    )


@blueprint.get("/models/view-config/<view>")
def view_options(view: str) -> str:
    """Render the fields of the options of a view; nothing if it has none."""
    return render_template("_view_options.html", form=rendering(view_named(view)).Options(), name=view)


def output_file(outputs: Mapping[str, NDArray[Any]], ending: str) -> Iterator[bytes]:
    """Yield the ``outputs`` as a file, in pieces: JSON, CSV with one value per row, or the first as a NumPy file."""
    if ending == "npy":
        yield from number_text.npy_pieces(next(iter(outputs.values())))
    elif ending == "json":
        for number, (name, values) in enumerate(outputs.items()):
            yield b"," if number else b"{"
            yield msgspec.json.encode(name) + b":"
            yield from number_text.json_pieces(values)
        yield b"}"
    else:
        yield b"output,index,value\r\n"
        for name, values in outputs.items():
            yield from number_text.csv_pieces(quoted_cell(name), values)


def quoted_cell(text: str) -> str:
    """Return ``text`` as a cell of a CSV file."""
    return '"' + harmless(text).replace('"', '""') + '"'


def _shown(choice: ViewChoice, recent: Recent, name: str, **context: Any) -> Response:
    """Render a prediction as a page, or the part of a page that shows it, with more ``context``."""
    prediction = recent.prediction
    own_views, job = views_of(choice.kind), services().store.get(recent.job_id, ModelJob)
    return render(
        "prediction.html",
        part="_prediction.html",
        job=serializers.row(job),
        partial=choice.template,
        title=own_views.infer_title,
        choice=choice,
        options=choice.options,
        recent=name if name in services().recent_predictions else "",
        fitting=fitting(choice.kind, prediction),
        snapshot=recent.snapshot,
        milliseconds=recent.milliseconds,
        truth=recent.truth,
        predictions=prediction.predictions,
        picture=prediction.picture if own_views.draws_on_image or choice.view else None,
        shown=choice.context(prediction),
        best_threshold=_best_threshold(job) if own_views.draws_on_image else None,
        **context,
    )


def _best_threshold(job: ModelJob) -> float | None:
    """Return the score from which on detections count in the evaluation of a model; None without one."""
    details = (item.details for item in in_thread(evaluation.load_all, job.folder))
    return next((each["detections"]["best"] for each in details if "detections" in each), None)


@blueprint.post("/models/<kind:kind>/generate.json")
@returns(resources.GeneratedImages)
def generate_json(kind: Kind) -> Response:
    """Generate images from latent vectors; return the grid, each image and the vectors."""
    job, animated = _model(), _is_animated()
    generated = _generate(job, with_images=True, **(CHAIN if animated else {}))
    animation = _animation(generated) if animated else UNSET
    return jsonify(resources.GeneratedImages(**generated, animation=animation))


@blueprint.post("/models/<kind:kind>/generate")
def generate(kind: Kind) -> Response:
    """Generate images from latent vectors; return a page or the part of a page that shows them."""
    job, animated = _model(), _is_animated()
    generated = _generate(job, **(CHAIN | {"with_images": True} if animated else {}))
    return render(
        "prediction.html",
        part="_prediction.html",
        job=serializers.row(job),
        image_url=None,
        partial="_generated.html",
        title="Generate images",
        animation=_animation(generated) if animated else None,
        **generated,
    )


@blueprint.get("/models/image")
def image() -> Response:
    """Return an image below the data roots as a small PNG without metadata."""
    path = services().roots.resolve(request.args.get("path", ""), file_type="file")
    try:
        data = services().decoder.run(SmallImage(str(path))).data
    except images.UnusableImage as error:
        raise BadRequest("The file cannot be displayed as an image.", error.reason) from error
    return Response(data, mimetype="image/png", headers={"Cache-Control": "no-store"})


def _as_picture(item: Input) -> dict[str, Any]:
    """Return the URL, the width and the height of an image on which predictions are drawn."""
    if item.pixels is not None:
        height, width, _ = item.pixels.shape
        data = in_thread(images.encode, item.pixels, "png")
    else:
        path = saved(item.source) if isinstance(item.source, FileStorage) else item.source
        picture = services().decoder.run(SmallImage(str(path)))
        data, width, height = picture.data, picture.width, picture.height
    return {"url": images.data_uri(data), "width": width, "height": height}


def _model() -> ModelJob:
    return requested_job(ModelJob)


def infer(job: ModelJob) -> tuple[dict[str, bytearray], dict[str, Any]]:
    """Return the outputs for the input of this request by name, as the JSON text of nested lists.

    See `digits.data.models.predictions.with_outputs`. Also returns the rest of the response: ``visualizations`` if
    requested, and the names of outputs that are ``omitted`` because they are too large, if any.
    """
    snapshot = requested_snapshot(job)
    item = input_of(job)
    answer, texts = _exchange(job, item, snapshot, values=True)
    layers = _visualizations(job, item, snapshot)
    omitted = {"omitted": answer["omitted"]} if answer["omitted"] else {}
    return dict(zip(answer["names"], texts, strict=True)), {**omitted, **layers}


def _predict(job: ModelJob) -> resources.Prediction:
    """Return the prediction for the image of this request."""
    snapshot = requested_snapshot(job)
    item = input_of(job)
    answer = _ask(job, item, snapshot)
    layers = _visualizations(job, item, snapshot)
    predictions = serializers.job_views(job).conclude(answer["predictions"], snapshot.metrics)
    title = f"Epoch {epoch_label(snapshot.epoch)}"
    return resources.Prediction(predictions, title, answer["milliseconds"], **layers)


def _predict_outputs(job: ModelJob, kind: Kind) -> tuple[Recent, dict[str, Any]]:
    """Return the prediction for the image of this request with all outputs, which any view can show.

    Also returns ``visualizations`` of the layers if requested; they are too large to be kept.
    """
    snapshot = requested_snapshot(job)
    views = views_of(kind)
    draws = views.draws_on_image or any(rendering(view).uses_picture for view in views_for(kind))
    item = input_of(job)
    answer, bodies = _exchange(job, item, snapshot, outputs=True)
    picture = _as_picture(item) if draws and item.is_picture else None
    layers = _visualizations(job, item, snapshot)
    dataset = services().store.find(job.dataset_id)
    manifest = dataset.manifest() if isinstance(dataset, DatasetJob) else None
    predictions = views.conclude(answer["predictions"], snapshot.metrics)
    prediction = Prediction(
        kind.name,
        predictions,
        all_predictions=answer.get("all_predictions", predictions),
        outputs=_arrays(answer["outputs"], bodies),
        omitted=[output["name"] for output in answer["outputs"] if not output["attached"]],
        picture=picture,
        geometry=_geometry(answer.get("geometry")),
        pixels=item.pixels,
        recipe=dataset.kind_recipe if isinstance(dataset, DatasetJob) else None,
        target=manifest.target if manifest else None,
    )
    words = f"Epoch {epoch_label(snapshot.epoch)}"
    return Recent(job.id, prediction, words, answer["milliseconds"], item.truth), layers


def _arrays(outputs: Sequence[Mapping[str, Any]], bodies: Iterable[bytearray]) -> dict[str, NDArray[Any]]:
    """Return the attached outputs in the answer of an inference server by name, without copying them."""
    attached = (output for output in outputs if output["attached"])
    return {
        output["name"]: np.ndarray(output["shape"], output["dtype"], buffer=body)
        for output, body in zip(attached, bodies, strict=True)
    }


def _geometry(description: Mapping[str, Any] | None) -> images.Geometry | None:
    if not description:
        return None
    padded = description.get("padded")
    return images.Geometry(
        tuple(description["size"]),
        description["width"],
        description["height"],
        description["mode"],
        tuple(padded) if padded else None,
    )


def generated_values(job: ModelJob) -> list[Any]:
    """Return the pixels of the images that the network generates for this request, as nested lists."""
    values: list[Any] = _generate(job, with_values=True)["values"]
    return values


def _generate(job: ModelJob, **options: bool) -> dict[str, Any]:
    """Return the images that the network generates for this request; by default, with the newest snapshot.

    The validation loss of a GAN does not measure the quality of its images.
    """
    snapshot = requested_snapshot(job, "-1")
    grid = _grid(request.values) | options
    message = {"call": "generate", "snapshot": snapshot.name, "grid": grid}
    answer = services().inference.ask(job.folder, message)
    return {
        **answer["generated"],
        **{name: grid[name] for name in ("rows", "columns", "seed")},
        "snapshot": f"Epoch {epoch_label(snapshot.epoch)}",
        "milliseconds": answer["milliseconds"],
    }


def _is_animated() -> bool:
    """Return whether this request asks for an animation. Raises BadRequest for other views and invalid options."""
    field, name = requested(request.values)
    if name not in ("", GAN):
        raise BadRequest(
            f"“{field}”: “{name}” does not show generated images.", f"Use {GAN}, or leave it out."
        )
    options = GenerationOptions(request.values)
    check_options(options)
    return bool(options["gan_view_task_id"].data == "animation")


def _animation(generated: Mapping[str, Any]) -> str:
    """Return generated images as the data URI of an animation."""
    frames = [several[0] for several in generated["images"]]
    return images.data_uri(services().decoder.run(Animation(frames)).data, "image/gif")


def _grid(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the `digits.worker.training.models.generator.Grid` that ``fields`` describe; raises BadRequest."""
    grid: dict[str, Any] = {
        "rows": limited("rows"),
        "columns": limited("columns"),
        "seed": secrets.randbelow(10**6) if (seed := limited("seed")) is None else seed,
        "interpolate": flag(fields, "interpolate"),
        "vectors": [_vector(line) for line in fields.get("vectors", "").splitlines() if line.strip()],
    }
    label = whole(fields, "label", None, 0, 10**6)
    return grid if label is None else {**grid, "label": label}


def _vector(line: str) -> list[float]:
    try:
        numbers = [parse_number(word) for word in line.strip("[] \t,").replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not numbers:
        raise BadRequest(
            f"“{line.strip()[:40]}” is not a vector.",
            "Enter one vector per line, as numbers separated by spaces or commas.",
        )
    return numbers


def _visualizations(job: ModelJob, item: Input, snapshot: Snapshot) -> dict[str, Any]:
    """Return the ``visualizations`` of all layers if this request asks to ``show_visualizations``."""
    if not flag(request.values, "show_visualizations"):
        return {}
    if not may_resize():
        raise BadRequest(
            "Layers can only be shown for images of the network’s size.",
            "Leave out “dont_resize” or “show_visualizations”.",
        )
    return {"visualizations": _ask(job, item, snapshot, call="inspect")["layers"]}


def _ask(job: ModelJob, item: Input, snapshot: Snapshot, **options: Any) -> dict[str, Any]:
    return _exchange(job, item, snapshot, **options)[0]


def _exchange(
    job: ModelJob, item: Input, snapshot: Snapshot, **options: Any
) -> tuple[dict[str, Any], list[bytearray]]:
    """Return the response of the inference server, and its attachments."""
    message = {
        "call": "predict",
        "snapshot": snapshot.name,
        "top": TOP,
        "resize": may_resize(),
    }
    return item.exchange(job, message | options)
