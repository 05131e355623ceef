"""A log of refused requests and connections that stays short however many there are."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import quote, urlencode

import gevent
import humanize

from digits.web.responses.errors import error_body
from digits.web.security.environ import Environ, StartResponse, is_upgrade, query_of, wants_json, wants_page
from digits.web.security.redirects import site_path

# Each line takes longer to write than the refusal, so a flood of them would block the event loop.
MAX_LINES = 10
PERIOD_SECONDS = 1.0


class RefusalLog:
    """Logs refusals to ``log``: at most `MAX_LINES` in a period, and then the number of further ones."""

    def __init__(self, log: logging.Logger, period_seconds: float = PERIOD_SECONDS) -> None:
        self._log = log
        self._seconds = period_seconds
        self._count = 0

    def add(self, line: str) -> None:
        """Log ``line``, or count it if there are too many in this period."""
        if not self._count:
            gevent.spawn_later(self._seconds, self._end_period)
        self._count += 1
        if self._count <= MAX_LINES:
            self._log.info("%s", line)

    def _end_period(self) -> None:
        more, self._count = self._count - MAX_LINES, 0
        if more > 0:
            self._log.info("%s more refused in %.0f s", f"{more:,}", self._seconds)


class RefusalError(Exception):
    """A refused request."""

    def __init__(self, status: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.reason = reason
        self.headers = [*headers]


def login_needed(environ: Environ, why: str) -> RefusalError:
    """Return a redirect to the login page, or 401 for programs; ``why`` is its first sentence."""
    if environ["REQUEST_METHOD"] in ("GET", "HEAD") and wants_page(environ):
        query = urlencode([item for item in query_of(environ) if item[0] != "token"])
        target = quote(site_path(environ, query), safe="/")
        login = quote(environ.get("SCRIPT_NAME", "").encode("latin-1", "replace")) + "/login"
        return RefusalError(302, "Log in first.", [("Location", f"{login}?next={target}")])
    reason = f"{why} Log in at /login, or send the token as Authorization: Bearer TOKEN."
    return RefusalError(401, reason.lstrip(), [("WWW-Authenticate", 'Bearer realm="DIGITS"')])


def refuse(refusal: RefusalError, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Respond to a refused request: with JSON for programs, and with text for others."""
    status = refusal.status
    if wants_json(environ):
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
