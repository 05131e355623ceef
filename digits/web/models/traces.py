"""Traces of training steps: a page that draws them."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request, url_for

from digits.core import step_traces
from digits.core.errors import NotFound
from digits.core.model_job import ModelJob
from digits.kinds.request_fields import whole
from digits.web.jobs import serializers
from digits.web.offload import in_thread
from digits.web.resources.models import TracedSteps
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import returns
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
@returns(TracedSteps)
def show_json(job_id: str) -> Response:
    """Return the steps that have a trace."""
    job = services().store.get(job_id, ModelJob)
    return jsonify(TracedSteps(in_thread(step_traces.steps_in, job.folder)))
