"""Uploads of archives over the tus protocol (https://tus.io/protocols/resumable-upload, version 1.0.0), and their page.

The extensions are creation, termination and expiration.
"""

from __future__ import annotations

import base64
import binascii
import re
from email.utils import formatdate

from flask import Blueprint, Response, jsonify, make_response, render_template, request, url_for
from werkzeug.exceptions import PreconditionFailed, UnsupportedMediaType
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.data.archives.zip_names import encoding_named
from digits.web.datasets.serializers import describe_upload
from digits.web.resources.uploads import Uploads, UploadState
from digits.web.responses.representation import respond, returns
from digits.web.security.bodies import pieces_of_body
from digits.web.security.sessions import current_username, login_name
from digits.web.services import services
from digits.web.services.upload_store import TooLarge, Upload

blueprint = Blueprint("uploads", __name__)

VERSION = "1.0.0"
EXTENSIONS = "creation,termination,expiration"
CHUNK_TYPE = "application/offset+octet-stream"
MAX_METADATA_CHARACTERS = 4096
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@blueprint.route("/uploads", methods=["OPTIONS"], provide_automatic_options=False)
@blueprint.route("/uploads/<upload_id>", methods=["OPTIONS"], provide_automatic_options=False)
def options(upload_id: str = "") -> Response:
    """Describe the server to clients of the protocol."""
    return _answer(
        204,
        {
            "Tus-Version": VERSION,
            "Tus-Extension": EXTENSIONS,
            "Tus-Max-Size": str(services().settings.max_upload),
        },
    )


@blueprint.get("/uploads")
def index() -> AnyResponse:
    """Show the uploads of this user."""
    uploads = [describe_upload(upload) for upload in services().uploads.list(login_name(request))]
    days = services().settings.upload_days
    return respond(Uploads(uploads), page=lambda: render_template("uploads.html", uploads=uploads, days=days))


@blueprint.post("/uploads")
def create() -> Response:
    """Create an upload."""
    _check_version()
    length = request.headers.get("Upload-Length", "")
    if not _NUMBER.fullmatch(length):
        raise BadRequest("The header Upload-Length must be the size of the file in bytes.")
    metadata = _metadata()
    encoding = encoding_named(metadata.get("encoding", ""))
    name = metadata.get("filename", "")
    upload = services().uploads.create(name, int(length), current_username(request), encoding)
    location = url_for("uploads.show", upload_id=upload.id)
    return _answer(201, {"Location": location, "Upload-Offset": "0", **_expiry(upload)})


@blueprint.get("/uploads/<upload_id>")
@returns(UploadState)
def show(upload_id: str) -> Response:
    """Return the state of an upload as JSON; for HEAD, its offset."""
    upload = _upload(upload_id)
    if request.method == "GET":
        return jsonify(describe_upload(upload))
    _check_version()
    upload.check_usable()
    name = base64.b64encode(upload.record.name.encode()).decode()
    fields = {
        "Upload-Offset": str(upload.offset),
        "Upload-Length": str(upload.record.length),
        "Upload-Metadata": f"filename {name}",
        "Cache-Control": "no-store",
    }
    return _answer(200, fields | _expiry(upload))


@blueprint.route("/uploads/<upload_id>", methods=["PATCH"])
def append(upload_id: str) -> Response:
    """Append the body to an upload."""
    _check_version()
    upload = _upload(upload_id)
    if request.mimetype != CHUNK_TYPE:
        raise UnsupportedMediaType(f"The Content-Type of a chunk must be {CHUNK_TYPE}.")
    offset = request.headers.get("Upload-Offset", "")
    if not _NUMBER.fullmatch(offset):
        raise BadRequest("The header Upload-Offset must be a number.")
    if int(offset) + (request.content_length or 0) > max(upload.record.length, int(offset)):
        raise TooLarge(f"There is more data than the announced {upload.record.length:,} bytes.")
    services().uploads.receive(upload, int(offset), pieces_of_body(request.environ))
    return _answer(204, {"Upload-Offset": str(upload.offset), **_expiry(upload)})


@blueprint.delete("/uploads/<upload_id>")
def delete(upload_id: str) -> Response:
    """Cancel or delete an upload."""
    if "Tus-Resumable" in request.headers:
        _check_version()
    services().uploads.delete(_upload(upload_id))
    return _answer(204, {})


@blueprint.errorhandler(PreconditionFailed)
def wrong_version(error: PreconditionFailed) -> Response:
    return _answer(412, {"Tus-Version": VERSION})


@blueprint.after_request
def add_version(response: Response) -> Response:
    """Add the version of the protocol, which every response states, those with errors included."""
    response.headers["Tus-Resumable"] = VERSION
    return response


def _upload(upload_id: str) -> Upload:
    return services().uploads.get(upload_id, login_name(request))


def _check_version() -> None:
    if request.headers.get("Tus-Resumable") != VERSION:
        raise PreconditionFailed


def _metadata() -> dict[str, str]:
    """Return the header Upload-Metadata: pairs of a key and a value in Base64. Raises BadRequest."""
    text = request.headers.get("Upload-Metadata", "")
    if len(text) > MAX_METADATA_CHARACTERS:
        raise BadRequest("The header Upload-Metadata is too long.")
    pairs = [item.strip().partition(" ") for item in text.split(",") if item.strip()]
    try:
        return {
            key: base64.b64decode(value.strip(), validate=True).decode("utf-8", "replace")
            for key, _, value in pairs
        }
    except (binascii.Error, ValueError) as error:
        raise BadRequest("A value in the header Upload-Metadata is not Base64.") from error


def _expiry(upload: Upload) -> dict[str, str]:
    return {"Upload-Expires": formatdate(services().uploads.expires_at(upload), usegmt=True)}


def _answer(status: int, fields: dict[str, str]) -> Response:
    response = make_response("", status)
    response.headers.update(fields)
    return response
