"""The form of datasets and its requests, and their JSON."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request, stream_with_context, url_for
from msgspec import structs
from werkzeug.datastructures import CombinedMultiDict, MultiDict
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.job import DeviceRequest
from digits.core.resources import resource_folder
from digits.core.task import Failure
from digits.data.images import images
from digits.data.sources.causes import LIMIT_FIELD
from digits.data.sources.plan import count_of
from digits.kinds import Kind, all_kinds, kind_named
from digits.kinds.decoding import ResizedImage
from digits.kinds.forms import scanning
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.fields import errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.recipes import build_recipe
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.datasets import serializers as dataset_serializers
from digits.web.datasets.remote import add_remote_sources, summarize
from digits.web.datasets.serializers import dataset_json
from digits.web.datasets.submission import EVERYTHING, Submission, drawn
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
# The kinds with a card in the form of datasets, in order: the title of each, and the question that its models answer.
COMMON_KINDS = {
    "image-classification": ("Classification", "What is in the image?"),
    "image-object-detection": ("Detection", "Where are the objects?"),
    "image-segmentation": ("Segmentation", "Which pixels are what?"),
    "image-regression": ("Regression", "How much of it?"),
}
# Limits disk load: further scans wait.
_scanning = threading.BoundedSemaphore(4)
_checking = threading.BoundedSemaphore(4)
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
    return _form_page(kind, form, failure)


@blueprint.post("/datasets/<kind:kind>/form")
def change(kind: Kind) -> str:
    """Render the form after a change: open fields follow what was found in the source."""
    return _form_page(kind, _form(kind))


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
            draft = _draft(kind, form, sent, folder, keeps_size)
            recipe = build_recipe(draft.recipe)
            add_remote_sources(recipe, form, folder.name)
            services().clusters.check_target(form, DeviceRequest(compute=form.compute()))
            if form.errors:
                raise _InvalidForm
            job = submit_dataset(folder, recipe, form, form.compute())
    except _InvalidForm:
        return respond_invalid(errors_of(form), lambda: _form_page(kind, form))
    created = CreatedDataset(job.id, job.name, job.status.title, draft.warnings)
    return respond(created, created=url_for("dataset_page.show", job_id=job.id))


class _InvalidForm(Exception):
    """Fields of a form have errors."""


def _draft(
    kind: Kind, form: ImageDatasetForm[Any], sent: MultiDict[str, str], folder: Path, keeps_size: bool
) -> scanning.Draft:
    """Return the draft of the job in ``folder``, in a process of its own if files are opened; raises _InvalidForm."""
    new = scanning.NewJob(folder=str(folder), keeps_size=keeps_size)
    if form.opens_files or form.recommended.data:
        with contextlib.ExitStack() as kept, _checking:
            if clone := request.form.get("clone"):
                new.cloned = str(find_dataset(clone).folder)
            draft = scanning.check(structs.replace(_scan_request(kind, form, sent, kept), new=new))
    else:
        draft = scanning.draft_of(form, new)
    errors = {form.source_field(): [draft.problem]} if draft.problem else draft.errors
    for name, messages in errors.items():
        form[name].errors = messages
    if errors:
        raise _InvalidForm
    form.addresses = draft.addresses
    return draft


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
        scanned = scanning.scan(_scan_request(kind, form, sent, kept))
        response = Response(_limited(_scanning, _for_page(scanned)), mimetype="application/x-ndjson")
        response.call_on_close(kept.pop_all().close)
    return response


def _for_page(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Let Flask render what summaries draw if the page of the form asks for them."""
    return stream_with_context(drawn(lines)) if "own" in request.form else lines


def _scan_request(
    kind: Kind, form: ImageDatasetForm[Any], sent: MultiDict[str, str], kept: contextlib.ExitStack
) -> scanning.Request:
    """Return this request for another process; its uploads are files until ``kept`` is closed."""
    if request.is_json:  # as in a form of Flask-WTF, the fields can also be a JSON object
        sent = MultiDict(request.get_json())
    uploads = {}
    for name, upload in request.files.items():
        if upload.filename:
            path = Path(kept.enter_context(tempfile.TemporaryDirectory()), "upload")
            in_thread(upload.save, path)
            uploads[name] = scanning.Upload(name=upload.filename, path=str(path))
    uploads_of = form["uploads_of"].data if "uploads_of" in form else ""
    job = services().store.find(uploads_of or "")
    return scanning.Request(
        kind=kind.name,
        fields=list(sent.items(multi=True)),
        roots=[str(path) for path in services().roots.paths],
        remote=list(services().remote.allowed),
        uploads=uploads,
        uploads_folder=str(job.folder) if isinstance(job, DatasetJob) else "",
        device="gpu" if any(device.is_gpu for device in services().devices.list()) else "cpu",
    )


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


def _form_page(kind: Kind, form: ImageDatasetForm[Any], failure: Failure | None = None) -> str:
    submission = Submission(form, request.form)
    if "clone" in request.args or (request.method == "POST" and "own" not in request.form):
        submission.own = [EVERYTHING]
    submission.follow()
    common = [(kind_named(name), title, question) for name, (title, question) in COMMON_KINDS.items()]
    return render_in_turns(
        "dataset_new.html",
        kind=kind,
        common=common,
        others=[item for item in all_kinds().values() if item.name not in COMMON_KINDS],
        invitation=views_of(kind).invitation,
        guide=views_of(kind).guide,
        form=form,
        failure=failure,
        carried={name: request.args[name] for name in ("upload",) if name in request.args},
        submission=submission,
        data_roots=[str(root) for root in services().settings.readable_roots],
        partitions=services().clusters.partitions(),
    )
