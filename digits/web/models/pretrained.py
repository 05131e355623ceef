"""Import models trained elsewhere, and copy snapshots to new models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse
from wtforms import SelectField, StringField, TextAreaField
from wtforms.validators import DataRequired, NumberRange, Optional

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import MAX_SIDE_PIXELS, ImportModel
from digits.data.archives.file_names import uploaded_name
from digits.data.models.archive import INFO_FILE, names_of
from digits.data.sources.plan import count_of
from digits.kinds.forms.dataset import RESIZE_MODES
from digits.kinds.forms.fields import (
    NAME_LENGTH,
    AllowedPath,
    JobForm,
    OptionalInteger,
    choices,
    errors_of,
    name_field,
    select,
)
from digits.runtime.offload import in_thread
from digits.web.jobs.access import check_owner, find_job
from digits.web.jobs.snapshots import snapshot_of
from digits.web.models import serializers as model_serializers
from digits.web.models.archives import archive_of
from digits.web.models.imports import import_from, import_model, import_recipe, scratch
from digits.web.resources.models import Model
from digits.web.responses.representation import render_in_turns, respond, respond_invalid, twin, wants_json
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("pretrained", __name__)

# Scripts send the number of channels of the JSON of a model.
_COLOR_MODES = {"3": "COLOR", "1": "GRAYSCALE"}
# A checkpoint consists of several files.
MAX_UPLOADED_FILES = 20


class PretrainedForm(JobForm):
    """The form that imports a model from files on the server."""

    LONG_FIELDS = frozenset({"labels"})

    job_name = name_field("Name", "Enter a name.")
    source = StringField(
        "Model",
        validators=[
            DataRequired("Upload a model, or enter its path."),
            AllowedPath("any", may_be_archive=True),
        ],
    )
    network = StringField("Network definition", default="", validators=[Optional(), AllowedPath("file")])
    labels = TextAreaField("Classes", default="")
    width = OptionalInteger("Width", default=None, validators=[Optional(), NumberRange(1, MAX_SIDE_PIXELS)])
    height = OptionalInteger("Height", default=None, validators=[Optional(), NumberRange(1, MAX_SIDE_PIXELS)])
    image_type = SelectField(
        "Channels",
        choices=choices(("COLOR", "Color"), ("GRAYSCALE", "Grayscale")),
        default="COLOR",
        filters=[lambda text: _COLOR_MODES.get(text, text)],
    )
    resize_mode = select("Resize mode", RESIZE_MODES, ImportModel, "resize_mode")


@blueprint.get("/pretrained_models/new")
def new() -> str:
    return _page(PretrainedForm(formdata=None, meta={"data_roots": services().roots}))


@twin(blueprint, "/pretrained_models/new", Model)
def create() -> AnyResponse:
    """Import a model from files on the server or from uploaded files.

    Uploads are ``weights_file`` (an archive, or a file; repeated for a checkpoint), ``model_def_file`` with the source
    code of the network, and ``labels_file`` with the class names.
    """
    require_tensorflow()
    form = PretrainedForm(meta={"data_roots": services().roots})
    with uploaded_files("weights_file", "model_def_file", "labels_file") as uploads:
        if weights := uploads["weights_file"]:
            source = weights[0] if len(weights) == 1 else weights[0].parent
            form.source.validators, form.source.data = [], str(source)
        form.validate()
        if errors := errors_of(form):
            return respond_invalid(errors, lambda: _page(form))
        try:
            job = import_model(
                _recipe(form, uploads), form.job_name.data.strip(), (form.group_name.data or "").strip()
            )
        except BadRequest as error:
            if error.trace and wants_json():
                raise
            form.source.errors = [error.sentences]
            return respond_invalid({"source": form.source.errors}, lambda: _page(form))
    return respond(model_serializers.model_json(job), created=url_for("model_page.show", job_id=job.id))


@twin(blueprint, "/models/<job_id>/to_pretrained", Model)
def keep(job_id: str) -> AnyResponse:
    """Copy a snapshot to a new model that does not depend on the original model or its dataset."""
    require_tensorflow()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    snapshot = snapshot_of(job, request.values.get("epoch") or request.values.get("snapshot_epoch"))
    name = f"{job.name}, epoch {epoch_label(snapshot.epoch)}"[:NAME_LENGTH]
    described, files = archive_of(job, snapshot)
    with scratch() as folder:
        (folder / INFO_FILE).write_text(json.dumps({**described, "name": name}))
        for archived, (path, _) in files.items():
            if path.is_file() and not path.is_symlink():
                target = folder / archived
                target.parent.mkdir(exist_ok=True, parents=True)
                target.hardlink_to(path)
        kept = import_from(folder, name, job.group)
    return respond(model_serializers.model_json(kept), created=url_for("model_page.show", job_id=kept.id))


def _recipe(form: PretrainedForm, uploads: Mapping[str, list[Path]]) -> ImportModel:
    """Return the recipe of the form and of the ``uploads`` by field."""
    recipe = import_recipe(Path(form.source.data))
    recipe.network = form.network.data or None
    recipe.labels = names_of((form.labels.data or "").splitlines())
    recipe.width, recipe.height = form.width.data, form.height.data
    recipe.channels = 1 if form.image_type.data == "GRAYSCALE" else 3
    recipe.resize_mode = form.resize_mode.data
    for path in uploads["model_def_file"]:
        recipe.network = str(path)
    for path in uploads["labels_file"]:
        recipe.labels = names_of(path.read_text(encoding="utf-8-sig", errors="replace").splitlines())
    return recipe


@contextmanager
def uploaded_files(*fields: str) -> Iterator[dict[str, list[Path]]]:
    """Save the uploads of this request, and yield their paths by field; those of a field share a folder.

    Raises BadRequest for many files, and for two in a field with the same name.
    """
    uploads = {field: [file for file in request.files.getlist(field) if file.filename] for field in fields}
    count = sum(map(len, uploads.values()))
    if count > MAX_UPLOADED_FILES:
        raise BadRequest(
            f"Too many files: {count}; the maximum is {MAX_UPLOADED_FILES}.", "Upload an archive instead."
        )
    with scratch() if count else nullcontext(Path()) as folder:
        paths: dict[str, list[Path]] = {field: [] for field in fields}
        for field, files in uploads.items():
            for file in files:
                path = folder / field / uploaded_name(file.filename or "")
                if path in paths[field]:
                    raise BadRequest(f"Two of the files are called “{path.name}”.", "Rename one of them.")
                path.parent.mkdir(exist_ok=True)
                in_thread(file.save, path)
                paths[field].append(path)
        yield paths


def _page(form: PretrainedForm) -> str:
    return render_in_turns("pretrained_new.html", form=form)


@blueprint.get("/pretrained_models/<job_id>.json")
def show_json(job_id: str) -> AnyResponse:
    return redirect(url_for("models.show_json", job_id=find_job("pretrained_models", job_id).id))


@blueprint.post("/pretrained_models/upload_archive")
def upload_archive() -> Response:
    """Import a model from an uploaded ``archive`` in the format of “Download”."""
    require_tensorflow()
    with uploaded_files("archive") as uploads:
        if len(uploads["archive"]) != 1:
            raise BadRequest(
                f"{count_of(len(uploads['archive']), 'archive')} were uploaded instead of one.",
                "Send a tar or zip file in the field “archive”.",
            )
        job = import_from(uploads["archive"][0])
    return jsonify(status="success", id=job.id, name=job.name)
