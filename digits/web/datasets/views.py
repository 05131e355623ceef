"""The form of datasets and its requests, and their JSON."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request, stream_with_context, url_for
from werkzeug.datastructures import CombinedMultiDict, MultiDict
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.job import DeviceRequest
from digits.core.resources import resource_folder
from digits.data import manifest as manifests
from digits.data.images import images
from digits.data.sources.causes import LIMIT_FIELD
from digits.data.sources.plan import count_of
from digits.kinds import Kind
from digits.kinds.decoding import ResizedImage
from digits.kinds.forms import scanning
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.fields import errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.recipes import build_recipe
from digits.kinds.views import views_of
from digits.web.datasets import serializers as dataset_serializers
from digits.web.datasets.forms import (
    ADDS_TO,
    InvalidForm,
    draft_of,
    form_page,
    scan_request,
    source_fields,
    source_form,
)
from digits.web.datasets.remote import add_remote_sources, summarize
from digits.web.datasets.serializers import dataset_json
from digits.web.datasets.submission import Submission, drawn
from digits.web.datasets.submit import submit_dataset
from digits.web.jobs import serializers
from digits.web.jobs.access import requested_job
from digits.web.records.images import find_dataset
from digits.web.resources.datasets import CreatedDataset, Dataset, ResizedExample
from digits.web.responses.representation import (
    json_only,
    render_in_turns,
    respond,
    respond_invalid,
    returns,
    twin,
)
from digits.web.security.sessions import login_name
from digits.web.services import services

blueprint = Blueprint("datasets", __name__)

EXAMPLE_IMAGE = "img/example.png"
MAX_EXAMPLE_PIXELS = 20_000_000
# Limits disk load: further scans wait.
_scanning = threading.BoundedSemaphore(4)
_listing = threading.BoundedSemaphore(4)


@blueprint.get("/datasets/<kind:kind>/new")
def new(kind: Kind) -> str:
    form = _form(kind, None)
    clone = request.args.get("clone")
    _clone_into(form, kind, clone)
    failure = find_dataset(clone).failure if clone else None
    for name in request.args.keys() & form._fields.keys():
        form[name].process(request.args)
    if upload_id := request.args.get("upload"):
        _upload_into(form, upload_id)
    if LIMIT_FIELD in request.args:  # the limit with which a failed dataset can be created
        failure = None  # that will not happen again
    return form_page(kind, form, failure)


@blueprint.post("/datasets/<kind:kind>/form")
def change(kind: Kind) -> str:
    """Render the form after a change: open fields follow what was found in the source."""
    return form_page(kind, _form(kind))


@twin(blueprint, "/datasets/<kind:kind>", CreatedDataset)
def create(kind: Kind, *, keeps_size: bool = False) -> AnyResponse:
    """Create a dataset. An invalid form is shown again with all entries.

    With ``keeps_size``, images are not resized if the request specifies no size and the kind supports that.
    """
    form = _form(kind)
    sent: MultiDict[str, str] = request.form
    submission = Submission(form, sent)
    if "own" in sent and submission.open and not (submission.is_read and submission.advice):
        sent = submission.without_open()
        sent["recommended"] = "1"
        form = _form(kind, CombinedMultiDict[str, Any]((request.files, sent)))
    _clone_into(form, kind, sent.get("clone"))
    keeps_size &= request.form.keys().isdisjoint({"resize_width", "resize_height", "clone"})
    try:
        with services().store.creation() as new_folder:
            folder = new_folder()
            draft = draft_of(kind, form, sent, folder, keeps_size)
            recipe = build_recipe(draft.recipe)
            add_remote_sources(recipe, form, folder.name)
            services().clusters.check_target(form, DeviceRequest(compute=form.compute()))
            if form.errors:
                raise InvalidForm
            job = submit_dataset(folder, recipe, form, form.compute())
    except InvalidForm:
        return respond_invalid(errors_of(form), lambda: form_page(kind, form))
    created = CreatedDataset(job.id, job.name, job.status.title, draft.warnings)
    return respond(created, created=url_for("dataset_page.show", job_id=job.id))


@blueprint.get("/datasets/<kind:kind>")
def back_to_form(kind: Kind) -> AnyResponse:
    """Redirect to the form after a reload of its target."""
    return redirect(url_for("datasets.new", kind=kind))


@blueprint.get("/datasets/<job_id>.json")
@returns(Dataset)
def show_json(job_id: str) -> Response:
    return jsonify(dataset_json(find_dataset(job_id)))


@blueprint.get("/datasets/summary")
def summary() -> str:
    """Return details of a dataset, as in the model form, as an HTML fragment."""
    job = requested_job(DatasetJob)
    return render_in_turns(
        "_dataset_summary.html",
        views=views_of(job.data_kind),
        job=serializers.row(job),
        manifest=serializers.contents_of(job),
    )


@blueprint.post("/datasets/<kind:kind>/scan")
@json_only
def scan(kind: Kind) -> Response:
    """Stream summaries of the source in the form's fields as lines of JSON; the last one is finished.

    Closing the connection ends the scan. For the page of the form, which sends the field ``own``, the lines contain
    what is drawn as ``html``.
    """
    if adds_to := request.form.get(ADDS_TO):
        parent = find_dataset(adds_to)
        manifest = parent.manifest() or manifests.load(parent.folder)  # raises the reason
        sent = source_fields(parent, manifest, request.form)
        form = source_form(parent, manifest, sent)
    else:
        form = _form(kind)
        sent = Submission(form, request.form).without_open() if "own" in request.form else request.form
    if not form.SOURCES:
        raise NotFound(f"Source summaries are not available for {kind.title.lower()}.")
    # Both only wait for a process, so they do not need a thread.
    if form.source_addresses():
        summaries = summarize(form, services().settings)
        lines = (json.dumps(asdict(summary)).encode() + b"\n" for summary in summaries)
        return Response(_limited(_listing, _for_page(lines)), mimetype="application/x-ndjson")
    with contextlib.ExitStack() as kept:
        scanned = scanning.scan(scan_request(kind, form, sent, kept))
        response = Response(_limited(_scanning, _for_page(scanned)), mimetype="application/x-ndjson")
        response.call_on_close(kept.pop_all().close)
    return response


def _for_page(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Let Flask render what summaries draw if the page of the form asks for them."""
    return stream_with_context(drawn(lines)) if "own" in request.form else lines


