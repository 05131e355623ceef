"""Respond with a resource: as JSON to programs, as a page or a redirection to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, make_response, redirect, request
from flask.json.provider import DefaultJSONProvider
from msgspec import Struct
from werkzeug.wrappers import Response as AnyResponse

from digits.web.resources.encoding import as_json
from digits.web.resources.errors import ErrorFacts, InvalidForm
from digits.web.responses.negotiation import wants_json
from digits.web.responses.pages import render_in_turns

View = TypeVar("View", bound=Callable[..., Any])


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
