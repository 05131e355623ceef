"""The form of datasets in requests: its draft, which another process makes, its page, and the source of a version."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from pathlib import Path
from typing import Any

from flask import request
from msgspec import structs
from werkzeug.datastructures import MultiDict

from digits.core.remote import RemotePolicy
from digits.core.schema import JsonObject, convert
from digits.core.task import Failure
from digits.data.manifest import Manifest
from digits.kinds import Kind, all_kinds, kind_named
from digits.kinds.forms import scanning
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.datasets.submission import EVERYTHING, Submission
from digits.web.records.images import find_dataset
from digits.web.responses.representation import render_in_turns
from digits.web.services import services

# The kinds with a card in the form of datasets, in order: the title of each, and the question that its models answer.
COMMON_KINDS = {
    "image-classification": ("Classification", "What is in the image?"),
    "image-object-detection": ("Detection", "Where are the objects?"),
    "image-segmentation": ("Segmentation", "Which pixels are what?"),
    "image-regression": ("Regression", "How much of it?"),
}
# The field with the id of the dataset on the page that adds to it.
ADDS_TO = "adds_to"

Fields = MultiDict[str, Any]

_checking = threading.BoundedSemaphore(4)


class InvalidForm(Exception):
    """Fields of a form have errors."""


def draft_of(
    kind: Kind, form: ImageDatasetForm[Any], sent: MultiDict[str, str], folder: Path, keeps_size: bool = False
) -> scanning.Draft:
    """Return the draft of the job in ``folder``, in a process of its own if files are opened; raises InvalidForm."""
    new = scanning.NewJob(folder=str(folder), keeps_size=keeps_size)
    if form.opens_files or form.recommended.data:
        with contextlib.ExitStack() as kept, _checking:
            if clone := request.form.get("clone"):
                new.cloned = str(find_dataset(clone).folder)
            draft = scanning.check(structs.replace(scan_request(kind, form, sent, kept), new=new))
    else:
        draft = scanning.draft_of(form, new)
    errors = {form.source_field(): [draft.problem]} if draft.problem else draft.errors
    for name, messages in errors.items():
        form[name].errors = messages
    if errors:
        raise InvalidForm
    form.addresses = draft.addresses
    return draft


def scan_request(
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
        remote=list(form.meta.remote.allowed),
        uploads=uploads,
        uploads_folder=str(job.folder) if isinstance(job, DatasetJob) else "",
        adds_to=str(find_dataset(adds_to).folder) if (adds_to := request.form.get(ADDS_TO)) else "",
        device="gpu" if any(device.is_gpu for device in services().devices.list()) else "cpu",
    )


def form_page(kind: Kind, form: ImageDatasetForm[Any], failure: Failure | None = None, **adds: Any) -> str:
    """Render the form; ``adds`` has the version that adds the source to a dataset."""
    submission = Submission(form, request.form)
    if adds or "clone" in request.args or (request.method == "POST" and "own" not in request.form):
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
        **adds,
    )


def source_fields(parent: DatasetJob, manifest: Manifest, sent: Fields) -> Fields:
    """Return the fields of a source that are ``sent``, or its path as ``added_folder``, with those of ``parent``."""
    form = source_form(parent, manifest, None)
    inherited = fields_of(parent, manifest, parent.kind_recipe.as_json())
    fixed = {
        "resize_width": str(manifest.width),
        "resize_height": str(manifest.height),
        "resize_channels": "1" if manifest.channels % 3 else "3",
        "resize_mode": manifest.resize_mode,
        "encoding": manifest.encoding,
        **dict.fromkeys(form.SHARES, "0"),
    }
    given = [(name, text) for name, text in sent.items(multi=True) if name in form and name not in fixed]
    fields: Fields = MultiDict([*given, *fixed.items()])
    for name in form.own_names():
        if name in inherited:
            fields.setdefault(name, inherited[name])
    if path := sent.get("added_folder"):
        fields.setdefault(source_form(parent, manifest, fields).source.path, path)
    return fields


def fields_of(parent: DatasetJob, manifest: Manifest, source: JsonObject) -> Fields:
    """Return the fields of a form that describes the recipe ``source``."""
    form = source_form(parent, manifest, None)
    form.fill_recipe(convert(source, form.RECIPE))
    return MultiDict(
        {field.name: "y" if field.data is True else str(field.data) for field in form if field.data}
    )


def source_form(parent: DatasetJob, manifest: Manifest, fields: Fields | None) -> ImageDatasetForm[Any]:
    """Return the form of the kind of ``parent`` with `source_fields`."""
    meta = {"data_roots": services().roots, "remote": RemotePolicy(), "adds_to": manifest.target}
    form: ImageDatasetForm[Any] = parent.data_kind.load("form").DatasetForm(fields, meta=meta)
    return form
