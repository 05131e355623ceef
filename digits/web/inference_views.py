"""Predictions of trained models for the user's images."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flask import Blueprint, Response, jsonify, make_response, request, url_for
from numpy.typing import NDArray

from digits.core.errors import BadRequest, Unavailable
from digits.core.model_job import ModelJob, epoch_label
from digits.core.snapshot_list import Snapshot
from digits.data import images
from digits.data.records import Record
from digits.kinds import Kind, default_kind, prediction_views
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import InputRequest
from digits.web import record_views, serializers
from digits.web.kind_routes import views_of
from digits.web.long_pages import render_in_turns
from digits.web.model_views import snapshot_of
from digits.web.offload import in_thread
from digits.web.services import refuse_other_sites, services

blueprint = Blueprint("inference", __name__)

TOP = 5
MAX_GRID_SIDE = 50
SHOWN_SIZE = (512, 512)


@blueprint.post("/models/<kind:kind>/<any(infer_one, classify_one):call>.json")
def predict_json(kind: Kind, call: str) -> Response:
    return jsonify(_predict(_model()))


@blueprint.route("/models/<kind:kind>/<any(infer_one, classify_one):call>", methods=["GET", "POST"])
def predict(kind: Kind, call: str) -> Response:
    """Predict from an image; return a page or the part of a page that shows the prediction."""
    job = _model()
    path = request.values.get("image_path", "").strip()
    uploaded = bool(request.files.get("image_file"))
    image_url = url_for("inference.image", path=path) if path and not uploaded else None
    of_job = serializers.data_kind(job) or kind
    is_part = request.headers.get("X-Fragment") == "prediction"
    response = make_response(
        render_in_turns(
            "_prediction.html" if is_part else "prediction.html",
            job=serializers.row(job),
            image_url=image_url,
            partial=_template(of_job, request.values.get("view", "")),
            title=views_of(of_job).infer_title,
            **_predict(job, views_of(of_job).draws_on_image),
        )
    )
    response.vary.add("X-Fragment")
    return response


def _template(kind: Kind, view: str) -> str:
    """Return the template of the ``view`` of predictions, by default that of ``kind``; raises BadRequest."""
    if not view:
        return f"{kind.name}/predictions.html"
    for plugin in prediction_views():
        if plugin.name == view and kind.name in plugin.kinds:
            return f"{plugin.template_folder}/predictions.html"
    raise BadRequest(
        f"There is no view “{view}” for {kind.title.lower()}.",
        "Leave “view” out, or install the plugin that provides it.",
    )


@blueprint.post("/models/<kind:kind>/generate.json")
def generate_json(kind: Kind) -> Response:
    """Generate images from latent vectors; return the grid, each image and the vectors."""
    return jsonify(_generate(_model(), with_images=True))


@blueprint.post("/models/<kind:kind>/generate")
def generate(kind: Kind) -> Response:
    """Generate images from latent vectors; return a page or the part of a page that shows them."""
    job = _model()
    is_part = request.headers.get("X-Fragment") == "prediction"
    response = make_response(
        render_in_turns(
            "_prediction.html" if is_part else "prediction.html",
            job=serializers.row(job),
            image_url=None,
            partial="_generated.html",
            title="Generate images",
            **_generate(job),
        )
    )
    response.vary.add("X-Fragment")
    return response


@blueprint.get("/models/image")
def image() -> Response:
    """Return an image below the data roots as a small PNG without metadata."""
    path = services().roots.resolve(request.args.get("path", ""), file_type="file")
    try:
        data = in_thread(as_small_png, path)  # decoding a large photo takes a second
    except images.UnusableImage as error:
        raise BadRequest("The file cannot be displayed as an image.", error.reason) from error
    return Response(data, mimetype="image/png", headers={"Cache-Control": "no-store"})


def as_small_png(path: Path) -> bytes:
    """Return an image file as a PNG of at most `SHOWN_SIZE`; raises UnusableImage."""
    picture = images.open_picture(path, 3, enough=SHOWN_SIZE).image
    picture.thumbnail(SHOWN_SIZE)
    return images.encode(images.as_pixels(picture), "png")


def _as_picture(item: _Input) -> dict[str, Any]:
    """Return the URL, the width and the height of an image on which predictions are drawn."""
    if item.pixels is None:
        picture = images.open_picture(item.path, 3)
        shown, (width, height) = picture.image, picture.size
        shown.thumbnail(SHOWN_SIZE)
    else:
        shown = images.as_image(item.pixels)
        width, height = shown.size
    url = images.data_uri(images.encode_image(shown, "png"))
    return {"url": url, "width": width, "height": height}


def _model() -> ModelJob:
    return services().store.get(request.values.get("job_id", ""), ModelJob)


def predict_values(job: ModelJob, source: str | bytes | NDArray[Any] = "") -> Any:
    """Return the values of the network's prediction for the input of this request, or for another ``source``.

    This is the path of an image, an image file's contents, or an array.
    """
    snapshot = chosen_snapshot(job)
    with input_of(job) if isinstance(source, str) and not source else _other_input(source) as item:
        return _ask(job, item, snapshot, values=True)["values"]


def infer(job: ModelJob) -> dict[str, Any]:
    """Return the ``values`` for the input of this request, and ``visualizations`` of the layers if requested."""
    snapshot = chosen_snapshot(job)
    with input_of(job) as item:
        return {
            "values": _ask(job, item, snapshot, values=True)["values"],
            **_visualizations(job, item, snapshot),
        }


def _predict(job: ModelJob, draws: bool = False) -> dict[str, Any]:
    """Return the prediction for the image of this request, and with ``draws`` the image itself, to draw on."""
    snapshot = chosen_snapshot(job)
    views = views_of(serializers.data_kind(job) or default_kind())
    with input_of(job) as item:
        answer = _ask(job, item, snapshot)
        picture = in_thread(_as_picture, item) if draws else None
        layers = _visualizations(job, item, snapshot)
    return {
        **({"picture": picture} if picture else {}),
        **layers,
        "predictions": views.conclude(answer["predictions"], snapshot.metrics),
        "snapshot": f"Epoch {epoch_label(snapshot.epoch)}",
        "milliseconds": answer.get("milliseconds"),
    }


def generated_values(job: ModelJob) -> list[Any]:
    """Return the pixels of the images that the network generates for this request, as nested lists."""
    values: list[Any] = _generate(job, with_values=True)["values"]
    return values


def _generate(job: ModelJob, **options: bool) -> dict[str, Any]:
    """Return the images that the network generates for this request; by default, with the newest snapshot.

    The validation loss of a GAN does not measure the quality of its images.
    """
    snapshot = chosen_snapshot(job, "-1")
    grid = _grid(request.values) | options
    asked = {"call": "generate", "snapshot": snapshot.name, "grid": grid}
    answer = services().inference.ask(job.folder, asked)
    return {
        **answer["generated"],
        **{name: grid[name] for name in ("rows", "columns", "seed")},
        "snapshot": f"Epoch {epoch_label(snapshot.epoch)}",
        "milliseconds": answer.get("milliseconds"),
    }


def _grid(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the `digits.worker.training.generator.Grid` that ``fields`` describe; raises BadRequest."""
    grid: dict[str, Any] = {
        "rows": _whole(fields, "rows", 5, 1, MAX_GRID_SIDE),
        "columns": _whole(fields, "columns", 10, 1, MAX_GRID_SIDE),
        "seed": _whole(fields, "seed", secrets.randbelow(10**6), 0, 2**32 - 1),
        "interpolate": fields.get("interpolate", "") not in ("", "n", "false", "0"),
        "vectors": [_vector(line) for line in fields.get("vectors", "").splitlines() if line.strip()],
    }
    if fields.get("label", "").strip():
        grid["label"] = _whole(fields, "label", 0, 0, 10**6)
    return grid


