"""Traces of training steps: a page that draws them, and the routes of DIGITS 6."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core import step_traces
from digits.core.errors import BadRequest, NotFound
from digits.core.model_job import ModelJob
from digits.kinds.request_fields import whole
from digits.web.jobs import serializers
from digits.web.jobs.access import requested_job
from digits.web.offload import in_thread
from digits.web.responses.files import send_job_file
from digits.web.responses.negotiation import json_only
from digits.web.responses.pages import render_in_turns
from digits.web.services import services

blueprint = Blueprint("traces", __name__)


@blueprint.get("/models/<job_id>/timeline")
def show(job_id: str) -> str:
    """Show the trace of ``step``, by default the last one."""
    job = services().store.get(job_id, ModelJob)
    steps = in_thread(step_traces.steps_in, job.folder)
    step = whole(request.args, "step", steps[-1] if steps else None)
    if step is not None and step not in steps:
        raise NotFound(f"There is no trace of step {step:,}.", "Choose one of the steps on the page.")
    url = url_for("jobs.file", path=f"{job.id}/{step_traces.file_name(step)}") if step is not None else None
    return render_in_turns("timeline.html", job=serializers.row(job), steps=steps, step=step, url=url)


@blueprint.get("/models/<job_id>/timeline.json")
def show_json(job_id: str) -> Response:
    """Return the steps that have a trace."""
    job = services().store.get(job_id, ModelJob)
    return jsonify(steps=in_thread(step_traces.steps_in, job.folder))


@blueprint.post("/models/timeline_trace_data")
@json_only
def trace() -> Response:
    """Return the trace of ``step`` in Chrome's trace format."""
    job, step = requested_job(ModelJob), whole(request.values, "step", None, 1)
    if step is None:
        raise BadRequest("The step is missing.", "Specify one that GET /models/ID/timeline.json lists.")
    return send_job_file(job.folder, step_traces.file_name(step), "application/json")


@blueprint.get("/models/images/<any(classification, generic):place>/timeline_tracing")
def digits_timeline(place: str) -> AnyResponse:
    return redirect(url_for("traces.show", job_id=requested_job(ModelJob).id))


@blueprint.get("/models/images/<any(classification, generic):place>/large_graph")
def digits_charts(place: str) -> AnyResponse:
    """Redirect to the page of the model, whose charts have many more points than those of DIGITS 6."""
    return redirect(url_for("model_page.show", job_id=requested_job(ModelJob).id))
