"""Traces of training steps: a page that draws them."""

from __future__ import annotations

from flask import Blueprint, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core import step_traces
from digits.core.errors import NotFound
from digits.core.model_job import ModelJob
from digits.kinds.request_fields import whole
from digits.web.jobs import serializers
from digits.web.offload import in_thread
from digits.web.resources.models import TracedSteps
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import respond, twin
from digits.web.services import services

blueprint = Blueprint("traces", __name__)


@twin(blueprint, "/models/<job_id>/timeline", TracedSteps, "GET")
def show(job_id: str) -> AnyResponse:
    """Return the steps that have a trace, or the page with the trace of ``step``, by default the last one."""
    job = services().store.get(job_id, ModelJob)
    steps = in_thread(step_traces.steps_in, job.folder)
    return respond(TracedSteps(steps), page=lambda: _page(job, steps))


def _page(job: ModelJob, steps: list[int]) -> str:
    step = whole(request.args, "step", steps[-1] if steps else None)
    if step is not None and step not in steps:
        raise NotFound(f"There is no trace of step {step:,}.", "Choose one of the steps on the page.")
    url = url_for("jobs.file", path=f"{job.id}/{step_traces.file_name(step)}") if step is not None else None
    return render_in_turns("timeline.html", job=serializers.row(job), steps=steps, step=step, url=url)
