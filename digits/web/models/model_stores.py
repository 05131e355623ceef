"""Model stores: list their models, and import them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.model_job import ModelJob
from digits.data import model_store
from digits.data.model_store import StoredModel
from digits.kinds.request_fields import flag
from digits.web.live.messages import EVERYONE, JOB
from digits.web.models import serializers as model_serializers
from digits.web.models.imports import import_from, scratch
from digits.web.resources.models import Model
from digits.web.responses.negotiation import json_only
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
    return render_in_turns("store.html", states=_states())


@blueprint.get("/store/models")
@json_only
@not_from_other_sites
def models() -> Response:
    """Return the models of all stores, or of ``store`` when it has been read, keyed by store as in DIGITS 6."""
    return jsonify({state.listing.store: _state_json(state) for state in _states()})


@blueprint.get("/store/push")
@not_from_other_sites
def push() -> Response:
    """Import the model ``id``, and return the ID of its job as text."""
    return Response(_import(request.args.get("id", "")).id, mimetype="text/plain")


@twin(blueprint, "/store/push", Model)
def import_model() -> AnyResponse:
    """Import the model ``id``."""
    job = _import(request.form.get("id", ""))
    return respond(model_serializers.model_json(job), created=url_for("model_page.show", job_id=job.id))


def _states() -> list[StoreState]:
    stores, refresh = services().model_stores, flag(request.args, "refresh")
    store = request.args.get("store")
    return stores.states(refresh) if store is None else [stores.load(store, refresh)]


def _import(model_id: str) -> ModelJob:
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


def _state_json(state: StoreState) -> dict[str, Any]:
    listing = state.listing
    body: dict[str, Any] = {
        "base_url": listing.store,
        "welcome_msg": listing.message,
        "model_list": [_as_json(model) for model in listing.models],
    }
    body |= {"error": listing.problem} if listing.problem else {}
    return body | ({"loading": True} if state.is_loading else {})


def _as_json(model: StoredModel) -> dict[str, Any]:
    body: dict[str, Any] = {"dir_name": model.folder, "id": model.id, "info": model.info}
    return body | ({"aux": model.aux} if model.aux else {})
