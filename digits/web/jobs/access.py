"""The jobs that requests name, and the permission to change them."""

from __future__ import annotations

from typing import TypeVar

from flask import request

from digits.core.errors import BadRequest, NotAllowed, NotFound
from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.job import LabelsJob
from digits.web.security.sessions import login_name
from digits.web.services import services

_KINDS: dict[str, type[Job]] = {
    "jobs": Job,
    "datasets": DatasetJob,
    "models": ModelJob,
    "pretrained_models": ModelJob,
    "labels": LabelsJob,
}

AnyJob = TypeVar("AnyJob", bound=Job)


def find_job(place: str, job_id: str) -> Job:
    """Return a job of the type of a ``place`` in URLs, such as ``models``; raises NotFound."""
    job = services().store.get(job_id, _KINDS[place])
    if place == "pretrained_models" and isinstance(job, ModelJob) and not job.is_imported:
        raise NotFound(f"“{job.name}” is not a pretrained model.", f"Its page is /models/{job.id}.")
    return job


def check_owner(job: Job) -> None:
    """Raise NotAllowed if the job's owner is not this request's user."""
    user = login_name(request)
    if job.owner and user and job.owner != user:
        raise NotAllowed(f"“{job.name}” belongs to {job.owner}.", "Ask the owner, or log in under that name.")


def requested_job(job_type: type[AnyJob]) -> AnyJob:
    """Return the job ``job_id`` of this request. Raises BadRequest if it is missing, NotFound if there is none."""
    job_id = request.values.get("job_id", "").strip()
    if not job_id:
        raise BadRequest("The job_id is missing.", f"Specify the id of a {job_type.type}.")
    return services().store.get(job_id, job_type)
