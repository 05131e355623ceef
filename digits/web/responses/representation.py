"""Respond with a resource: as JSON to programs, as a page or a redirection to people.

Long pages and JSON are computed in turns, without blocking other requests.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from flask import (
    Blueprint,
    Flask,
    Response,
    current_app,
    jsonify,
    make_response,
    redirect,
    request,
    stream_template,
)
from flask.json.provider import DefaultJSONProvider
from msgspec import Struct
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header
from werkzeug.routing import Rule
from werkzeug.wrappers import Response as AnyResponse

from digits.runtime.offload import in_turns
from digits.web.resources.encoding import as_json
from digits.web.resources.errors import ErrorFacts, InvalidForm

Environ = dict[str, Any]
View = TypeVar("View", bound=Callable[..., Any])

# Forms cannot send these, so their responses are never shown as pages.
_METHODS_OF_PROGRAMS = frozenset(("PUT", "PATCH", "DELETE"))
# Only programs use these paths, so that errors there are JSON for all clients.
_PROGRAM_ENDINGS = (".json", "/upload_archive")
_PREDICTING = re.compile(r"/serve/|/models/[^/]+/predict\Z")
# Between two checks of the time. A check takes about as long as one of the thousands of pieces of a page.
PIECES_PER_CHECK = 32
# Sending a block takes as long as computing dozens of rows.
BLOCK_CHARACTERS = 32_000


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


class ResourceProvider(DefaultJSONProvider):
    """Also encodes resources, in responses and in the data of pages, with the keys in the order of their fields."""

    sort_keys = False

    @staticmethod
    def default(value: Any) -> Any:
        """Return JSON values for ``value``; raises TypeError."""
        return as_json(value) if isinstance(value, Struct) else DefaultJSONProvider.default(value)


def render(page: str, *, part: str = "", **context: Any) -> Response:
    """Return the template ``page``, or for a page that refreshes itself with ``X-Fragment``, its ``part``."""
    is_part = part and "X-Fragment" in request.headers
    response = make_response(render_in_turns(part if is_part else page, **context))
    response.vary.add("X-Fragment")
    return response


def respond(
    resource: Struct | Callable[[], Struct],
    *,
    created: str = "",
    page: Callable[[], str | Response] | None = None,
    status: int = 200,
) -> AnyResponse:
    """Return ``resource`` as JSON with the ``status`` if the client is a program.

    Otherwise, and for a page that refreshes a part of itself with ``X-Fragment``, return the ``page``, or redirect to
    the one that a form ``created`` or changed.
    """
    if wants_json() and "X-Fragment" not in request.headers:
        return make_response(jsonify(resource() if callable(resource) else resource), status)
    return make_response(page()) if page else redirect(created)


def respond_invalid(
    errors: Mapping[str, Sequence[str]], page: Callable[[], str] | None = None
) -> AnyResponse:
    """Return the ``errors`` of a form by field as JSON, or the ``page`` with the form, with status 400."""
    if page and not wants_json():
        return make_response(page(), 400)
    messages = {name: list(map(str, said)) for name, said in errors.items()}
    words = " ".join(dict.fromkeys(message for said in messages.values() for message in said))
    return make_response(jsonify(InvalidForm(ErrorFacts(words, "InvalidForm"), messages)), 400)


def twin(
    blueprint: Blueprint, rule: str, resource: type[Struct], method: str = "POST"
) -> Callable[[View], View]:
    """Register a view that responds with ``resource`` under ``rule``, and for programs under ``rule`` and ``.json``."""

    def register(view: View) -> View:
        view.resource = resource  # type: ignore[attr-defined]
        blueprint.add_url_rule(rule, view_func=view, methods=[method])
        blueprint.add_url_rule(f"{rule}.json", f"{view.__name__}_json", view, methods=[method])
        return view

    return register


def returns(resource: type[Struct]) -> Callable[[View], View]:
    """Mark a view that returns ``resource`` as JSON and nothing else, so that its errors are JSON for all clients."""

    def mark(view: View) -> View:
        view.is_json_only, view.resource = True, resource  # type: ignore[attr-defined]
        return view

    return mark


def render_in_turns(template: str, **context: Any) -> str:
    """Render ``template`` like ``render_template``, yielding to other greenlets every few milliseconds."""
    pieces = stream_template(template, **context)
    batches = iter(lambda: list(itertools.islice(pieces, PIECES_PER_CHECK)), [])
    return "".join(itertools.chain.from_iterable(in_turns(batches)))


def json_with_list(body: Mapping[str, Any], name: str, items: Iterable[Any]) -> Iterator[str]:
    """Yield the JSON of ``body`` with a long list of ``items`` under ``name``, piece by piece.

    They replace the value of ``body`` with this name, so that no key is repeated.
    """
    others = {key: value for key, value in body.items() if key != name}
    yield f"{json.dumps(others)[:-1]}{', ' if others else ''}{json.dumps(name)}: ["
    for number, item in enumerate(items):
        yield f"{', ' if number else ''}{json.dumps(item)}"
    yield "]}"


def stream(pieces: Iterable[str]) -> Iterator[str]:
    """Join ``pieces`` to blocks of `BLOCK_CHARACTERS`, in turns. The first one is computed at once, with its errors."""
    blocks = in_turns(_blocks(pieces))
    return itertools.chain([next(blocks)], blocks)


def _blocks(pieces: Iterable[str]) -> Iterator[str]:
    block: list[str] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= BLOCK_CHARACTERS:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)
