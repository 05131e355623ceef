"""Refused requests, and the responses to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http import HTTPStatus

import humanize

from digits.web.responses.errors import error_body
from digits.web.responses.representation import is_from_program
from digits.web.security.environ import Environ, StartResponse, is_upgrade


class RefusalError(Exception):
    """A refused request."""

    def __init__(self, status: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.reason = reason
        self.headers = [*headers]


def refuse(refusal: RefusalError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Respond to a refused request: with JSON for programs, and with text for others."""
    status = refusal.status
    if is_from_program(environ):
        body = json.dumps(error_body(environ.get("PATH_INFO", ""), refusal.reason, status.phrase))
        content_type = "application/json"
    else:
        body, content_type = refusal.reason + "\n", "text/plain; charset=utf-8"
    data = body.encode()
    headers = [("Content-Type", content_type), ("Content-Length", str(len(data))), *refusal.headers]
    headers.append(("Cache-Control", "no-store"))
    if environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING") or is_upgrade(environ):
        # Do not wait for the rest of the request.
        headers.append(("Connection", "close"))
    start_response(f"{status.value} {status.phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [data]


def too_large(limit: int) -> RefusalError:
    return RefusalError(
        413, f"The request is larger than the limit of {humanize.naturalsize(limit, format='%.0f')}."
    )
