"""Model stores: list their models, and import them."""

from __future__ import annotations

from flask import Blueprint, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.model_job import ModelJob
from digits.data import model_store
from digits.kinds.request_fields import flag
from digits.web.live.messages import EVERYONE, JOB
from digits.web.models import serializers as model_serializers
from digits.web.models.imports import import_from, scratch
from digits.web.resources.models import Model
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import respond, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.services import require_tensorflow, services
from digits.web.services.model_lists import StoreState

blueprint = Blueprint("store", __name__)


@blueprint.get("/store/list")
@not_from_other_sites
def index() -> str:
    """Show the models of all stores, or of ``store`` when it has been read."""
    return render_in_turns("store.html", states=requested_states())


@twin(blueprint, "/store/push", Model)
def import_model() -> AnyResponse:
    """Import the model ``id``."""
    job = import_stored(request.form.get("id", ""))
    return respond(model_serializers.model_json(job), created=url_for("model_page.show", job_id=job.id))


def requested_states() -> list[StoreState]:
    """Return the models of all stores, or of ``store`` when it has been read."""
    stores, refresh = services().model_stores, flag(request.args, "refresh")
    store = request.args.get("store")
    return stores.states(refresh) if store is None else [stores.load(store, refresh)]


def import_stored(model_id: str) -> ModelJob:
    """Import a model; report the progress of the download to browsers as DIGITS 6 does."""
    require_tensorflow()
    model = services().model_stores.find(model_id)
    with scratch() as folder:
        source = model.local_folder or folder
        if source is folder:
            for news in model_store.download(model, folder, services().settings.max_remote):
                percent = round(100 * news.files / (news.total_files or 1))
                body = {"update": "progress", "model_id": model_id, "progress": percent, "bytes": news.bytes}
                services().live.publish(EVERYONE, JOB, body)
        return import_from(source, model.name)
