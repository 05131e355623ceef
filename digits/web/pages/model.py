"""The page of a model, which shows panels of all features."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from digits.core.model_job import ModelJob
from digits.kinds.builtin_views.gan.view import GenerationOptions
from digits.kinds.views import Views, curve_labels, views_of
from digits.web.evaluations import model_result
from digits.web.evaluations import panel as evaluation_panel
from digits.web.jobs import serializers
from digits.web.models import continuing
from digits.web.models import export_panel as model_export_panel
from digits.web.models import serializers as model_serializers
from digits.web.predictions import runs as prediction_runs
from digits.web.predictions.view_choice import rendering, views_for
from digits.web.records.images import example_images
from digits.web.responses.pages import render_in_turns
from digits.web.services import services

blueprint = Blueprint("model_page", __name__)


EXAMPLES = 6


@blueprint.get("/models/<job_id>")
def show(job_id: str) -> str:
    job = services().store.get(job_id, ModelJob)
    state = services().scheduler.task_state(job, job.tasks[0])
    kind = serializers.kind_of(job)
    views = views_of(kind)
    return render_in_turns(  # there may be thousands of layers
        "model.html",
        job=serializers.page(job),
        kind=kind,
        views=views,
        examples=_examples(job, views),
        **curve_labels(views),
        prediction_views=[(view, rendering(view).Options()) for view in views_for(kind)],
        gan_options=GenerationOptions(),
        model=model_serializers.model_page(job),
        lower_rate=continuing.lower_rate(job),
        can_continue=continuing.can_continue(job),
        schedule_note=continuing.schedule_note(job.recipe),
        cursor=state.cursor,
        result=model_result.panel(job),
        evaluation=evaluation_panel.panel(job),
        batches=prediction_runs.recent(job),
        production_names=services().production.names_of(job.id),
        export=model_export_panel.panel(job),
    )


def _examples(job: ModelJob, views: Views[Any]) -> list[tuple[str, str]]:
    """Return images of the dataset to predict from."""
    data = serializers.finished_dataset(job.dataset_id)
    if data is None or not views.takes_image or data[1].dtype != "uint8":
        return []
    return example_images(*data, EXAMPLES)
