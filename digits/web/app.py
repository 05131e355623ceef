"""Create the web application."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from flask import Flask, Response, g, jsonify, redirect, render_template, request, url_for
from flask.templating import Environment
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import Rule

from digits import __version__
from digits.core.errors import Damaged, DigitsError, NotFound, OtherSite, TooBusy, explain
from digits.core.files import UnreadableFile
from digits.core.resources import resource_folder
from digits.core.settings import Settings
from digits.data.archives.unpacking import ENDINGS
from digits.data.models import production
from digits.kinds import all_kinds, default_kind
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.views import views_of
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import Executor
from digits.runtime.offload import in_thread, in_turns, next_turn
from digits.runtime.store import Store, StoreLost
from digits.web import template_filters
from digits.web.compute import views as compute_views
from digits.web.datasets import downloads, uploads, versions
from digits.web.datasets import views as dataset_views
from digits.web.datasets.health import health
from digits.web.digits6 import batches, generic
from digits.web.evaluations import comparison
from digits.web.evaluations.embeddings import embeddings
from digits.web.evaluations.evaluation import evaluation
from digits.web.jobs import serializers
from digits.web.jobs import views as job_views
from digits.web.jobs.activities import Activity, add_activities
from digits.web.jobs.row_cache import RowCache
from digits.web.kind_routes import add_kinds
from digits.web.labels import corrections
from digits.web.labels import pages as label_pages
from digits.web.labels import views as label_views
from digits.web.labels.proposals import proposals
from digits.web.models import (
    augmentation,
    check_views,
    form_views,
    pretrained,
    retraining,
    tensorboard,
)
from digits.web.models import views as model_views
from digits.web.models.export import export
from digits.web.pages import dataset as dataset_page
from digits.web.pages import documentation, home, lists, project
from digits.web.pages import model as model_page
from digits.web.predictions import epochs, inference, inside
from digits.web.predictions.predictions import predictions
from digits.web.records import explore, pending_edits
from digits.web.records import views as record_views
from digits.web.request_limits import LIMITS
from digits.web.responses.assets import Assets
from digits.web.responses.errors import error_body, with_box
from digits.web.responses.representation import ResourceProvider, answer_twins, wants_json
from digits.web.security.auth import Auth, open_auth
from digits.web.security.bodies import BODY_LIMITS, MAX_BODY_BYTES, MAX_IMAGE_BYTES, BoundedRequest
from digits.web.security.gate import Gate
from digits.web.security.login import login_blueprint
from digits.web.security.origin import guard_views
from digits.web.security.redirects import own_address
from digits.web.security.secrets import read_or_make_secret
from digits.web.security.sessions import shown_username
from digits.web.services import Services
from digits.web.serving import views as serving_views
from digits.web.serving.direct import DirectPredictions

log = logging.getLogger(__name__)

# These endpoints compute little themselves. Monitors watch the first one; the others wait for a model.
WITHOUT_TURN = frozenset({"home.health", *(f"serving.{name}" for name in serving_views.PREDICTING)})

# The panels of a page are in this order.
ACTIVITIES: tuple[Activity, ...] = (health, predictions, evaluation, embeddings, export, proposals)


class _Answer(Response):
    """A response that replaces undecodable parts of file names in its text."""

    def set_data(self, value: bytes | str) -> None:
        super().set_data(value.encode(errors="replace") if isinstance(value, str) else value)


class _Templates(Environment):
    """Templates of pages. They are compiled in a thread, because some take 100 ms."""

    def compile(self, *arguments: Any, **keywords: Any) -> Any:
        return in_thread(super().compile, *arguments, **keywords)


class _Rule(Rule):
    """A route. It compiles the functions that build its address at first use: for all routes, that takes 60 ms."""

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compiled = cache(super()._compile_builder)
        return lambda *rule, **values: compiled(append_unknown)(*rule, **values)


class _App(Flask):
    response_class = _Answer
    url_rule_class = _Rule
    jinja_environment = _Templates


def create_app(
    settings: Settings,
    *,
    start: bool = True,
    executor: Executor | None = None,
    clusters: Mapping[str, ClusterExecutor] | None = None,
) -> Flask:
    """Create the application. ``app.extensions["digits"]`` is its `Services`; stop them at the end.

    With ``start=False``, jobs are not loaded and nothing runs. Tasks run on ``executor``, by default as processes of
    this machine, and on ``clusters`` by their targets.
    """
    app = _App(
        "digits",
        template_folder=str(resource_folder("templates")),
        static_folder=str(resource_folder("static")),
        static_url_path="/static",
    )
    app.request_class = BoundedRequest
    app.config["MAX_FORM_PARTS"] = 1000
    app.config["MAX_FORM_MEMORY_SIZE"] = MAX_BODY_BYTES
    app.config["TEMPLATES_AUTO_RELOAD"] = settings.debug
    app.json = ResourceProvider(app)
    services = Services(settings, executor, clusters)
    app.extensions["digits"] = services
    auth = open_auth(settings)
    app.secret_key = read_or_make_secret(settings.state_dir / "form-key")
    guard_views(app, settings.port)
    answer_twins(app)
    add_kinds(app)
    app.register_blueprint(login_blueprint(auth))
    for views in (
        home,
        lists,
        documentation,
        job_views,
        dataset_page,
        project,
        dataset_views,
        explore,
        record_views,
        versions,
        pending_edits,
        comparison,
        downloads,
        model_page,
        model_views,
        form_views,
        check_views,
        pretrained,
        serving_views,
        augmentation,
        compute_views,
        inference,
        inside,
        epochs,
        generic,
        tensorboard,
        batches,
        uploads,
        label_views,
        corrections,
        label_pages,
        retraining,
    ):
        app.register_blueprint(views.blueprint)
    add_activities(app, ACTIVITIES)
    _add_page_tools(app, settings, services, auth)
    _add_error_pages(app, services, show_traceback=settings.debug)
    services.live.connect(app)
    auth.on_logout.append(services.live.disconnect)
    # The gate is the outermost layer: nothing, not even the socket, can be reached without it.
    app.wsgi_app = Gate(  # type: ignore[method-assign]
        DirectPredictions(app),
        bind_host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        auth=auth,
        url_prefix=settings.url_prefix,
        behind_proxy=int(settings.behind_proxy),
        body_limits={
            **BODY_LIMITS,
            "/uploads/": settings.max_upload,
            "/pretrained_models/": settings.max_upload,
        },
    )
    if start:
        services.start()
    return app


def load_pages(app: Flask) -> None:
    """Load the kinds and the templates before the first requests need them."""
    load_kinds()
    for name in app.jinja_env.list_templates(extensions=["html"]):
        app.jinja_env.get_template(name)


def load_kinds() -> None:
    """Import the texts and forms of all kinds, in a thread."""
    for kind in all_kinds().values():
        in_thread(views_of, kind)
        in_thread(kind.load, "form")


def _add_page_tools(app: Flask, settings: Settings, services: Services, auth: Auth) -> None:
    assets = Assets(app, settings.url_prefix, watch=settings.debug)

    @app.before_request
    def keep_cursor() -> None:
        # Before anything is read: messages since then may report changes that the page does not contain.
        g.live_cursor = services.live.cursor

    @app.before_request
    def wait_for_turn() -> None:
        if request.endpoint not in WITHOUT_TURN:
            next_turn()

    @app.context_processor
    def page_variables() -> dict[str, Any]:
        return {
            "asset": assets.url,
            "script": assets.script,
            "csp_nonce": request.environ.get("digits.csp_nonce", ""),
            "version": __version__,
            "server_name": settings.server_name,
            "url_prefix": settings.url_prefix,
            "username": shown_username(request),
            "needs_login": auth.is_required(request.environ),
            "offers_login": not auth.admits_own_user,  # which needs no name
            "chooses_compute": lambda: bool(services.clusters.names) or len(services.devices.gpus()) > 1,
            "tensorflow": services.tensorflow,
            "storage_problem": services.store.problem,
            "default_kind": default_kind(),
        }

    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals["archive_endings"] = ",".join(f".{ending}" for ending in ENDINGS)
    app.jinja_env.globals["limits"] = {
        **LIMITS,
        "image_bytes": MAX_IMAGE_BYTES,
        "name": NAME_LENGTH,
        "production_name": production.NAME_PATTERN,
    }
    app.jinja_env.globals["cached_row"] = RowCache().render
    app.jinja_env.filters["in_turns"] = in_turns
    template_filters.add_filters(app)
    app.add_template_filter(serializers.metric_words, "metric_words")


def _add_error_pages(app: Flask, services: Services, *, show_traceback: bool) -> None:
    @app.errorhandler(Damaged)
    def damaged(error: Damaged) -> ResponseReturnValue:
        if request.method == "GET" and not wants_json():
            return redirect(url_for("jobs.show", job_id=error.job_id))
        return known(error)

    @app.errorhandler(DigitsError)
    def known(error: DigitsError) -> ResponseReturnValue:
        again = own_address(request) if isinstance(error, OtherSite) else ""
        headers = {"Retry-After": "1"} if isinstance(error, TooBusy) else {}
        answer = _answer(
            error.http_status, error.message, error.hint, type(error).__name__, trace=error.trace, again=again
        )
        return *answer, headers

    @app.errorhandler(HTTPException)
    def standard(error: HTTPException) -> tuple[Response | str, int] | HTTPException:
        if error.code is None or error.code < 400:
            return error
        return _answer(error.code, str(error.description or error.name), "", error.name.replace(" ", ""))

    @app.errorhandler(UnreadableFile)
    def unreadable(error: UnreadableFile) -> ResponseReturnValue:
        return known(_loss(services.store) or NotFound("A file of this job cannot be read.", str(error)))

    @app.errorhandler(OSError)
    def failing_disk(error: OSError) -> ResponseReturnValue:
        explained = _loss(services.store) or explain(error)
        if explained is None:
            return fault(error)
        log.error("%s %s failed: %s", request.method, request.path, error)
        return known(explained)

    @app.errorhandler(MethodNotAllowed)
    def only_sent(error: MethodNotAllowed) -> tuple[Response | str, int, dict[str, str]]:
        # For example, a reload of the form's target after the response was lost.
        words = "Nothing was changed: this address only accepts a submitted form."
        hint = "If you submitted a form and got no response, check Home to see whether it arrived."
        allowed = {"Allow": ", ".join(sorted(error.valid_methods or ()))}
        return *_answer(405, words, hint, "MethodNotAllowed"), allowed

    @app.errorhandler(Exception)
    def fault(error: Exception) -> tuple[Response | str, int]:
        log.exception("%s %s failed", request.method, request.path)
        message = "Internal server error. The details are in the server's log."
        details = "".join(traceback.format_exception(error)) if show_traceback else ""
        return _answer(500, message, "", "InternalServerError", details=details)


def _loss(store: Store) -> StoreLost | None:
    """Return the error if the jobs folder is gone, which explains any missing file."""
    try:
        store.check()
    except StoreLost as lost:
        return lost
    return None


def _answer(
    status: int,
    message: str,
    hint: str,
    kind: str,
    *,
    trace: Sequence[dict[str, Any]] = (),
    again: str = "",
    details: str = "",
) -> tuple[Response | str, int]:
    """Render an error as a page or as JSON. The page offers a link to ``again`` and shows ``details`` unchanged."""
    if wants_json():
        return jsonify(
            with_box(error_body(request.path, message, kind, hint, trace=trace, details=details))
        ), status
    title = {403: "Not allowed", 404: "Not found", 500: "Server error"}.get(status, "Something went wrong")
    try:
        page = render_template(
            "error.html",
            status=status,
            title=title,
            message=message,
            hint=hint,
            trace=trace,
            again=again,
            details=details,
        )
    except OSError:  # With too many open files, the template may not be readable either.
        return Response(f"{message} {hint}".strip(), mimetype="text/plain"), status
    return page, status
