"""The JSON routes of DIGITS 6 for batch predictions, which wait for the results."""

from __future__ import annotations

import gevent
from flask import Blueprint, Response, jsonify, url_for

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.data.models import predictions as files
from digits.data.models.predictions import BatchPrediction
from digits.runtime.offload import in_thread, in_turns
from digits.web.jobs.access import requested_job
from digits.web.predictions.predictions import inputs_of_kind, names_of, predictions
from digits.web.predictions.runs import FindSource, Results, best_of_classes, labels_of, prepare, results_of
from digits.web.request_limits import limited
from digits.web.resources.predictions import ClassifiedImages, TopImages
from digits.web.responses.representation import returns
from digits.web.services import require_tensorflow

blueprint = Blueprint("batches", __name__)

POLL_SECONDS = 0.05


@blueprint.post("/models/images/classification/classify_many.json")
@returns(ClassifiedImages)
def classify_many_json() -> Response:
    """Run a batch prediction to completion, and return up to five classes per image."""
    job, about, results = run_to_completion()
    check_readable(results, "images")
    result = ClassifiedImages(
        classifications={row.name: row.predictions for row in in_turns(results.read()) if not row.error},
        skipped=_skipped(results),
        problems=about.problems,
        accuracy=results.sums.accuracy(),
        url=url_for("predictions.show", job_id=job.id, prediction_id=about.id),
    )
    return jsonify(result)


@blueprint.post("/models/images/classification/top_n.json")
@returns(TopImages)
def top_n_json() -> Response:
    """Run a batch prediction to completion, and return the most probable images for each class."""
    count = limited("top_n")
    labels = _classes_of(requested_job(ModelJob))
    _, _, results = run_to_completion()
    best = in_thread(best_of_classes, results, range(len(labels)), count)
    names = names_of(results, best)
    top_n = {
        label: [(names[place], percent) for place, percent in images]
        for label, images in zip(labels, best, strict=True)
    }
    return jsonify(TopImages(top_n, _skipped(results)))


def _classes_of(job: ModelJob) -> list[str]:
    labels = labels_of(job)
    if not labels:
        raise BadRequest(f"“{job.name}” does not predict classes.", "Choose a classification model.")
    return labels


def run_to_completion(
    find: FindSource | None = None, *, keeps_values: bool = False
) -> tuple[ModelJob, BatchPrediction, Results]:
    """Run a batch prediction, and return its results when it has finished."""
    require_tensorflow()
    job = requested_job(ModelJob)
    recipe = prepare(job, find or inputs_of_kind(job), keeps_values=keeps_values)
    key, tasks = predictions.key(recipe), predictions.tasks
    about = in_thread(files.load, job.folder, key)
    tasks.start(job, recipe, key)
    while tasks.task(job.id, key):
        gevent.sleep(POLL_SECONDS)
    failure = tasks.failure(job.id, key)
    if failure:
        raise BadRequest(failure.message, failure.hint)
    results = results_of(job, about)
    if len(results) < about.total:
        raise BadRequest(
            f"The prediction was stopped after {len(results):,} of {about.total:,} images.",
            "Send the request again.",
        )
    return job, about, results


def check_readable(results: Results, noun: str) -> None:
    """Raise BadRequest if there are results, but none of the records could be read."""
    if 0 < len(results) == len(results.sums.unreadable):
        reason = next(results.read([0])).error
        raise BadRequest(f"None of the {len(results):,} {noun} can be used: {reason}")


def _skipped(results: Results) -> dict[str, str]:
    return {row.name: row.error for row in results.read(results.sums.unreadable)}
