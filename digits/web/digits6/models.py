"""The routes of DIGITS 6 for networks and pretrained models."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.data.sources.plan import count_of
from digits.kinds.standard_networks import network
from digits.web.jobs.access import find_job
from digits.web.models.imports import import_from
from digits.web.models.networks import weights_of
from digits.web.models.pretrained import uploaded_files
from digits.web.resources.networks import NetworkSource
from digits.web.responses.representation import returns
from digits.web.services import require_tensorflow, services

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
