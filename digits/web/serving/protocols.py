"""Prediction requests of client programs: TensorFlow Serving, KServe and multipart uploads.

The inference server parses their bodies and writes the responses, because the clients choose their size.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from io import BytesIO
from typing import IO

from flask import request

from digits.core.errors import BadRequest
from digits.core.messages import JSON_LENGTH
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.runtime.request_batches import Answer, ClientRequest
from digits.web.jobs import serializers
from digits.web.security.bodies import pieces_of_body
from digits.web.security.environ import Environ
from digits.web.services import require_tensorflow, services

# Larger bodies are kept on disk.
SPOOLED_BYTES = 1_000_000
_LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)
_JSON_LENGTH = f"HTTP_{JSON_LENGTH.upper().replace('-', '_')}"


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


def answer(name: str, job: ModelJob, snapshot: str, read: Callable[[], ClientRequest]) -> Answer:
    """Return the answer of a model, called ``name``, to the request that ``read`` returns, and count its images."""
    require_tensorflow()
    manifest_of(job)
    found = services().batches.predict(job.folder, snapshot, read())
    services().serving_metrics.predicted(name, found.images)
    return found


def body_of(environ: Environ, name: str, format_: str = "json") -> ClientRequest:
    """Return the request to the model ``name`` whose body is in ``format_``. Raises BadRequest."""
    if environ.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise BadRequest("Compressed requests are not supported.", "Send them without compression.")
    length = environ.get(_JSON_LENGTH)
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadRequest(f"The header {JSON_LENGTH} must be a number.")
    is_small = int(environ.get("CONTENT_LENGTH") or SPOOLED_BYTES) < SPOOLED_BYTES
    body: IO[bytes] = BytesIO() if is_small else tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115
    try:
        for piece in pieces_of_body(environ):
            body.write(piece)
    except BaseException:
        body.close()
        raise
    return ClientRequest(format_, name, [body], None if length is None else int(length))


def uploads(name: str) -> ClientRequest:
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
