"""Actions on models: their JSON, metrics and downloads, and how a training resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
from flask import (
    Blueprint,
    Response,
    jsonify,
    request,
    url_for,
)
from werkzeug.wrappers import Response as AnyResponse

from digits.core import events
from digits.core.errors import BadRequest, NotAllowed
from digits.core.events import Measured, Resumed, for_browser
from digits.core.metrics import csv_rows
from digits.core.metrics.series import row_json
from digits.core.model_job import ModelJob, epoch_label, trace_name
from digits.core.results import preflight_result as preflights
from digits.core.task import EVENTS_FILE
from digits.data.archives.writing import existing, stream
from digits.data.models.archive import INFO_FILE
from digits.kinds.forms.request_fields import whole
from digits.runtime.offload import in_turns
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner, requested_job
from digits.web.jobs.snapshots import snapshot_of
from digits.web.models import continuing
from digits.web.models import serializers as model_serializers
from digits.web.models.archives import archive_of
from digits.web.resources.models import Curves, Model
from digits.web.responses.files import archive_response, check_ending, send_job_file
from digits.web.responses.representation import json_only, respond, returns
from digits.web.services import services

blueprint = Blueprint("models", __name__)


@blueprint.get("/models/<job_id>.json")
@returns(Model)
def show_json(job_id: str) -> Response:
    return jsonify(model_serializers.model_json(_model(job_id)))


@blueprint.post("/models/<job_id>/resume")
def resume(job_id: str) -> AnyResponse:
    """Resume an aborted or failed training, or restart it if it has not saved anything.

    With ``train_epochs``, the new number of epochs in all, or ``more_epochs``, a finished one continues, too.
    """
    job = _model(job_id)
    check_owner(job)
    epochs = continuing.epochs_of_request(job)
    if epochs is None and not job.can_resume:
        raise NotAllowed(
            f"“{job.name}” cannot be resumed: it is {job.status.title.lower()}.",
            "Set train_epochs or more_epochs to continue a finished training."
            if continuing.can_continue(job)
            else "Only aborted and failed training jobs can be resumed.",
        )
    services().scheduler.resume(job, None if epochs is None else partial(job.train_until, epochs))
    return respond(serializers.brief(job), created=url_for("model_page.show", job_id=job.id))


@blueprint.get("/models/<job_id>/metrics.json")
@returns(Curves)
def metrics(job_id: str) -> Response:
    """Return the metrics as columns; with ``after``, only the rows after that cursor.

    ``resumed`` means that some rows replace earlier ones, so that all metrics must be fetched again.
    """
    job = _model(job_id)
    task = job.tasks[0]
    after = whole(request.args, "after", None, 0)
    if after is None:
        state = services().scheduler.task_state(job, task)
        # For many numbers, much faster than Flask's JSON provider.
        curves = Curves(
            state.cursor,
            **state.metrics.as_json(),
            marks=model_serializers.marks(job, model_serializers.snapshots(job)),
        )
        body = msgspec.json.encode(curves)
        return Response(body, mimetype="application/json")
    rows = _rows_after(job.task_folder(task) / EVENTS_FILE, after)
    return Response(in_turns(rows), mimetype="application/json")


def _rows_after(log: Path, after: int) -> Iterator[bytes]:
    """Stream the rows after the cursor ``after`` as JSON. Pieces may be empty."""
    cursor, resumed, separator = after, False, b""
    yield b'{"rows":['
    for happened, end in events.row_turns(log, after, until=events.end(log)):
        cursor = end
        rows = [row_json(event) for event in happened if isinstance(event, Measured)]
        resumed = resumed or any(isinstance(event, Resumed) for event in happened)
        yield separator + msgspec.json.encode(rows)[1:-1] if rows else b""
        separator = b"," if rows else separator
    yield b"],%s" % msgspec.json.encode({"cursor": cursor, "resumed": resumed})[1:]


@blueprint.get("/models/<job_id>/metrics.csv")
def metrics_table(job_id: str) -> Response:
    job = _model(job_id)
    return Response(
        in_turns(csv_rows.table(job.task_folder(job.tasks[0]) / EVENTS_FILE)),
        mimetype="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{job.id}-metrics.csv"'},
    )


# Flask would redirect download.tar.gz to the rule that has it as a default.
@blueprint.route("/models/<job_id>/download", methods=["GET", "POST"])
@blueprint.route("/models/<job_id>/download.<ending>", methods=["GET", "POST"])
def download(job_id: str, ending: str = "tar.gz") -> Response:
    """Download a snapshot with everything needed to use it: network, labels, mean, description.

    It is that of ``epoch`` or ``snapshot_epoch``, by default the newest one, as in DIGITS 6.
    """
    job = _model(job_id)
    check_ending(ending)
    snapshot = snapshot_of(job, request.values.get("epoch") or request.values.get("snapshot_epoch") or "-1")
    described, files = archive_of(job, snapshot)
    about = json.dumps(for_browser(described), indent=2, sort_keys=True)
    name = f"{job.id}_epoch_{epoch_label(snapshot.epoch)}"
    return archive_response(name, ending, stream(ending, [(INFO_FILE, about.encode()), *existing(files)]))


@blueprint.post("/models/timeline_trace_data")
@json_only
def trace() -> Response:
    """Return the trace of ``step`` in Chrome's trace format."""
    job, step = requested_job(ModelJob), whole(request.values, "step", None, 1)
    if step is None:
        raise BadRequest("The step is missing.", "Specify one that GET /models/ID.json lists in step_traces.")
    return send_job_file(job.folder, trace_name(step), "application/json")


@blueprint.get("/models/<job_id>/batch.png")
def first_batch(job_id: str) -> Response:
    """Return a picture of the first batch as the network's input, once the training has taken a step."""
    return send_job_file(_model(job_id).folder, preflights.PICTURE_FILE, "image/png")


def _model(job_id: str) -> ModelJob:
    return services().store.get(job_id, ModelJob)
