"""The exports of models: start one, follow it, and download its archive."""

from __future__ import annotations

from functools import partial

from flask import Blueprint, Response, jsonify, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.files import files_below
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Export, ExportFormat
from digits.core.snapshot_list import Snapshot
from digits.core.status import Status
from digits.data.archives.writing import Entry, existing, stream
from digits.data.models import export as exports
from digits.data.models.export import FORMATS, ModelExport
from digits.kinds.jobs import DatasetJob
from digits.runtime.short_tasks import EXPORTED_FOLDER
from digits.web.jobs.access import check_owner
from digits.web.models.export_panel import finished, formats, refusals, state, url_of
from digits.web.models.snapshots import snapshot_of
from digits.web.offload import in_thread
from digits.web.resources.encoding import describe
from digits.web.resources.exports import ExportResult, Exports, RequestedExport
from digits.web.responses.archives import archive_response, check_ending
from digits.web.responses.representation import respond, returns, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("model_export", __name__)

_NAMES = ", ".join(f'"{name}"' for name in FORMATS)


@twin(blueprint, "/models/<job_id>/export", RequestedExport)
def start(job_id: str) -> AnyResponse:
    """Export the snapshot of ``snapshot_epoch``, by default the best one, in a ``format``.

    An export that exists is kept: the response then has the status 200, else 202.
    """
    require_tensorflow()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    format_ = _format(request.form.get("format", ""))
    if refusal := refusals(job).get(format_):
        raise BadRequest(refusal.message, refusal.hint)
    check_has_dataset(job)
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch") or request.form.get("epoch"))
    is_made = in_thread(exports.find, job.folder, snapshot.name, format_) is not None
    if not is_made:
        if services().background["export"].state(job.id):
            raise NotReady(f"“{job.name}” is being exported.", "Try again when the export has finished.")
        services().background["export"].start(job, _recipe(job, snapshot, format_))
    page = url_for("model_page.show", job_id=job.id, _anchor="export")
    return respond(
        lambda: describe(RequestedExport, _exports(job), snapshot=snapshot.name),
        created=page,
        status=200 if is_made else 202,
    )


@blueprint.get("/models/<job_id>/export.json")
@returns(Exports)
def show_json(job_id: str) -> Response:
    """Return the state of the current export, all finished ones, and the formats."""
    return jsonify(_exports(services().store.get(job_id, ModelJob)))


@blueprint.get(f"/models/<job_id>/export/<any({_NAMES}):format_>.<ending>")
def download(job_id: str, format_: str, ending: str) -> Response:
    """Download an export of the snapshot of ``epoch``, by default the best one, as an archive."""
    job = services().store.get(job_id, ModelJob)
    check_ending(ending)
    chosen, snapshot = _format(format_), snapshot_of(job, request.args.get("epoch"))
    made = in_thread(exports.find, job.folder, snapshot.name, chosen)
    if made is None:
        raise NotFound(
            f"Epoch {epoch_label(snapshot.epoch)} of “{job.name}” has not been exported as {FORMATS[chosen].title}.",
            "Export it on the page of the model.",
        )
    name = f"{job.id}_epoch_{epoch_label(made.epoch)}_{chosen}"
    return archive_response(name, ending, stream(ending, in_thread(_entries, job, made)))


def _exports(job: ModelJob) -> Exports:
    exported = [describe(ExportResult, item, url=url_of(job, item)) for item in finished(job)]
    return describe(Exports, state(job), exports=exported, formats=formats(job))


def _format(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise BadRequest(f"Unknown format “{name[:40]}”.", f"Use one of {', '.join(FORMATS)}.")
    return name


def _recipe(job: ModelJob, snapshot: Snapshot, format_: ExportFormat) -> Export:
    return Export(
        model=str(job.folder),
        snapshot=snapshot.name,
        dataset=str(job.dataset_folder),
        target=str(exports.folder_of(job.folder, snapshot.name, format_)),
        format=format_,
        replace=True,
    )


def _entries(job: ModelJob, made: ModelExport) -> list[Entry]:
    """Return the files of an export; a SavedModel has the folders of TensorFlow Serving, with the step as version."""
    folder = exports.folder_of(job.folder, made.snapshot, made.format)
    entries: list[Entry] = []
    for path in files_below(folder):
        name = path.relative_to(folder).as_posix()
        if made.format == "savedmodel" and name not in exports.BESIDE:
            name = f"{exports.SERVED_FOLDER}/{max(1, made.step)}/{name}"
        entries.append((name, (path, job.folder)))
    return entries


@blueprint.get("/models/<job_id>/savedmodel.<ending>")
@not_from_other_sites
def saved_model(job_id: str, ending: str) -> Response:
    """Export a snapshot as a SavedModel: the network, its weights and the preprocessing of images."""
    require_tensorflow()
    check_ending(ending)
    job = services().store.get(job_id, ModelJob)
    check_has_dataset(job)
    snapshot = snapshot_of(job, request.values.get("epoch"))
    made = services().short_tasks.export(job.folder, snapshot.name, job.dataset_folder)
    if made.state.failure:
        raise BadRequest(made.state.failure.message, made.state.failure.hint)
    target = made.folder / EXPORTED_FOLDER
    files = {path.relative_to(target).as_posix(): (path, target) for path in files_below(target)}
    name = f"{job.id}_epoch_{epoch_label(snapshot.epoch)}_savedmodel"
    response = archive_response(name, ending, stream(ending, existing(dict(sorted(files.items())))))
    response.call_on_close(partial(services().short_tasks.forget, made))
    return response


def check_has_dataset(job: ModelJob) -> None:
    """Raise BadRequest if the dataset that the export of ``job`` reads is missing or not done."""
    dataset = services().store.find(job.dataset_id)
    if not job.is_imported and (not isinstance(dataset, DatasetJob) or dataset.status is not Status.DONE):
        reason = "was deleted" if dataset is None else f"is {dataset.status.title.lower()}"
        raise BadRequest(
            f"“{job.name}” cannot be exported: its dataset {reason}.",
            "The dataset contains the mean image and the images for the verification.",
        )
