"""Whether a response is a page or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

from flask import current_app, request
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_accept_header
from werkzeug.routing import Map

from digits.web.responses.errors import is_always_json

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]
View = TypeVar("View", bound=Callable[..., Any])

# Forms cannot send these, so their responses are never shown as pages.
_METHODS_OF_PROGRAMS = frozenset(("PUT", "PATCH", "DELETE"))


def prefers_json(accept: str) -> bool:
    """Return whether an ``Accept`` header prefers JSON to HTML."""
    types = parse_accept_header(accept, MIMEAccept)
    return types.best_match(["text/html", "application/json"]) == "application/json"


def is_from_program(environ: Environ) -> bool:
    """Return whether the client of a request is a program.

    It prefers JSON to HTML, sends ``X-Requested-With``, or uses a path or a method that only programs use.
    """
    return (
        environ["REQUEST_METHOD"] in _METHODS_OF_PROGRAMS
        or is_always_json(environ.get("PATH_INFO", ""))
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


class JsonTwins:
    """Middleware: answer requests for a page that prefer JSON with the route at the page's path and ``.json``.

    So all pages that have JSON return it under both paths. The twin of ``/`` is ``/index.json``. Requests for a
    part of a page, with ``X-Fragment``, are not affected.
    """

    def __init__(self, app: Application, routes: Map) -> None:
        self._app, self._routes = app, routes

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        is_part = "HTTP_X_FRAGMENT" in environ
        if not is_part and prefers_json(environ.get("HTTP_ACCEPT", "")) and self._has_twin(environ):
            environ["PATH_INFO"] = _twin(environ.get("PATH_INFO") or "/")
        return self._app(environ, start_response)

    def _has_twin(self, environ: Environ) -> bool:
        try:
            rule, _ = self._routes.bind_to_environ(environ).match(return_rule=True)
        except HTTPException:
            return False
        return (_twin(rule.rule), environ["REQUEST_METHOD"]) in self._rules

    @cached_property
    def _rules(self) -> set[tuple[str, str]]:
        return {(rule.rule, method) for rule in self._routes.iter_rules() for method in rule.methods or ()}


def _twin(path: str) -> str:
    return "/index.json" if path == "/" else f"{path}.json"
