"""The home page: all jobs, and the first steps for new users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, make_response, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits import __version__
from digits.core.errors import DigitsError, DiskFull, NotFound, explain
from digits.core.files import check_spare_descriptors
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob
from digits.core.status import Status
from digits.data.samples.catalog import SAMPLES
from digits.kinds import refused_plugins
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.job import LabelsJob
from digits.runtime.job_index import COLUMNS
from digits.web.datasets.submit import new_sample
from digits.web.evaluations.compared_models import MAX_MODELS
from digits.web.jobs import serializers
from digits.web.jobs.query import JobQuery, Page, page_of
from digits.web.models.submission import first_model
from digits.web.resources.lists import ServerHealth
from digits.web.responses.representation import render, returns, wants_json
from digits.web.services import services

blueprint = Blueprint("home", __name__)

PAGE_ROWS = 50
RUNNING_CARDS = 20
# Pages open files, folders and sockets at the same time.
DESCRIPTORS_OF_A_PAGE = 16


@blueprint.get("/")
def index() -> Response:
    """Show the home page, or only its tables for a page that refreshes itself."""
    query, store = JobQuery.parse(request.args), services().store
    jobs = store.index
    # In the order in which they start.
    unfinished = store.in_order(
        job for job_type in (ModelJob, DatasetJob, LabelsJob) for job in query.select(jobs, job_type, True)
    )
    queue = [job for job in store.running() if job.status is not Status.RUN]
    running = [job for job in unfinished if job.status is Status.RUN]
    waiting = [job for job in unfinished if job.status is not Status.RUN]
    ended: dict[str, Sequence[Job]] = {
        "models": query.select(jobs, ModelJob, False),
        "datasets": query.select(jobs, DatasetJob, False),
        "labels": query.select(jobs, LabelsJob, False),
    }
    pages: dict[str, Page[Job]] = {
        "running": _page("running", running, RUNNING_CARDS),
        "queue": _page("queue", waiting),
        "models": _page("models", ended["models"]),
        "datasets": _page("datasets", ended["datasets"]),
        "labels": _page("labels", ended["labels"]),
        "damaged": _page("damaged", jobs.select(DamagedJob)),
    }
    return render(
        "home.html",
        part="_jobs.html",
        **{name: serializers.rows(page.items) for name, page in pages.items()},
        pages=pages,
        addresses={name: partial(_address, query, pages, name) for name in pages},
        counts={
            name: len(ended[name]) + sum(isinstance(job, job_type) for job in unfinished)
            for name, job_type in (("models", ModelJob), ("datasets", DatasetJob))
        },
        positions={job.id: position for position, job in enumerate(queue, 1)},
        query=query.arguments(),
        heads=_heads(query),
        samples=list(SAMPLES.values()),
        devices=serializers.device_rows(),
        refused_plugins=refused_plugins(),
        has_production=services().production.exists,
        most_compared=MAX_MODELS,
    )


@blueprint.get("/health")
@returns(ServerHealth)
def health() -> Response:
    """Health check: the version, and the problem if jobs cannot be saved or pages not served. Requires no login."""
    return _health(lambda problem: True)


@blueprint.get("/ready")
@returns(ServerHealth)
def ready() -> Response:
    """Like the health check, but with the status 200 if the disk is full: people have to delete jobs then."""
    return _health(lambda problem: not isinstance(problem, DiskFull))


def _health(is_failure: Callable[[DigitsError], bool]) -> Response:
    problem = services().store.problem or _descriptor_problem()
    if problem is None:
        return jsonify(ServerHealth(__version__))
    status = problem.http_status if is_failure(problem) else 200
    return make_response(jsonify(ServerHealth(__version__, problem.message)), status)


def _descriptor_problem() -> DigitsError | None:
    try:
        check_spare_descriptors(DESCRIPTORS_OF_A_PAGE)
    except OSError as error:
        return explain(error)
    return None


@blueprint.post("/try/<sample>")
def try_sample(sample: str) -> AnyResponse:
    """Download a sample, create a dataset from it and train a network that fits it, with one click."""
    if sample not in SAMPLES:
        raise NotFound(f"There is no sample called “{sample}”.")
    with services().store.creation() as new_folder:
        dataset = new_sample(new_folder(), SAMPLES[sample])
        model = first_model(new_folder(), dataset)
        services().scheduler.submit(dataset, model)
    if wants_json():
        return jsonify(dataset=serializers.brief(dataset), model=serializers.brief(model))
    return redirect(url_for("model_page.show", job_id=model.id))


def _page(name: str, jobs: Sequence[Job], size: int | None = None) -> Page[Job]:
    return Page.of(jobs, page_of(request.args, f"{name}_page"), size or PAGE_ROWS)


def _address(query: JobQuery, pages: Mapping[str, Page[Job]], name: str, number: int) -> str:
    """Return the URL of the home page that shows page ``number`` of the list ``name``."""
    positions = {key: page.number for key, page in pages.items()} | {name: number}
    numbers: dict[str, Any] = {f"{key}_page": positions[key] for key in pages if positions[key] > 1}
    return url_for("home.index", **query.arguments(), **numbers, _anchor=f"{name}-title")


def _heads(query: JobQuery) -> dict[str, dict[str, str]]:
    """Return the ``aria-sort`` value of each column, and the URL that sorts by it."""
    orders = {"asc": "ascending", "desc": "descending"}
    return {
        key: {
            "order": orders[query.direction] if key == query.sort else "none",
            "url": url_for("home.index", **query.toggled(key).arguments()),
        }
        for key in COLUMNS
    }
