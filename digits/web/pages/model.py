"""The page of a model, which shows panels of all features."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, url_for

from digits.core import events
from digits.core.model_job import ModelJob
from digits.core.results import preflight_result
from digits.kinds.builtin_views.gan.view import GenerationOptions
from digits.kinds.views import Views, curve_labels, views_of
from digits.web.evaluations import model_result
from digits.web.jobs import serializers
from digits.web.jobs.activities import panels_of
from digits.web.models import continuing
from digits.web.models import serializers as models
from digits.web.models.settings_description import device_names, settings_of
from digits.web.predictions.view_choice import rendering, views_for
from digits.web.records.images import example_images
from digits.web.responses.representation import render_in_turns
from digits.web.services import services

blueprint = Blueprint("model_page", __name__)


EXAMPLES = 6


@blueprint.get("/models/<job_id>")
def show(job_id: str) -> str:
    job = services().store.get(job_id, ModelJob)
    task = job.tasks[0]
    training = services().scheduler.task_state(job, task)
    kind, manifest = serializers.kind_of(job), serializers.manifest_of(job)
    views = views_of(kind)
    network, network_problem = models.network_text(job)
    snapshots = models.snapshots(job)
    return render_in_turns(  # there may be thousands of layers
        "model.html",
        **serializers.page(job),
        kind=kind,
        views=views,
        examples=_examples(job, views),
        **curve_labels(views),
        prediction_views=[(view, rendering(view).Options()) for view in views_for(kind)],
        gan_options=GenerationOptions(),
        training=training,
        manifest=manifest,
        snapshots=snapshots,
        marks=models.marks(job, snapshots),
        network=network,
        network_problem=network_problem,
        loaded_weights=events.facts(training.loaded_weights),
        has_first_batch=(job.folder / preflight_result.PICTURE_FILE).exists(),
        epochs=None if job.is_imported else job.recipe.epochs,
        settings=settings_of(job, manifest),
        environment=models.environment(job, manifest),
        devices=device_names(task.devices),
        step_traces=models.step_traces_of(job),
        tensorboard_url=url_for("tensorboard.proxy", job_id=job.id),
        way_back=continuing.way_back(job),
        can_continue=continuing.can_continue(job),
        schedule_note=continuing.schedule_note(job.recipe),
        result=model_result.panel(job),
        panels=panels_of(job),
        production_names=[*services().production.of(job.id)],
    )


def _examples(job: ModelJob, views: Views[Any]) -> list[tuple[str, str]]:
    """Return images of the dataset to predict from."""
    data = serializers.finished_dataset(job.dataset_id)
    if data is None or not views.takes_image or data[1].dtype != "uint8":
        return []
    return example_images(*data, EXAMPLES)
