"""The health checks of datasets, and the search for wrong labels with a trained model."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from flask import request

from digits.core.errors import BadRequest
from digits.core.files import MissingFile, UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import CheckDataset, CheckLabels, Recipe
from digits.core.status import Status
from digits.core.task import Failure
from digits.data.health import health as checks
from digits.data.health import label_check
from digits.data.health.label_check import LabelCheck
from digits.data.manifest import HEALTH_FILE, Manifest
from digits.kinds.jobs import DatasetJob, metric_rank
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs.activities import Activity
from digits.web.jobs.serializers import contents_of
from digits.web.jobs.snapshots import snapshot_of
from digits.web.records.images import RecordImages
from digits.web.resources.health import HealthState
from digits.web.security.origin import is_opened_by_another_site
from digits.web.services import Services, require_tensorflow, services

# Maximum number of models offered for finding wrong labels.
SHOWN_MODELS = 25


@dataclass(frozen=True)
class Choices:
    """The ``models`` that can find wrong labels, the best one first, and the URLs of the ``images`` of findings.

    ``models`` are None if the kind has no classes.
    """

    models: list[ModelJob] | None
    images: RecordImages


def _check(job: DatasetJob) -> Recipe:
    """Start the health check of a dataset, again if it has been checked before."""
    if job.status is not Status.DONE:
        raise BadRequest(f"“{job.name}” cannot be checked: it is {job.status.title}, not Done.")
    return _recipe(job)


def _recipe(job: DatasetJob) -> CheckDataset:
    views = views_of(job.data_kind)
    return CheckDataset(
        dataset=str(job.folder), appearance=views.checks_appearance, counts=views.checks_counts
    )


def _check_labels(job: DatasetJob) -> Recipe:
    """Find wrong labels with the trained model ``model`` and, if given, its snapshot of ``epoch``."""
    require_tensorflow()
    views = views_of(job.data_kind)
    if job.status is not Status.DONE or not views.checks_labels:
        raise BadRequest(
            f"The labels of “{job.name}” cannot be checked.",
            "Label checks require a completed dataset with classes.",
        )
    model = services().store.get(request.form.get("model", ""), ModelJob)
    if model.dataset_id != job.id:
        raise BadRequest(f"“{model.name}” was not trained on “{job.name}”.", "Choose one of its models.")
    snapshot = snapshot_of(model, request.form.get("epoch"))
    return CheckLabels(
        dataset=str(job.folder),
        model=str(model.folder),
        snapshot=snapshot.name,
        model_id=model.id,
        model_name=model.name,
        weights=services().feature_weights if views.checks_appearance else "",
    )


def _load(job: DatasetJob) -> dict[str, Any]:
    """Return the latest result of both checks; None for one that is missing, and the ``damage`` of the first."""
    manifest = contents_of(job)
    if manifest is None:
        return {"result": None, "labels": None}
    labels = _load_labels(job, manifest)
    try:
        return {"result": in_thread(checks.load, job.folder, manifest), "labels": labels}
    except MissingFile:
        return {"result": None, "labels": labels}
    except UnreadableFile as error:
        damage = Failure(f"The result of the check is damaged: {error}.", "Check the dataset again.")
        return {"result": None, "labels": labels, "damage": damage}


def _load_labels(job: DatasetJob, manifest: Manifest) -> LabelCheck | None:
    try:
        return label_check.load(job.folder, manifest)
    except UnreadableFile:
        return None


def _is_checking(job: DatasetJob, recipe: Recipe) -> bool:
    return isinstance(recipe, CheckDataset) and bool(health.tasks.tasks(job.id))


def _first(site: Services, job: DatasetJob) -> list[Recipe]:
    return [_recipe(job)] if site.settings.health_checks else []


def _start_missing(job: DatasetJob) -> None:
    """Start the check of a dataset without a result, unless another site opened the page."""
    is_new = not (job.folder / HEALTH_FILE).exists() and health.tasks.failure(job.id) is None
    if is_new and services().settings.health_checks and not is_opened_by_another_site(request.environ):
        health.tasks.start(job, _recipe(job))


def _choices(job: DatasetJob) -> Choices | None:
    manifest = job.manifest()
    if manifest is None:
        return None
    images = RecordImages(job, manifest)
    if not views_of(job.data_kind).checks_labels:
        return Choices(None, images)
    children = services().store.children(job)
    done = (child for child in children if isinstance(child, ModelJob) and child.status is Status.DONE)
    latest = itertools.islice(done, SHOWN_MODELS)
    return Choices(sorted(latest, key=lambda model: _rank(model, job), reverse=True), images)


def _rank(model: ModelJob, dataset: DatasetJob) -> tuple[bool, float]:
    return metric_rank(model, dataset) or (False, -math.inf)


health = Activity(
    name="health",
    path="health",
    noun="check",
    title="Health",
    job_type=DatasetJob,
    task_folder="check",
    pool="health",
    results=HEALTH_FILE,
    recipe=_check,
    other_recipes={"label-check": _check_labels},
    is_done=_is_checking,
    resource=HealthState,
    result=_load,
    choices=_choices,
    template="_health.html",
    first=_first,
    opened=_start_missing,
    needs_tensorflow=False,
    is_json_only=True,
)
