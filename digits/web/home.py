"""The home page: all jobs, and the first steps for new users."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits import __version__
from digits.core.errors import NotFound
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob
from digits.data.sample_catalog import SAMPLES
from digits.kinds import refused_plugins
from digits.kinds.jobs import DatasetJob
from digits.web import serializers
from digits.web.dataset_submit import new_sample
from digits.web.job_query import Column, JobQuery, plain
from digits.web.model_submit import first_model
from digits.web.services import services

blueprint = Blueprint("home", __name__)

PAGE_ROWS = 500
COLUMNS = {
    "name": Column(lambda job: plain(job.name)),
    "status": Column(lambda job: job.status.label),
    "submitted": Column(lambda job: job.submitted, first="desc"),
    "elapsed": Column(lambda job: job.elapsed or None, first="desc"),
    "last_accuracy": Column(lambda job: serializers.metric_rank(job), first="desc"),
    "refs": Column(lambda job: len(services().store.children(job)), first="desc"),
    "bytes": Column(lambda job: serializers.record_bytes(job), first="desc"),
}


@blueprint.get("/")
def index() -> Response:
    """Show the home page, or only its tables for a page that refreshes itself."""
    fragment = request.headers.get("X-Fragment") == "jobs"
    query = JobQuery.parse(request.args, COLUMNS)
    datasets, dataset_count = _rows(DatasetJob, query)
    models, model_count = _rows(ModelJob, query)
    page = render_template(
        "_jobs.html" if fragment else "home.html",
        datasets=datasets,
        dataset_count=dataset_count,
        models=models,
        model_count=model_count,
        query=query.arguments(),
        heads=_heads(query),
        samples=[{"id": item.id, "title": item.title, "detail": item.detail} for item in SAMPLES.values()],
        devices=serializers.device_rows(),
        damaged=serializers.rows(services().store.all(DamagedJob)),
        refused_plugins=refused_plugins(),
    )
    response = make_response(page)
    response.vary.add("X-Fragment")
    return response


@blueprint.get("/health")
def health() -> Response:
    """Health check: the version, and the problem if jobs cannot be saved. Requires no login."""
    problem = services().store.problem
    if problem is None:
        return jsonify(version=__version__)
    return make_response(jsonify(version=__version__, problem=problem.message), problem.http_status)


@blueprint.get("/index.json")
def index_json() -> Response:
    store = services().store
    return jsonify(
        version=__version__,
        jobs_dir=str(store.folder),
        server_name=services().settings.server_name,
        datasets=[serializers.brief(job) for job in store.all(DatasetJob)],
        models=[serializers.model_json(job, verbose=False) for job in store.all(ModelJob)],
        damaged=[serializers.brief(job) for job in store.all(DamagedJob)],
        refused_plugins=[asdict(refusal) for refusal in refused_plugins()],
    )


@blueprint.get("/completed_jobs.json")
def completed_jobs() -> Response:
    rows = serializers.rows(services().store.all(Job))
    ended = [row for row in rows if not row["running"]]
    return jsonify(
        running=[row for row in rows if row["running"]],
        datasets=[row for row in ended if row["type"] == "dataset"],
        models=[row for row in ended if row["type"] == "model"],
        damaged=[row for row in ended if row["type"] == "damaged"],
        pretrained_models=[],
        model_output_fields=[],
    )


@blueprint.post("/try/<sample>")
def try_sample(sample: str) -> AnyResponse:
    """Download a sample, create a dataset from it and train a network that fits it, with one click."""
    if sample not in SAMPLES:
        raise NotFound(f"There is no sample called “{sample}”.")
    with services().store.creation() as new_folder:
        dataset = new_sample(new_folder(), SAMPLES[sample])
        model = first_model(new_folder(), dataset)
        services().scheduler.submit(dataset, model)
    if request.path.endswith(".json") or request.accept_mimetypes.best == "application/json":
        return jsonify(dataset=serializers.brief(dataset), model=serializers.brief(model))
    return redirect(url_for("models.show", job_id=model.id))


def _rows(job_type: type[Any], query: JobQuery) -> tuple[list[dict[str, Any]], int]:
    """Return the first rows of the jobs that match ``query``, and the number of matches."""
    jobs = query.select(services().store.all(job_type), COLUMNS, _searched_texts)
    return serializers.rows(jobs[:PAGE_ROWS]), len(jobs)


def _searched_texts(job: Job) -> tuple[str | None, ...]:
    return job.name, job.group, job.owner, job.status.label, serializers.dataset_name(job)


def _heads(query: JobQuery) -> dict[str, dict[str, str]]:
    """Return the ``aria-sort`` value of each column, and the URL that sorts by it."""
    orders = {"asc": "ascending", "desc": "descending"}
    return {
        key: {
            "order": orders[query.direction] if key == query.sort else "none",
            "url": url_for("home.index", **query.toggled(key, column).arguments()),
        }
        for key, column in COLUMNS.items()
    }
