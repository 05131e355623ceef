"""Answer the predictions of programs before Flask, whose routing, hooks and sessions take longer than they do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from flask import Flask, Response

from digits.core.model_job import ModelJob
from digits.web.jobs.snapshots import snapshot_of
from digits.web.responses.files import pieces_of
from digits.web.security.environ import FORM, MULTIPART, Environ, StartResponse, media_type
from digits.web.security.origin import is_from_browser
from digits.web.services import services
from digits.web.serving import protocols
from digits.web.serving.views import production_model

_NAME = "[A-Za-z0-9_.-]+"
_PATH = re.compile(
    rf"/models/(?P<job_id>{_NAME})/predict(?:\.json)?"
    rf"|/serve/(?P<name>{_NAME})(?:/v1/models/{_NAME}:predict|(?P<kserve>/v2/models/{_NAME}/infer))?"
)


class DirectPredictions:
    """Middleware that answers POST requests of programs for predictions whose body is not a form.

    Requests of browsers, for another snapshot than the default one, and for a version reach the views of the same
    paths. Errors are those of these views.
    """

    def __init__(self, app: Flask) -> None:
        self._app, self._inner = app, app.wsgi_app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        match = _PATH.fullmatch(environ["PATH_INFO"])
        if match is None or not _is_plain(environ):
            return self._inner(environ, start_response)
        job_id, name, kserve = match.groups()
        is_counted = False
        with self._app.app_context():
            metrics = services().serving_metrics
            try:
                if job_id:
                    job = services().store.get(job_id, ModelJob)
                    name, snapshot = job.id, snapshot_of(job, None).name
                else:
                    job, entry = production_model(name)
                    snapshot = entry.snapshot
                is_counted = True
                with metrics.request(name):
                    read = partial(protocols.body_of, environ, name, "kserve" if kserve else "json")
                    answer = protocols.answer(name, job, snapshot, read)
            except Exception as error:
                response = self._failed(error, environ)
                if is_counted:
                    metrics.answered(name, response.status_code)
                return response(environ, start_response)
            metrics.answered(name, 200)
        start_response("200 OK", [*answer.headers.items(), ("Content-Length", str(len(answer.body)))])
        return pieces_of([answer.body])

    def _failed(self, error: Exception, environ: Environ) -> Response:
        with self._app.request_context(environ):
            return self._app.make_response(self._app.handle_user_exception(error))


def _is_plain(environ: Environ) -> bool:
    return (
        environ["REQUEST_METHOD"] == "POST"
        and not environ["QUERY_STRING"]
        and media_type(environ) not in (FORM, MULTIPART)
        and not is_from_browser(environ)
    )
