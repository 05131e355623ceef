"""Routes that all jobs share: rename, abort, delete, clone, and their files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from flask import (
    Blueprint,
    Response,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, DigitsError, InUse, NotAllowed, NotFound, Outdated, explain
from digits.core.job import DamagedJob, Job, is_id
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.forms.request_fields import choice, whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.versions.versions import CreateVersion
from digits.runtime.changes import JobEdited
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner, find_job
from digits.web.resources.actions import (
    Aborted,
    AbortedJobs,
    Deleted,
    DeletedJobs,
    RegroupedJobs,
    Suggestions,
)
from digits.web.resources.jobs import JobOutput, JobStatus, JobTexts
from digits.web.responses.files import send_job_file
from digits.web.responses.representation import returns
from digits.web.services import services

blueprint = Blueprint("jobs", __name__)

MAX_NOTES_CHARACTERS = 20_000
OUTPUT_BYTES = 256 * 1024
# Job files are untrusted. Only these types are displayed in the browser; all others are downloaded.
_SHOWN_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".py": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "text/plain; charset=utf-8",
}
# The attribute that each field changes, and the maximum number of characters.
_EDITABLE = {
    "job_name": ("name", NAME_LENGTH),
    "job_notes": ("notes", MAX_NOTES_CHARACTERS),
    "group_name": ("group", NAME_LENGTH),
}


@blueprint.get("/jobs/<job_id>")
def show(job_id: str) -> AnyResponse | str:
    job = find_job("jobs", job_id)
    if isinstance(job, DamagedJob):
        return render_template("damaged.html", **serializers.page(job))
    return redirect(serializers.row(job).url)


@blueprint.get("/<any(jobs, datasets, models, pretrained_models, labels):place>/<job_id>/status")
@returns(JobStatus)
def status(place: str, job_id: str) -> Response:
    return jsonify(serializers.status(find_job(place, job_id)))


@blueprint.get("/jobs/<job_id>/output", endpoint="output")
@returns(JobOutput)
def output_text(job_id: str) -> Response:
    """Return what the job's task printed after a byte offset, and the next offset."""
    job = find_job("jobs", job_id)
    if isinstance(job, DamagedJob):
        raise job.error()
    after = whole(request.args, "after", 0, 0)
    text, offset = services().executor.output(job.task_folder(job.tasks[0]), after, OUTPUT_BYTES)
    return jsonify(JobOutput(text, offset))


@blueprint.put("/<any(jobs, datasets, models, pretrained_models, labels):place>/<job_id>")
@returns(JobTexts)
def edit(place: str, job_id: str) -> Response:
    """Change the name, notes or group.

    With ``job_notes_before``, raises Outdated if the notes are no longer these, so that nobody's notes are overwritten
    by somebody who has not seen them.
    """
    job = find_job(place, job_id)
    changes = _changes_of_request(*_EDITABLE)
    before = request.form.get("job_notes_before")
    if before is not None and _text(job.notes) not in (_text(before), changes.get("notes")):
        raise Outdated("The notes were changed in the meantime.", "Load them again before you change them.")
    _edit(job, changes)
    return jsonify(JobTexts(job.name, job.notes, job.group))


@blueprint.post("/group")
@returns(RegroupedJobs)
def group() -> Response:
    """Move jobs to the group ``group_name``; an empty name removes them from their groups."""
    changes = _changes_of_request("group_name")
    return jsonify(RegroupedJobs(_each(lambda job: _edit(job, changes), "regrouped")))


def _changes_of_request(*fields: str) -> dict[str, str]:
    """Return the new values of attributes in ``fields`` of the request. Raises BadRequest if there are none."""
    changes: dict[str, str] = {}
    for field in fields:
        if field not in request.form:
            continue
        attribute, longest = _EDITABLE[field]
        text = _text(request.form[field])
        if attribute == "name" and not text:
            raise BadRequest("The name must not be empty.")
        if len(text) > longest:
            raise BadRequest(f"The text must be at most {longest:,} characters long.")
        changes[attribute] = text
    if not changes:
        raise BadRequest(f"Specify {' or '.join(fields)}.")
    return changes


def _edit(job: Job, changes: dict[str, str]) -> None:
    if isinstance(job, DamagedJob):
        raise job.error()
    check_owner(job)
    services().store.edit(job, **changes)
    for attribute in changes:
        services().report(JobEdited(job, attribute))


def _text(typed: str) -> str:
    """Return text without surrounding space; forms separate lines by CR LF."""
    return typed.replace("\r\n", "\n").strip()


@blueprint.delete("/<any(jobs, datasets, models, pretrained_models, labels):place>/<job_id>")
@returns(Deleted)
def delete(place: str, job_id: str) -> Response:
    job = find_job(place, job_id)
    _delete(job)
    return jsonify(Deleted(job.id))


