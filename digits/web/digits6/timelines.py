"""The routes of DIGITS 6 for traces of training steps, and for pages that became parts of the page of a model."""

from __future__ import annotations

from flask import Blueprint, Response, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core import step_traces
from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.kinds.forms.request_fields import whole
from digits.web.jobs.access import requested_job
from digits.web.responses.files import send_job_file
from digits.web.responses.negotiation import json_only

blueprint = Blueprint("timelines", __name__)


@blueprint.post("/models/timeline_trace_data")
@json_only
def trace() -> Response:
    """Return the trace of ``step`` in Chrome's trace format."""
    job, step = requested_job(ModelJob), whole(request.values, "step", None, 1)
    if step is None:
        raise BadRequest("The step is missing.", "Specify one that GET /models/ID.json lists in step_traces.")
    return send_job_file(job.folder, step_traces.file_name(step), "application/json")


@blueprint.get("/models/images/<any(classification, generic):place>/timeline_tracing")
@blueprint.get("/models/images/<any(classification, generic):place>/large_graph")
def model(place: str) -> AnyResponse:
    """Redirect to the page of the model, which lists the traces, and whose charts have more points than in DIGITS 6."""
    return redirect(url_for("model_page.show", job_id=requested_job(ModelJob).id))
