"""The report of a model: a page for printing, a file that needs no other files, and JSON."""

from __future__ import annotations

import re

from flask import Blueprint, Response, jsonify, request

from digits.core.model_job import ModelJob
from digits.data.images import data_uri
from digits.kinds.request_fields import flag
from digits.web.reports import contents as reports
from digits.web.reports.contents import Report
from digits.web.resources.reports import ReportData
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import returns
from digits.web.services import services

blueprint = Blueprint("report", __name__)


@blueprint.get("/models/<job_id>/report")
def show(job_id: str) -> Response:
    """Show the report with the evaluation ``name``, by default that of the best snapshot.

    With ``download``, it is a file without links to this server.
    """
    report = _report(job_id)
    is_file = flag(request.args, "download")
    page = render_in_turns("report.html", report=report, is_file=is_file, data_uri=data_uri)
    response = Response(page, mimetype="text/html")
    if is_file:
        response.headers["Content-Disposition"] = f'attachment; filename="{_file_name(report)}.html"'
    return response


@blueprint.get("/models/<job_id>/report.json")
@returns(ReportData)
def show_json(job_id: str) -> Response:
    """Return the report as data, without its images and charts."""
    return jsonify(_report(job_id).data)


def _report(job_id: str) -> Report:
    return reports.build(services().store.get(job_id, ModelJob), request.args.get("name", ""))


def _file_name(report: Report) -> str:
    """Return a file name in ASCII, as headers require it."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", report.data.name).strip("-.")[:60]
    return f"{words or 'model'}-report"
