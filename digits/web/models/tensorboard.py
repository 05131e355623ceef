"""TensorBoard of a model or of a preview, through the server's own port."""

from __future__ import annotations

import contextlib

from flask import Blueprint, request, url_for
from werkzeug.wrappers import Response

from digits.core.errors import NotFound
from digits.core.files import make_folder
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services, tensorboard

blueprint = Blueprint("tensorboard", __name__)


@blueprint.route("/tensorboard/<job_id>/", defaults={"path": ""}, methods=["GET", "POST"])
@blueprint.route("/tensorboard/<job_id>/<path:path>", methods=["GET", "POST"])
@not_from_other_sites
def proxy(job_id: str, path: str) -> Response:
    folder = services().tensorboard_folder(job_id)
    if folder is None:
        raise NotFound("There is no such job.")
    with contextlib.suppress(OSError):  # a damaged job's folder; the proxy reports it
        make_folder(folder)
    url = url_for("tensorboard.proxy", job_id=job_id)
    return tensorboard.proxy(services().tensorboards, job_id, folder, path, request, url)


@blueprint.get("/font-roboto/<name>")
def board_font(name: str) -> Response:
    """Send TensorBoard's font, which its page requests at the root of the site."""
    data = tensorboard.font(name)
    if data is None:
        raise NotFound("There is no such font.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(data, mimetype="font/woff2", headers=headers)
