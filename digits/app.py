"""Builds the web application out of its parts."""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from pathlib import Path
from typing import Any

from flask import Flask, Response, jsonify, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from digits import __version__, auth, documentation, home, jobs, tensorboard_views
from digits import times as time_words
from digits.dataset import views as dataset_views
from digits.errors import DigitsError
from digits.gate import Gate
from digits.inference import views as inference_views
from digits.model import views as model_views
from digits.resources import resource_folder
from digits.services import Services
from digits.settings import Settings

log = logging.getLogger(__name__)

A_YEAR_SECONDS = 365 * 24 * 3600


def create_app(settings: Settings, *, start: bool = True) -> Flask:
    """The application. ``app.extensions["digits"]`` holds its `Services`; stop them at the end.

    With ``start`` False the jobs are not read and nothing runs.
    """
    app = Flask(
        "digits",
        template_folder=str(resource_folder("templates")),
        static_folder=str(resource_folder("static")),
        static_url_path="/static",
    )
    app.config["MAX_FORM_PARTS"] = 1000
    app.config["MAX_FORM_MEMORY_SIZE"] = 4 * 1024 * 1024
    app.json.sort_keys = False  # type: ignore[attr-defined]
    parts = Services(settings)
    app.extensions["digits"] = parts
    guard = auth.open_auth(
        settings.state_dir, settings.host, settings.port, settings.token, settings.password
    )
    app.secret_key = auth.read_or_make_secret(settings.state_dir / "form-key")
    auth.protect_forms(app, settings.port)
    for blueprint in (
        auth.login_blueprint(guard),
        home.blueprint,
        documentation.blueprint,
        jobs.blueprint,
        dataset_views.blueprint,
        model_views.blueprint,
        inference_views.blueprint,
        tensorboard_views.blueprint,
    ):
        app.register_blueprint(blueprint)
    _add_page_tools(app, settings, parts, guard)
    _add_error_pages(app)
    parts.live.connect(app)
    # The gate is the outermost part: nothing, not even the socket, is reached around it.
    app.wsgi_app = Gate(  # type: ignore[method-assign]
        app.wsgi_app,
        bind_host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        auth=guard,
        url_prefix=settings.url_prefix,
        behind_proxy=int(settings.behind_proxy),
    )
    if start:
        parts.start()
    return app


def wants_json() -> bool:
    """Whether the client of this request asks for JSON rather than a page."""
    if request.path.endswith(".json"):
        return True
    best = request.accept_mimetypes.best_match(["text/html", "application/json"])
    return best == "application/json"


def _add_page_tools(app: Flask, settings: Settings, parts: Services, guard: auth.Auth) -> None:
    static = Path(app.static_folder or "")

    @cache
    def version_of(name: str) -> str:
        return hashlib.sha256((static / name).read_bytes()).hexdigest()[:12]

    def asset(name: str) -> str:
        return f"{settings.url_prefix}/static/{name}?v={version_of(name)}"

    @app.after_request
    def keep_assets(response: Response) -> Response:
        if request.endpoint == "static" and "v" in request.args:
            response.headers["Cache-Control"] = f"public, max-age={A_YEAR_SECONDS}, immutable"
        return response

    @app.context_processor
    def page_variables() -> dict[str, Any]:
        return {
            "asset": asset,
            "csp_nonce": request.environ.get("digits.csp_nonce", ""),
            "version": __version__,
            "server_name": settings.server_name,
            "url_prefix": settings.url_prefix,
            "username": auth.shown_username(request),
            "needs_login": guard.is_required,
            "tensorflow": parts.tensorflow,
        }

    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    app.add_template_filter(time_words.duration, "seconds")
    app.add_template_filter(_ago, "ago")
    app.add_template_filter(time_words.byte_size, "bytes")
    app.add_template_filter(lambda number: f"{number:,}", "count")


def _ago(at: float) -> Markup:
    """A moment as a ``time`` element: in words, with the exact time on hovering."""
    exact, iso = time_words.exact(at), time_words.iso(at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, exact, time_words.ago(at))


def _add_error_pages(app: Flask) -> None:
    @app.errorhandler(DigitsError)
    def known(error: DigitsError) -> tuple[Response | str, int]:
        return _answer(error.http_status, error.message, error.hint, type(error).__name__)

    @app.errorhandler(HTTPException)
    def standard(error: HTTPException) -> tuple[Response | str, int] | HTTPException:
        if error.code is None or error.code < 400:
            return error
        return _answer(error.code, str(error.description or error.name), "", error.name.replace(" ", ""))

    @app.errorhandler(MethodNotAllowed)
    def only_sent(error: MethodNotAllowed) -> tuple[Response | str, int, dict[str, str]]:
        # A reload of an address that a form was sent to, after the answer was lost.
        words = "Nothing was changed: this address takes what a form sends, and it was only opened."
        hint = "If the form was sent before and no answer came, Home shows whether it arrived."
        allowed = {"Allow": ", ".join(sorted(error.valid_methods or ()))}
        return *_answer(405, words, hint, "MethodNotAllowed"), allowed

    @app.errorhandler(Exception)
    def fault(error: Exception) -> tuple[Response | str, int]:
        log.exception("%s %s failed", request.method, request.path)
        message = "The server made a mistake. The details are in its log."
        return _answer(500, message, "", "InternalServerError")


def _answer(status: int, message: str, hint: str, kind: str) -> tuple[Response | str, int]:
    if wants_json() or request.headers.get("X-Requested-With") == "fetch":
        body = {"message": message, "type": kind}
        if hint:
            body["hint"] = hint
        return jsonify({"error": body}), status
    title = {403: "Not allowed", 404: "Not found", 500: "Server error"}.get(status, "That did not work")
    page = render_template("error.html", status=status, title=title, message=message, hint=hint, trace=None)
    return page, status
