"""The health checks of datasets as JSON, and for the dataset's page."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from digits.core.errors import BadRequest
from digits.core.status import Status
from digits.kinds.jobs import DatasetJob
from digits.web.datasets.health_panel import load_health, load_label_check, state
from digits.web.jobs.access import check_owner
from digits.web.resources.encoding import describe
from digits.web.resources.health import HealthState
from digits.web.resources.tasks import TaskProgress
from digits.web.responses.representation import returns
from digits.web.services import services
from digits.web.services.background_recipes import health_check

blueprint = Blueprint("health", __name__)


@blueprint.post("/datasets/<job_id>/health")
@returns(TaskProgress)
def start(job_id: str) -> tuple[Response, int]:
    """Start the health check of a dataset, again if it has been checked before."""
    job = services().store.get(job_id, DatasetJob)
    check_owner(job)
    if job.status is not Status.DONE:
        raise BadRequest(f"“{job.name}” cannot be checked: it is {job.status.title}, not Done.")
    services().background["health"].start(job, health_check(job))
    return jsonify(state(job)), 202


@blueprint.get("/datasets/<job_id>/health.json")
@returns(HealthState)
def show(job_id: str) -> Response:
    """Return the state of the check, and the result if there is one."""
    job = services().store.get(job_id, DatasetJob)
    manifest = job.manifest() if job.status is Status.DONE else None
    result, problem = load_health(job, manifest)
    labels = load_label_check(job, manifest)
    return jsonify(describe(HealthState, state(job, result, problem), result=result, labels=labels))
