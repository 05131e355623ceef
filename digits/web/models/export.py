"""The exports of models: start one, follow it, and download its archive."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from flask import Response, request, url_for

from digits.core.errors import BadRequest, NotFound
from digits.core.files import files_below
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Export, ExportFormat
from digits.core.status import Status
from digits.data.archives.writing import Entry, existing, stream
from digits.data.models import export as exports
from digits.data.models.export import FORMATS, ModelExport, Refusal
from digits.kinds import standard_networks
from digits.kinds.jobs import DatasetJob
from digits.runtime.offload import in_thread
from digits.runtime.short_tasks import EXPORTED_FOLDER
from digits.web.jobs.activities import Activity
from digits.web.jobs.snapshots import snapshot_of
from digits.web.resources.encoding import describe
from digits.web.resources.exports import ExportResult, Exports, FormatRow
from digits.web.responses.files import archive_response, check_ending
from digits.web.security.origin import not_from_other_sites
from digits.web.services import require_tensorflow, services

_NAMES = ", ".join(f'"{name}"' for name in FORMATS)


def _recipe(job: ModelJob) -> Export:
    """Export the snapshot of ``snapshot_epoch``, by default the best one, in a ``format``.

    An export that exists is kept: the response then has the status 200, else 202.
    """
    format_ = _format(request.form.get("format", ""))
    if refusal := in_thread(_refusals, job).get(format_):
        raise BadRequest(refusal.message, refusal.hint)
    check_has_dataset(job)
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch") or request.form.get("epoch"))
    return Export(
        model=str(job.folder),
        snapshot=snapshot.name,
        dataset=str(job.dataset_folder),
        target=str(exports.folder_of(job.folder, snapshot.name, format_)),
        format=format_,
        replace=True,
    )


def _result(job: ModelJob) -> dict[str, Any]:
    """Return the exports of the current snapshots, the newest first, and all formats."""
    names = (snapshot.name for snapshot in in_thread(job.snapshots))
    refused = in_thread(_refusals, job)
    return {
        "exports": [
            describe(ExportResult, made, url=_url_of(job, made))
            for made in in_thread(exports.find_all, job.folder, names)
        ],
        "formats": [
            FormatRow(name, item.title, item.use, refused.get(name)) for name, item in FORMATS.items()
        ],
    }


def _refusals(job: ModelJob) -> dict[str, Refusal]:
    """Return the formats in which the model cannot be exported; reads files."""
    standard = standard_networks.of_model(job)
    reasons = standard.refusals if standard else {}
    words = "The network cannot be exported in this format:"
    return {
        **{name: Refusal(message=f"{words} {reason}") for name, reason in reasons.items()},
        **({"litert-int8": exports.IMPORTED_IN_INT8} if job.is_imported else {}),
        **exports.refusals(job.folder),
    }


def _url_of(job: ModelJob, made: ModelExport) -> str:
    epoch = int(made.epoch) if made.epoch.is_integer() else made.epoch
    return url_for("export.download", job_id=job.id, format_=made.format, ending="zip", epoch=epoch)


export = Activity(
    name="export",
    path="export",
    noun="export",
    title="Export",
    job_type=ModelJob,
    task_folder="export",
    pool="export",
    results=exports.FOLDER,
    recipe=_recipe,
    is_done=lambda job, recipe: (
        in_thread(exports.find, job.folder, recipe.snapshot, recipe.format) is not None
    ),
    key=lambda recipe: Path(recipe.target).name,
    task_title=lambda job, recipe: FORMATS[recipe.format].title,
    resource=Exports,
    result=_result,
    started=lambda job, recipe: {"snapshot": recipe.snapshot},
    choices=lambda job: exports,
    template="_export.html",
)
blueprint = export.blueprint


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


def _format(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise BadRequest(f"Unknown format “{name[:40]}”.", f"Use one of {', '.join(FORMATS)}.")
    return name


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
