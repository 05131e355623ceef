"""The routes of DIGITS 6 for networks, model stores and pretrained models."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.data.model_store import StoredModel
from digits.data.sources import count_of
from digits.kinds.standard_networks import network
from digits.web.jobs.access import find_job
from digits.web.models.imports import import_from
from digits.web.models.model_stores import import_stored, requested_states
from digits.web.models.networks import weights_of
from digits.web.models.pretrained import uploaded_files
from digits.web.resources.networks import NetworkSource
from digits.web.responses.negotiation import json_only
from digits.web.responses.representation import returns
from digits.web.security.origin import not_from_other_sites
from digits.web.services import require_tensorflow, services
from digits.web.services.model_lists import StoreState

blueprint = Blueprint("digits6_models", __name__)


@blueprint.post("/models/customize")
@returns(NetworkSource)
def customize() -> Response:
    """Return the source code of a standard network or of a model's network, for the editor.

    ``snapshot`` are the weights that ``snapshot_epoch`` names, for ``custom_network_snapshot``: see `weights_of`.
    """
    name = request.values.get("network", "")
    job = services().store.find(name)
    if isinstance(job, ModelJob):
        weights = weights_of(job, request.values.get("snapshot_epoch", ""))
        return jsonify(NetworkSource(job.network_text(), weights))
    if not name:
        raise BadRequest(
            "The network is missing.", "Specify the name of a standard network or the id of a model."
        )
    return jsonify(NetworkSource(network(name).text, None))


@blueprint.get("/store/models")
@json_only
@not_from_other_sites
def models() -> Response:
    """Return the models of all stores, or of ``store`` when it has been read, keyed by store as in DIGITS 6."""
    return jsonify({state.listing.store: _state_json(state) for state in requested_states()})


@blueprint.get("/store/push")
@not_from_other_sites
def push() -> Response:
    """Import the model ``id``, and return the ID of its job as text."""
    return Response(import_stored(request.args.get("id", "")).id, mimetype="text/plain")


@blueprint.get("/pretrained_models/<job_id>")
def show(job_id: str) -> AnyResponse:
    """Redirect to the page of an imported model."""
    return redirect(url_for("model_page.show", job_id=find_job("pretrained_models", job_id).id))


@blueprint.get("/pretrained_models/<job_id>.json")
def show_json(job_id: str) -> AnyResponse:
    return redirect(url_for("models.show_json", job_id=find_job("pretrained_models", job_id).id))


@blueprint.post("/pretrained_models/upload_archive")
def upload_archive() -> Response:
    """Import a model from an uploaded ``archive`` in the format of “Download”."""
    require_tensorflow()
    with uploaded_files("archive") as uploads:
        if len(uploads["archive"]) != 1:
            raise BadRequest(
                f"{count_of(len(uploads['archive']), 'archive')} were uploaded instead of one.",
                "Send a tar or zip file in the field “archive”.",
            )
        job = import_from(uploads["archive"][0])
    return jsonify(status="success", id=job.id, name=job.name)


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
