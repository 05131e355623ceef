"""Lists of jobs as JSON. Each response contains one page of each of its lists, to bound its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request, url_for

from digits import __version__
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob
from digits.kinds import refused_plugins
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.job import LabelsJob
from digits.runtime.offload import in_turns
from digits.web.jobs import serializers
from digits.web.jobs.query import JobQuery, page_of, per_page_of
from digits.web.models import serializers as model_serializers
from digits.web.pages.rows import list_row, output_fields, pretrained_row
from digits.web.resources.lists import (
    DatasetRows,
    JobRows,
    LabelsRows,
    ModelRows,
    ServerIndex,
    TableRow,
)
from digits.web.responses.representation import returns
from digits.web.services import services

blueprint = Blueprint("lists", __name__)

AnyJob = TypeVar("AnyJob", bound=Job)


@blueprint.get("/index.json")
@returns(ServerIndex)
def index() -> Response:
    """Return information about the server, and a page of brief job descriptions."""
    lists, paging = _pages(
        datasets=_select(DatasetJob),
        models=_select(ModelJob),
        labels=_select(LabelsJob),
        damaged=_select(DamagedJob),
    )
    body = ServerIndex(
        version=__version__,
        jobs_dir=str(services().store.folder),
        server_name=services().settings.server_name,
        datasets=[serializers.brief(job) for job in lists["datasets"]],
        models=[
            model_serializers.brief_model(job)
            for job in in_turns(lists["models"])
            if isinstance(job, ModelJob)
        ],
        labels=[serializers.brief(job) for job in lists["labels"]],
        damaged=[serializers.brief(job) for job in lists["damaged"]],
        refused_plugins=[asdict(refusal) for refusal in refused_plugins()],
        **paging,
    )
    return jsonify(body)


@blueprint.get("/completed_jobs.json")
@returns(JobRows)
def completed_jobs() -> Response:
    """Return a page of the rows of unfinished jobs, datasets, models, labels and damaged jobs."""
    lists, paging = _pages(
        running=[
            *_select(ModelJob, running=True),
            *_select(DatasetJob, running=True),
            *_select(LabelsJob, running=True),
        ],
        datasets=_select(DatasetJob, running=False),
        models=_select(ModelJob, running=False),
        labels=_select(LabelsJob, running=False),
        damaged=_select(DamagedJob),
        pretrained_models=[job for job in _select(ModelJob, running=False) if job.is_imported],
    )
    pretrained = lists.pop("pretrained_models")
    fields = {name for jobs in lists.values() for job in jobs for name in output_fields(job)}
    if pretrained:
        fields |= {"has_labels", "username"}
    rows: dict[str, Any] = {name: serializers.rows(jobs, list_row) for name, jobs in lists.items()}
    body = JobRows(
        **rows,
        pretrained_models=serializers.rows(pretrained, pretrained_row),
        model_output_fields=sorted(fields),
        **paging,
    )
    return jsonify(body)


@blueprint.get("/jobs/<job_id>/table_data.json")
@returns(TableRow)
def table_data(job_id: str) -> Response:
    """Return the row of a job."""
    return jsonify({"job": list_row(services().store.get(job_id, Job))})


@blueprint.get("/datasets.json")
@returns(DatasetRows)
def datasets() -> Response:
    """Return a page of the rows of datasets."""
    lists, paging = _pages(datasets=_select(DatasetJob))
    return jsonify(DatasetRows(datasets=serializers.rows(lists["datasets"], list_row), **paging))


@blueprint.get("/models.json")
@returns(ModelRows)
def models() -> Response:
    """Return a page of the rows of models."""
    lists, paging = _pages(models=_select(ModelJob))
    return jsonify(ModelRows(models=serializers.rows(lists["models"], list_row), **paging))


@blueprint.get("/labels.json")
@returns(LabelsRows)
def labels() -> Response:
    """Return a page of the rows of labels."""
    lists, paging = _pages(labels=_select(LabelsJob))
    return jsonify(LabelsRows(labels=serializers.rows(lists["labels"], list_row), **paging))


def _select(job_type: type[AnyJob], running: bool | None = None) -> list[AnyJob]:
    """Return the jobs of a type that match the request's search, in the requested order."""
    return JobQuery.parse(request.args).select(services().store.index, job_type, running)


def _pages(**lists: Sequence[Job]) -> tuple[dict[str, Sequence[Job]], dict[str, Any]]:
    """Return the requested page of each list, and the pagination fields of the response.

    ``next`` is the URL of the next page; None if no list has more jobs.
    """
    number, size = page_of(request.args), per_page_of(request.args)
    totals = {name: len(jobs) for name, jobs in lists.items()}
    arguments = {**JobQuery.parse(request.args).arguments(), "per_page": size, "page": number + 1}
    has_more = number * size < max(totals.values())
    return {name: jobs[(number - 1) * size : number * size] for name, jobs in lists.items()}, {
        "page": number,
        "per_page": size,
        "totals": totals,
        "next": url_for(request.endpoint or "", **arguments) if has_more else None,
    }