def _whole(fields: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = fields.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not low <= int(text[:12]) <= high:
        raise BadRequest(f"“{name}” must be an integer from {low:,} to {high:,}.")
    return int(text)


def _vector(line: str) -> list[float]:
    try:
        numbers = [float(word) for word in line.strip("[] \t,").replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise BadRequest(
            f"“{line.strip()[:40]}” is not a vector.",
            "Enter one vector per line, as numbers separated by spaces or commas.",
        )
    return numbers


def chosen_snapshot(job: ModelJob, default: str = "") -> Snapshot:
    """Return the snapshot that this request asks for; raises an error if it may not or cannot be used."""
    refuse_other_sites()
    if not services().tensorflow.available:
        raise Unavailable("TensorFlow support is disabled.", services().tensorflow.reason)
    return snapshot_of(job, request.values.get("snapshot_epoch") or default)


def _visualizations(job: ModelJob, item: _Input, snapshot: Snapshot) -> dict[str, Any]:
    """Return the ``visualizations`` of all layers if this request asks to ``show_visualizations``."""
    if request.values.get("show_visualizations", "") in ("", "n", "false", "0"):
        return {}
    return {"visualizations": _ask(job, item, snapshot, call="inspect")["layers"]}


def _ask(job: ModelJob, item: _Input, snapshot: Snapshot, **options: Any) -> dict[str, Any]:
    asked = {"call": "predict", item.type: str(item.path), "snapshot": snapshot.name, "top": TOP}
    return services().inference.ask(job.folder, asked | options)


@dataclass(frozen=True)
class _Input:
    """What a model predicts from: an image file, or the file of an array with its ``pixels``."""

    path: Path
    pixels: NDArray[Any] | None = None

    @property
    def type(self) -> str:
        return "image" if self.pixels is None else "pixels"


@contextmanager
def input_of(job: ModelJob) -> Iterator[_Input]:
    """Yield what this request contains: an image, a record, or the input of the kind's own fields.

    A ``record`` of the model's dataset is named like ``val/12``.
    """
    dataset = services().store.find(job.dataset_id)
    record = request.values.get("record", "").strip()
    if record and not _has_image():
        with _other_input(_record_pixels(job, record)) as item:
            yield item
        return
    if isinstance(dataset, DatasetJob) and views_of(dataset.data_kind).has_input:
        read = views_of(dataset.data_kind).read_input
        pixels = in_thread(read, dataset.kind_recipe, InputRequest(request.values.to_dict(), _named_images()))
        if pixels is not None:
            with _other_input(pixels) as item:
                yield item
            return
    with _image() as path:
        yield _Input(path)


def _record_pixels(job: ModelJob, text: str) -> NDArray[Any]:
    """Return the pixels of a record of the dataset of ``job``, such as ``val/12``; raises BadRequest or NotFound."""
    split, _, number = text.rpartition("/")
    if not number.isdecimal() or len(number) > 12:
        raise BadRequest(f"“{text[:40]}” is not a record.", "Send its split and its number, such as val/12.")
    dataset = record_views.find_dataset(job.dataset_id)
    return in_thread(record_views.open_record(dataset, split, int(number), Record.as_array))


def _named_images() -> dict[str, bytes | Path]:
    """Return the images of this request by name: uploads, and files below a root."""
    found: dict[str, bytes | Path] = {}
    for field, text in request.values.items():
        name = field.removesuffix("_path")
        if name not in (field, "image") and text.strip():
            found[name] = services().roots.resolve(text.strip(), file_type="file")
    for field, upload in request.files.items():
        name = field.removesuffix("_file")
        if name not in (field, "image") and upload.filename:
            found[name] = upload.read()
    return found


def _has_image() -> bool:
    """Return whether this request contains an image or its path."""
    upload = request.files.get("image_file")
    return bool(upload and upload.filename) or bool(request.values.get("image_path", "").strip())


@contextmanager
def _image() -> Iterator[Path]:
    """Yield the image of this request as a file: the upload, while it is needed, or a file below a root."""
    upload = request.files.get("image_file")
    if upload is not None and upload.filename:
        with _kept(upload.save) as path:
            yield path
        return
    text = request.values.get("image_path", "").strip()
    if not text:
        raise BadRequest("Upload an image, or specify its path.")
    if "://" in text:
        raise BadRequest("Images are not fetched from other servers.", "Download it and upload it here.")
    yield services().roots.resolve(text, file_type="file")


@contextmanager
def _other_input(source: str | bytes | NDArray[Any]) -> Iterator[_Input]:
    if isinstance(source, str):
        yield _Input(services().roots.resolve(source, file_type="file"))
    elif isinstance(source, bytes):
        with _kept(partial(Path.write_bytes, data=source)) as path:
            yield _Input(path)
    else:
        with _kept(partial(np.save, arr=source, allow_pickle=False), ".npy") as path:
            yield _Input(path, source)


@contextmanager
def _kept(save: Callable[[Path], Any], ending: str = "") -> Iterator[Path]:
    """Yield a file of the uploads folder that ``save`` writes, and discard it at the end of the block."""
    folder = services().folder / "uploads"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}{ending}"
    try:
        save(path)
        yield path
    finally:
        services().store.discard(path)
