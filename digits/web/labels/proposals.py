"""Proposals of models for the images of labels: the task that makes them, and accepting many at once."""

from __future__ import annotations

import time
from typing import Any

from flask import request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest
from digits.core.files import make_folder, write_json
from digits.core.model_job import ModelJob
from digits.core.recipe import ProposeLabels
from digits.data.models import evaluation as evaluations
from digits.data.models.predictions import new_id
from digits.kinds.forms.request_fields import flag, positive
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.proposals import FOLDER, RUNS, Run
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.activities import Activity
from digits.web.jobs.snapshots import snapshot_of
from digits.web.labels.actions import accept_above, fields_of_request, find, sample_above
from digits.web.labels.books import book_of
from digits.web.resources.labels import Accepted, ProposalRun
from digits.web.responses.representation import respond, twin
from digits.web.security.sessions import current_username
from digits.web.services import services

# Objects of models without an evaluation count from this score on.
MIN_SCORE = 0.3
MOST_MODELS = 50


def _recipe(job: LabelsJob) -> ProposeLabels:
    """Let the snapshot of ``epoch``, by default the best one, of the ``model`` predict all images."""
    sent = fields_of_request()
    model = services().store.get(str(sent.get("model", "")), ModelJob)
    kind = serializers.data_kind(model)
    if kind is None or kind.name != job.kind:
        raise BadRequest(
            f"“{model.name}” does not predict what these labels contain.",
            f"Choose a model of the kind {job.kind}.",
        )
    epoch = sent.get("epoch")
    snapshot = snapshot_of(model, None if epoch in (None, "") else str(epoch))
    run = Run(
        id=new_id(),
        model=model.id,
        name=model.name,
        snapshot=snapshot.name,
        epoch=snapshot.epoch,
        at=time.time(),
        total=len(book_of(job).images),
    )
    target = RUNS.folder_of(job.folder, run.id)
    in_thread(make_folder, job.folder / FOLDER)
    in_thread(make_folder, target)
    in_thread(write_json, target / RUNS.file, run)
    return ProposeLabels(
        model=str(model.folder),
        snapshot=snapshot.name,
        trained_on=str(model.dataset_folder),
        labels=str(job.folder),
        root=job.root,
        target=str(target),
        kind=job.kind,
        classes={item.name: item.id for item in job.shown_classes},
        source=f"{model.id}/{run.id}",
        min_score=in_thread(_min_score, model),
        weights=services().feature_weights,
    )


def _min_score(model: ModelJob) -> float:
    """Return the score from which on objects count in the evaluations of a model."""
    details = (result.details for result in evaluations.load_all(model.folder))
    return next((each["detections"]["best"] for each in details if "detections" in each), MIN_SCORE)


def _result(job: LabelsJob) -> dict[str, Any]:
    book = book_of(job)
    run = book.proposals.run
    return {"run": run.name if run else "", "epoch": run.epoch if run else 0.0, "images": len(book.proposals)}


def _choices(job: LabelsJob) -> list[ModelJob]:
    """Return the newest models of the kind that can predict."""
    models = services().store.index.select(ModelJob)
    fitting = (model for model in models if getattr(serializers.data_kind(model), "name", "") == job.kind)
    usable = (model for model in fitting if services().snapshots_of(model).default is not None)
    return [model for model, _ in zip(usable, range(MOST_MODELS), strict=False)]


proposals = Activity(
    name="proposals",
    path="predictions",
    noun="prediction",
    title="Proposals",
    job_type=LabelsJob,
    task_folder="propose",
    pool="prediction",
    results=FOLDER,
    recipe=_recipe,
    resource=ProposalRun,
    result=_result,
    choices=_choices,
    template="_proposals.html",
)


blueprint = proposals.blueprint


@twin(blueprint, "/labels/<job_id>/accept", Accepted)
def accept(job_id: str) -> AnyResponse:
    """Accept the proposals for open training images whose score is at least ``threshold``.

    With ``dry_run``, return their number and a random sample instead: see it before you accept all.
    """
    job, sent = find(job_id), fields_of_request()
    check_owner(job)
    threshold = positive({"threshold": str(sent.get("threshold", ""))}, "threshold")
    if threshold > 1:
        raise BadRequest("“threshold” must be a number over 0, and at most 1.")
    book = book_of(job)
    if flag({"dry_run": str(sent.get("dry_run") or "")}, "dry_run"):
        accepted = Accepted(*in_thread(sample_above, book, threshold))
        page = url_for("label_pages.show", job_id=job_id, score=round(100 * threshold))
    else:
        accepted = accept_above(book, threshold)
        page = url_for("label_pages.show", job_id=job_id, batch=accepted.batch, accepted=accepted.count)
    return respond(accepted, created=page)


@twin(blueprint, "/labels/<job_id>/accept/undo", Accepted)
def undo(job_id: str) -> AnyResponse:
    """Take back the labels that were accepted as one ``batch``, except those that somebody has changed since."""
    job = find(job_id)
    check_owner(job)
    batch = str(fields_of_request().get("batch", ""))
    if not batch:
        raise BadRequest("“batch” is missing.", "It is in the response to “accept”.")
    book = book_of(job)
    taken = Accepted(book.write(book.log.take_back, batch, current_username(request) or ""), batch=batch)
    return respond(taken, created=url_for("label_pages.show", job_id=job_id))
