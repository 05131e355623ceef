"""Find wrong labels of a dataset with a trained model."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from digits.core.errors import BadRequest, NotReady
from digits.core.model_job import ModelJob
from digits.core.recipe import CheckLabels
from digits.core.status import Status
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.datasets.health_panel import state
from digits.web.jobs.access import check_owner
from digits.web.models.snapshots import snapshot_of
from digits.web.resources.tasks import TaskProgress
from digits.web.responses.representation import returns
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("label_check", __name__)


@blueprint.post("/datasets/<job_id>/label-check")
@returns(TaskProgress)
def check_labels(job_id: str) -> tuple[Response, int]:
    """Find wrong labels with the trained model ``model`` and, if given, its snapshot of ``epoch``."""
    require_tensorflow()
    job = services().store.get(job_id, DatasetJob)
    check_owner(job)
    if job.status is not Status.DONE or not views_of(job.data_kind).checks_labels:
        raise BadRequest(
            f"The labels of “{job.name}” cannot be checked.",
            "Label checks require a completed dataset with classes.",
        )
    model = services().store.get(request.form.get("model", ""), ModelJob)
    if model.dataset_id != job.id:
        raise BadRequest(f"“{model.name}” was not trained on “{job.name}”.", "Choose one of its models.")
    snapshot = snapshot_of(model, request.form.get("epoch"))
    if services().background["health"].state(job.id):
        raise NotReady(f"“{job.name}” is being checked.", "Try again when the check has finished.")
    recipe = CheckLabels(
        dataset=str(job.folder),
        model=str(model.folder),
        snapshot=snapshot.name,
        model_id=model.id,
        model_name=model.name,
    )
    services().background["health"].start(job, recipe)
    return jsonify(state(job)), 202
