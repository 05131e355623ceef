"""Predictions of all snapshots of a training for the same images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.records.search import Place
from digits.kinds.forms.request_fields import whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.snapshots import requested_snapshot, spread_snapshots
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.resources.predictions import EpochPredictions, FollowedRecords
from digits.web.resources.records import GalleryItem
from digits.web.responses.representation import render, respond, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services

blueprint = Blueprint("epochs", __name__)

# Records and epochs on the page. Predictions that are drawn, not written, take more room.
MAX_RECORDS, MAX_EPOCHS = 14, 20
MAX_DRAWN_RECORDS, MAX_DRAWN_EPOCHS = 6, 8


@dataclass(frozen=True)
class Followed:
    """The predictions for some records of a dataset."""

    dataset: DatasetJob
    manifest: Manifest
    predicted: FollowedRecords


@twin(blueprint, "/models/<job_id>/epoch-predictions", FollowedRecords, "GET")
@not_from_other_sites
def show(job_id: str) -> AnyResponse:
    """Return the predictions of each snapshot for the same records."""
    job = services().store.get(job_id, ModelJob)
    followed = _follow(job)
    return respond(followed.predicted, page=lambda: _part(job, followed))


def _part(job: ModelJob, followed: Followed) -> Response:
    """Return the part of the model's page that shows the predictions."""
    predicted = followed.predicted
    images = RecordImages(followed.dataset, followed.manifest)
    places = [Place(predicted.split, place) for place in predicted.records]
    try:
        items = gallery_items(followed.dataset, followed.manifest, images, places)
    except UnreadableFile as error:
        raise NotFound(f"The records cannot be read: {error}.", "Create the dataset again.") from error
    count = followed.manifest.splits[predicted.split].count
    return render(
        "_epoch_predictions.html",
        job_id=job.id,
        has_evaluation=bool(in_thread(evaluations.load_all, job.folder)),
        views=views_of(followed.dataset.data_kind),
        size=shown_size(followed.dataset, followed.manifest),
        epochs=[
            {
                "epoch": epoch.epoch,
                "cells": [
                    _cell(prediction, item, followed.manifest)
                    for prediction, item in zip(epoch.predictions, items, strict=True)
                ],
            }
            for epoch in predicted.epochs
        ],
        next_url=url_for("epochs.show", job_id=job.id, first=(predicted.records[-1] + 1) % count)
        if count > len(predicted.records)
        else "",
    )


def _follow(job: ModelJob) -> Followed:
    """Predict the same validation records, from ``first`` of this request on, with each snapshot."""
    default = requested_snapshot(job)
    data = serializers.finished_dataset(job.dataset_id)
    if data is None:
        raise NotFound("The dataset of this model was deleted.", "Predict images from your computer instead.")
    dataset, manifest = data
    split = next((name for name in ("val", "test", "train") if name in manifest.splits), "")
    count = manifest.splits[split].count if split else 0
    first = whole(request.args, "first", 0, 0, max(0, count - 1))
    is_drawn = manifest.target.in_image
    most_records, most_epochs = (
        (MAX_DRAWN_RECORDS, MAX_DRAWN_EPOCHS) if is_drawn else (MAX_RECORDS, MAX_EPOCHS)
    )
    places = list(range(first, min(count, first + most_records)))
    epochs = spread_snapshots(job, most_epochs)
    message = {
        "call": "follow",
        "snapshot": default.name,
        "snapshots": list(epochs),
        "dataset": str(dataset.folder),
        "split": split,
        "places": places,
    }
    answer = services().inference.ask(job.folder, message)
    rows = [EpochPredictions(epochs[item["snapshot"]], item["predictions"]) for item in answer["epochs"]]
    return Followed(dataset, manifest, FollowedRecords(split, places, rows))


def _cell(predicted: Any, item: GalleryItem, manifest: Manifest) -> dict[str, Any]:
    """Return how a prediction is shown. ``is_right`` is None if the prediction is not a class."""
    target = manifest.target
    return {
        "item": item,
        "drawing": item.draw_prediction(predicted, manifest),
        "words": target.describe_prediction(predicted),
        "is_right": target.is_right(predicted, item.label),
    }
