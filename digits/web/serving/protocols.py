"""Prediction requests of client programs: TensorFlow Serving, KServe and multipart uploads.

The inference server parses their bodies and writes the responses, because the clients choose their size.
"""

from __future__ import annotations

import re
import tempfile
from io import BytesIO

from flask import Response, request

from digits.core.errors import BadRequest
from digits.core.messages import JSON_LENGTH
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.runtime.request_batches import Answer, ClientRequest
from digits.web.jobs import serializers
from digits.web.responses.files import large_response
from digits.web.security.bodies import pieces_of_body
from digits.web.security.environ import MULTIPART

# Larger bodies are kept on disk.
SPOOLED_BYTES = 1_000_000
_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)


def manifest_of(job: ModelJob) -> Manifest:
    """Return the manifest of the model's dataset.

    Raises BadRequest if the dataset was deleted or the model does not take single images.
    """
    manifest = serializers.manifest_of(job)
    if manifest is None:
        raise BadRequest(f"The dataset of “{job.name}” was deleted.", "Import the model from its archive.")
    if manifest.channels not in (1, 3) and manifest.dtype == "uint8":
        raise BadRequest(f"“{job.name}” does not predict from single images.", "Choose another model.")
    return manifest


def client_request(name: str, format_: str = "json") -> ClientRequest:
    """Return this request to the model ``name``, whose body is in ``format_`` unless it is a multipart form.

    Raises BadRequest.
    """
    # Files are read only from multipart bodies: clients may send JSON with any other Content-Type, as curl -d does.
    if request.mimetype == MULTIPART:
        return _uploads(name)
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise BadRequest("Compressed requests are not supported.", "Send them without compression.")
    length = request.headers.get(JSON_LENGTH)
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadRequest(f"The header {JSON_LENGTH} must be a number.")
    body = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - the request owns it
    try:
        for piece in pieces_of_body():
            body.write(piece)
    except BaseException:
        body.close()
        raise
    return ClientRequest(format_, name, [body], None if length is None else int(length))


def _uploads(name: str) -> ClientRequest:
    """Return the uploaded images of this request. Raises BadRequest if there are none."""
    files = [file for field in request.files for file in request.files.getlist(field) if file.filename]
    if not files:
        raise BadRequest(
            "The request contains no images.",
            "Upload image files, or send JSON.",
        )
    streams = [file.stream for file in files]
    for file in files:
        # Flask closes it at the end of the request, which may be before that of the batch.
        file.stream = BytesIO()
    return ClientRequest("files", name, streams)


def response(answer: Answer) -> Response:
    """Return the response to a client, without copying it as a whole."""
    return large_response([answer.body], answer.headers)