def _limited(running: threading.BoundedSemaphore, lines: Iterator[bytes]) -> Iterator[bytes]:
    with running:
        yield from lines


@blueprint.post("/datasets/images/resize-example")
@returns(ResizedExample)
def resize_example() -> AnyResponse:
    """Return an image resized with the form's settings.

    The image is the file ``example``, or by default a bundled one.
    """
    form = ImageDatasetForm[Any](request.form)
    names = ("resize_width", "resize_height", "resize_channels", "resize_mode", "encoding")
    short = {name.removeprefix("resize_"): name for name in names}
    for name, field in short.items():
        if name in request.form and field not in request.form:
            form[field].process(None, data=request.form[name])
            form[field].process_formdata([request.form[name]])
    wrong = {name: form[name].errors for name in names if not form[name].validate(form)}
    if wrong:
        return respond_invalid(wrong)
    width, height, channels = form.resize_width.data, form.resize_height.data, int(form.resize_channels.data)
    encoding = form.encoding.data
    path = request.form.get("example", "")
    example = services().roots.resolve(path, "file") if path else resource_folder("static") / EXAMPLE_IMAGE
    resized = ResizedImage(
        str(example), channels, width, height, form.resize_mode.data, encoding, MAX_EXAMPLE_PIXELS
    )
    try:
        data = services().decoder.run(resized).data
    except images.UnusableImage as error:
        raise BadRequest(f"The image cannot be shown: {error.reason}.") from error
    image = images.data_uri(data, "image/jpeg" if encoding == "jpg" else "image/png")
    size = width * height * channels if encoding == "none" else len(data)
    return jsonify(ResizedExample(image, size))


def _form(kind: Kind, *data: Any) -> ImageDatasetForm[Any]:
    meta = {
        "data_roots": services().roots,
        "remote": services().remote,
        "job_folder": lambda job_id: find_dataset(job_id).folder,
    }
    form: ImageDatasetForm[Any] = kind.load("form").DatasetForm(*data, meta=meta)
    form.offer_targets(services().clusters.titles)
    return form


def _clone_into(form: ImageDatasetForm[Any], kind: Kind, job_id: str | None) -> None:
    if not job_id:
        return
    job = find_dataset(job_id)
    if job.data_kind != kind and not form.fills_from(job.recipe):
        raise BadRequest(
            f"“{job.name}” is not a dataset for {kind.title.lower()}.", "Clone it from its own page."
        )
    if frozen := job.recipe.frozen:
        raise BadRequest(
            f"“{job.name}” cannot be cloned, because it was made from the labels “{frozen.name}”.",
            "Create a new dataset from these labels, or a version of this one.",
        )
    form.fill(job)


def _upload_into(form: ImageDatasetForm[Any], upload_id: str) -> None:
    """Fill in the source with an upload of this user, if the form has one."""
    state = dataset_serializers.describe_upload(services().uploads.get(upload_id, login_name(request)))
    if not form.SOURCES or state.folder is None:
        return
    field = form[form.source_field()]
    is_table = form.source.method == "csv" and len(state.tables) == 1
    field.data = state.tables[0] if is_table else state.folder
    words = f"Uploaded {state.name}: {count_of(state.files or 0, 'file')}."
    field.render_kw = {
        **(field.render_kw or {}),
        "data-uploaded": words,
        "data-upload-name": state.name,
    }
