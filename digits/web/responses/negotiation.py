"""Whether a response is a page or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar

from flask import Flask, current_app, request
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header
from werkzeug.routing import Rule

Environ = dict[str, Any]
View = TypeVar("View", bound=Callable[..., Any])

# Forms cannot send these, so their responses are never shown as pages.
_METHODS_OF_PROGRAMS = frozenset(("PUT", "PATCH", "DELETE"))
# Only programs use these paths, so that errors there are JSON for all clients.
_PROGRAM_ENDINGS = (".json", "/upload_archive")
_PREDICTING = re.compile(r"/serve/|/models/[^/]+/predict\Z")


@lru_cache(maxsize=64)
def prefers_json(accept: str) -> bool:
    """Return whether an ``Accept`` header prefers JSON to HTML."""
    types = parse_accept_header(accept, MIMEAccept)
    return types.best_match(["text/html", "application/json"]) == "application/json"


def is_from_program(environ: Environ) -> bool:
    """Return whether the client of a request is a program.

    It prefers JSON to HTML, sends ``X-Requested-With``, or uses a path or a method that only programs use.
    """
    path = environ.get("PATH_INFO", "")
    return (
        environ["REQUEST_METHOD"] in _METHODS_OF_PROGRAMS
        or path.endswith(_PROGRAM_ENDINGS)
        or _PREDICTING.match(path) is not None
        or "HTTP_TUS_RESUMABLE" in environ
        or bool(environ.get("HTTP_X_REQUESTED_WITH"))
        or prefers_json(environ.get("HTTP_ACCEPT", ""))
    )


def wants_json() -> bool:
    """Return whether the response to this request is JSON: for programs, and of views that have no page."""
    view = current_app.view_functions.get(request.endpoint or "")
    return hasattr(view, "is_json_only") or is_from_program(request.environ)


def json_only(view: View) -> View:
    """Mark a view that returns nothing but JSON, so that its errors are JSON for all clients."""
    view.is_json_only = True  # type: ignore[attr-defined]
    return view


def answer_twins(app: Flask) -> None:
    """Answer requests for a page that prefer JSON with the view of the page's path and ``.json``.

    So all pages that have JSON return it under both paths. The twin of ``/`` is ``/index.json``. Requests for a
    part of a page, with ``X-Fragment``, are not affected.
    """

    @cache
    def twins() -> dict[tuple[str, str], Rule]:
        return {
            (rule.rule, method): rule for rule in app.url_map.iter_rules() for method in rule.methods or ()
        }

    @app.url_value_preprocessor
    def choose(endpoint: str | None, arguments: dict[str, Any] | None) -> None:
        rule = request.url_rule
        if rule and "X-Fragment" not in request.headers and prefers_json(request.headers.get("Accept", "")):
            path = "/index.json" if rule.rule == "/" else f"{rule.rule}.json"
            request.url_rule = twins().get((path, request.method), rule)
