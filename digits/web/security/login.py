"""The pages to log in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, jsonify, redirect, render_template, request
from flask_wtf import FlaskForm
from werkzeug.wrappers import Response as AnyResponse
from wtforms import PasswordField, StringField

from digits.core.errors import BadRequest
from digits.web.responses.representation import wants_json
from digits.web.security.auth import LONGEST_PASSWORD, Auth
from digits.web.security.environ import VISITOR
from digits.web.security.redirects import safe_next
from digits.web.security.sessions import USERNAME_COOKIE, checked_username, cookie_header


class LoginForm(FlaskForm):  # type: ignore[misc]
    """A user name, and the secret if one is required."""

    username = StringField("User name")
    password = PasswordField("Password or token")


def login_blueprint(auth: Auth) -> Blueprint:
    """Add the pages ``/login`` and ``/logout``, for browsers and for scripts that request JSON."""
    blueprint = Blueprint("auth", __name__)

    @blueprint.get("/login")
    def login() -> Any:
        return _login_page(auth)

    @blueprint.post("/login")
    def login_post() -> Any:
        return _log_in(auth)

    @blueprint.post("/logout")
    def logout() -> Any:
        return _log_out(auth)

    return blueprint


def _log_in(auth: Auth) -> Any:
    body = request.get_json(silent=True) if request.is_json else request.form
    fields = body if isinstance(body, Mapping) else {}
    username, secret = (
        str(fields.get(name) or "")[: LONGEST_PASSWORD + 1] for name in ("username", "password")
    )
    problem = _login_problem(auth, username, secret)
    if problem is not None:
        status = 401 if problem[0] == "password" else 400
        if request.is_json or wants_json():
            return jsonify(error={"message": problem[1], "type": "LoginError"}), status
        return _login_page(auth, problem, status)
    name = username.strip()
    response = _answer(name)
    if auth.is_required(request.environ):
        _end_session(auth)
        cookie = auth.cookie_header(request.environ, auth.sessions.start(name))
    else:
        cookie = cookie_header(request.environ, USERNAME_COOKIE, name)
    response.headers.add("Set-Cookie", cookie)
    return response


def _log_out(auth: Auth) -> Any:
    _end_session(auth)
    response = _answer("")
    response.headers.add("Set-Cookie", auth.cookie_header(request.environ, ""))
    response.headers.add("Set-Cookie", cookie_header(request.environ, USERNAME_COOKIE, ""))
    return response


def _end_session(auth: Auth) -> None:
    visitor = request.environ.get(VISITOR)
    if visitor is not None and visitor.session is not None:
        auth.end(visitor.session)


def _login_problem(auth: Auth, username: str, secret: str) -> tuple[str, str] | None:
    """The field that makes this login fail and why. A name is required only if no secret is."""
    is_required = auth.is_required(request.environ)
    if is_required and not auth.is_secret(secret):
        return "password", "Wrong password or token." if secret else "Enter a password or token."
    if not username.strip():
        return None if is_required else ("username", "Enter a user name.")
    try:
        checked_username(username)
    except BadRequest as error:
        return "username", error.message
    return None


def _login_page(auth: Auth, problem: tuple[str, str] | None = None, status: int = 200) -> Any:
    form = LoginForm(formdata=None, username=request.form.get("username", "")[:64])
    if not auth.is_required(request.environ):
        del form.password
    if problem is not None:
        field, message = problem
        form[field].errors = [message]
    target = safe_next(request.values.get("next"))
    why = auth.why_required(request.environ)
    return render_template("login.html", form=form, next=target, why=why), status


def _answer(name: str) -> AnyResponse:
    """Return the new user name as JSON, or a redirect; programs that accept anything get redirects, as from DIGITS."""
    if request.is_json or wants_json():
        return jsonify(username=name or None)
    return redirect(safe_next(request.values.get("next")) or f"{request.script_root}/")
