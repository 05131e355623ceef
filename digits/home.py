"""The home page: all jobs, and the first steps of a newcomer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits import __version__, present
from digits.dataset.create import new_sample
from digits.dataset.job import DatasetJob
from digits.download import SAMPLES
from digits.errors import NotFound
from digits.job import DamagedJob, Job
from digits.model.create import new_model
from digits.model.job import ModelJob
from digits.services import services

blueprint = Blueprint("home", __name__)

PAGE_ROWS = 500
_SORT_KEYS: dict[str, Callable[[Job], Any]] = {
    "name": lambda job: job.name.lower(),
    "status": lambda job: job.status.title,
    "submitted": lambda job: job.submitted,
    "elapsed": lambda job: job.elapsed,
    "progress": lambda job: job.progress,
    "last_accuracy": lambda job: job.summary.get("last_accuracy") or -1.0,
    "refs": lambda job: len(services().store.children(job)),
    "bytes": lambda job: present.record_bytes(job) or 0,
}


@blueprint.get("/")
def index() -> Response:
    """The home page, or its table alone for a page that refreshes itself."""
    fragment = request.headers.get("X-Fragment") == "jobs"
    query = {
        "q": request.args.get("q", "").strip(),
        "sort": request.args.get("sort", ""),
        "dir": "asc" if request.args.get("dir") == "asc" else "desc",
    }
    page = render_template(
        "_jobs.html" if fragment else "home.html",
        datasets=_rows(DatasetJob, query),
        models=_rows(ModelJob, query),
        query=query,
        samples=[{"id": item.id, "title": item.title, "detail": item.detail} for item in SAMPLES.values()],
        devices=present.device_rows(),
        damaged=present.rows(services().store.all(DamagedJob)),
    )
    response = make_response(page)
    response.vary.add("X-Fragment")
    return response


@blueprint.get("/health")
def health() -> Response:
    """For whoever watches over the server: its version, and what keeps it from saving jobs. Needs no login."""
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
        datasets=[present.brief(job) for job in store.all(DatasetJob)],
        models=[present.model_json(job, verbose=False) for job in store.all(ModelJob)],
        damaged=[present.brief(job) for job in store.all(DamagedJob)],
    )


@blueprint.get("/completed_jobs.json")
def completed_jobs() -> Response:
    rows = present.rows(services().store.all(Job))
    ended = [row for row in rows if not row["running"]]
    return jsonify(
        running=[row for row in rows if row["running"]],
        datasets=[row for row in ended if row["kind"] == "dataset"],
        models=[row for row in ended if row["kind"] == "model"],
        damaged=[row for row in ended if row["kind"] == "damaged"],
        pretrained_models=[],
        model_output_fields=[],
    )


@blueprint.post("/try/<sample>")
def try_sample(sample: str) -> AnyResponse:
    """Download a sample, make a dataset of it and train LeNet on that, with one click."""
    if sample not in SAMPLES:
        raise NotFound(f"There is no sample called “{sample}”.")
    with services().store.creation() as new_folder:
        dataset = new_sample(new_folder(), SAMPLES[sample])
        model = new_model(new_folder(), dataset)
        services().scheduler.submit(dataset, model)
    if request.path.endswith(".json") or request.accept_mimetypes.best == "application/json":
        return jsonify(dataset=present.brief(dataset), model=present.brief(model))
    return redirect(url_for("models.show", job_id=model.id))


def _rows(kind: type[Any], query: dict[str, str]) -> list[dict[str, Any]]:
    jobs = services().store.all(kind)
    words = query["q"].lower().split()
    if words:
        jobs = [job for job in jobs if all(word in _searched(job) for word in words)]
    key = _SORT_KEYS.get(query["sort"])
    if key:
        jobs.sort(key=key, reverse=query["dir"] == "desc")
    return present.rows(jobs[:PAGE_ROWS])


def _searched(job: Job) -> str:
    return " ".join([job.name, job.id, job.group, job.owner or "", job.status.title]).lower()
