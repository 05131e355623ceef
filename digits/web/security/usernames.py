"""The user names that label jobs."""

from __future__ import annotations

import re

from flask import Request

from digits.core.errors import BadRequest
from digits.web.security.environ import VISITOR

USERNAME_COOKIE = "username"
USERNAME = re.compile(r"\w[\w.@+-]{0,63}")


def login_name(request: Request) -> str | None:
    """The user name of this request's login: from its session, else from its cookie."""
    return _session_name(request) or _cookie_name(request)


def current_username(request: Request) -> str | None:
    """The user name of this request: from its session, its ``username`` argument, or its cookie.

    Raises BadRequest if the argument is not a valid name.
    """
    return _username_given(request.args.get("username") or request.form.get("username"), request)


def _username_given(given: str | None, request: Request) -> str | None:
    argument = checked_username(given) if given else None
    return _session_name(request) or argument or _cookie_name(request)


def _session_name(request: Request) -> str | None:
    visitor = request.environ.get(VISITOR)
    return (visitor.session.username or None) if visitor is not None and visitor.session is not None else None


def _cookie_name(request: Request) -> str | None:
    kept = request.cookies.get(USERNAME_COOKIE, "")
    return kept if USERNAME.fullmatch(kept) else None


def shown_username(request: Request) -> str | None:
    """The name to show on a page: like `current_username`, but ignoring form fields and invalid names."""
    try:
        return _username_given(request.args.get("username"), request)
    except BadRequest:
        return None


def checked_username(text: str) -> str:
    """Strip ``text``; raises BadRequest if it is not a valid user name."""
    name = text.strip()
    if not USERNAME.fullmatch(name):
        raise BadRequest(
            "A user name has 1 to 64 letters, digits, dots, dashes, underscores, plus or at signs, "
            "and starts with a letter, digit or underscore."
        )
    return name