@blueprint.route("/jobs", methods=["DELETE"])
@returns(DeletedJobs)
def delete_many() -> Response:
    """Delete jobs: those that use another one first, such as the models of a dataset."""
    for job_id in request.form.getlist("job_ids[]"):
        # First, so that their processes end at the same time. Errors are reported below.
        with contextlib.suppress(DigitsError, OSError):
            job = find_job("jobs", job_id)
            _check_deletable(job)
            services().scheduler.abort(job)
    return jsonify(DeletedJobs(_each(_delete, "deleted")))


@blueprint.post("/<any(jobs, datasets, models, pretrained_models, labels):place>/<job_id>/abort")
@returns(Aborted)
def abort(place: str, job_id: str) -> Response:
    job = find_job(place, job_id)
    _abort(job)
    return jsonify(Aborted(job.id))


@blueprint.post("/abort_jobs")
@returns(AbortedJobs)
def abort_many() -> Response:
    return jsonify(AbortedJobs(_each(_abort, "aborted")))


@blueprint.route("/clone/<job_id>", methods=["GET", "POST"])
def clone(job_id: str) -> AnyResponse:
    job = find_job("jobs", job_id)
    if isinstance(job, DamagedJob):
        raise job.error()
    if isinstance(job, LabelsJob):
        raise BadRequest(
            "Labels cannot be cloned.", "Create labels for the same folder, or a dataset from these."
        )
    fields: dict[str, Any] = {"clone": job.id, **request.args}
    if isinstance(job, DatasetJob) and isinstance(job.recipe, CreateVersion):
        return redirect(url_for("versions.new", job_id=job.recipe.parent_id, **fields))
    if isinstance(job, DatasetJob) and (labels := serializers.labels_of(job)) and labels.url:
        return redirect(labels.url)
    page = "model_form.new" if job.type == "model" else "datasets.new"
    return redirect(url_for(page, kind=serializers.kind_of(job), **fields))


@blueprint.get("/files/<path:path>")
def file(path: str) -> Response:
    """Send a file from a job's folder."""
    job_id, _, name = path.partition("/")
    if not is_id(job_id) or services().store.find(job_id) is None or "/." in f"/{name}":
        raise NotFound("There is no such file.")
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    response = send_job_file(services().store.get(job_id, Job).folder, name, _SHOWN_TYPES.get(suffix))
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    return response


@blueprint.get("/autocomplete/path")
@returns(Suggestions)
def complete_path() -> Response:
    """Return paths below the data roots that start with ``query``; with ``type=folder``, only folders."""
    only_folders = choice(request.args, "type", "any", ("any", "file", "folder")) == "folder"
    paths = services().roots.complete(request.args.get("query", ""), only_folders=only_folders)
    return jsonify(Suggestions(paths))


@blueprint.get("/autocomplete/group")
@returns(Suggestions)
def complete_group() -> Response:
    """Return groups whose names contain all words of ``query``."""
    words = request.args.get("query", "")
    return jsonify(Suggestions(services().store.index.groups(words, serializers.SUGGESTED_GROUPS)))


def _check_deletable(job: Job) -> None:
    check_owner(job)
    served = services().production.of(job.id)
    if served:
        names = ", ".join(f"“{name}”" for name in served)
        raise InUse(
            f"“{job.name}” is in production as {names}.",
            "Promote another model to this name, or remove it under Production models."
            if len(served) == 1
            else "Promote other models to these names, or remove them under Production models.",
        )
    services().store.check_deletable(job)


def _delete(job: Job) -> None:
    _check_deletable(job)
    services().inference.stop(job.id)
    for tasks in services().background.values():
        tasks.stop(job.id)
    services().tensorboards.stop(job.id)
    services().scheduler.remove(job)


def _abort(job: Job) -> None:
    check_owner(job)
    if not services().scheduler.abort(job):
        raise NotAllowed(f"“{job.name}” is not running: it is {job.status.title.lower()}.")


def _uses_none(job_id: str) -> bool:
    job = services().store.find(job_id)
    return job is None or not job.needs()


def _each(act: Callable[[Job], object], done: str) -> list[str]:
    """Return the ids of the jobs of this request, after ``act`` on each; raises an error about all that refused."""
    ids = [*dict.fromkeys(request.form.getlist("job_ids[]"))]
    if not ids:
        raise BadRequest("Specify the jobs as job_ids[].")
    ids.sort(key=_uses_none)
    refused: dict[str, DigitsError] = {}
    for job_id in ids:
        try:
            act(find_job("jobs", job_id))
        except DigitsError as error:
            refused[job_id] = error
        except OSError as error:
            known = explain(error)
            if known is None:
                raise
            refused[job_id] = known
    if refused:
        # One status for all errors: that of a disk error, if there is one.
        kind = max((type(error) for error in refused.values()), key=lambda kind: kind.http_status)
        said = " ".join(dict.fromkeys(error.message for error in refused.values()))
        raise (kind if kind.http_status >= 500 else BadRequest)(
            f"{len(refused)} of {len(ids)} jobs were not {done}: {said}"
        )
    return ids
