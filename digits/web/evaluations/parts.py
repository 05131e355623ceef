"""The parts of an evaluation for pages: metrics in words, confusion matrix, worst records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.data.records.search import Place
from digits.kinds.forms.request_fields import nearest
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.web.offload import in_thread
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages
from digits.web.resources.records import GalleryItem

MAX_POINTS = 2000
# The row of false detections and the column of missed objects in a confusion matrix.
NO_OBJECT = "No object"


def interval_words(result: Evaluation, name: str, views: Views[Any]) -> str:
    """Return the interval of a metric, such as ``91.0% to 96.2%``; "" if there is none."""
    interval = result.intervals.get(name)
    return " to ".join(map(views.metric(name).format, (interval.low, interval.high))) if interval else ""


def load_matrix(job: ModelJob, result: Evaluation) -> NDArray[np.int64] | None:
    """Return the number of records of each true class, by row, and predicted class; None for other kinds."""
    arrays = _load_predictions(job, result)
    if arrays is None:
        return None
    targets, predictions = arrays
    if targets.dtype.kind != "i" or targets.ndim != 1:
        return None
    counted = targets >= 0  # the model lacks the classes of the others
    predictions, targets = predictions[counted], targets[counted]
    classes = predictions.shape[1]
    pairs = targets * classes + predictions.argmax(axis=1)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def chosen_threshold(result: Evaluation, options: Mapping[str, str]) -> int:
    """Return the score, in percent, from which on detections count: ``threshold``, or the best one; else 0."""
    if "detections" not in result.details:
        return 0
    best = round(100 * result.details["detections"]["best"])
    return nearest(options, "threshold", best, 0, 100)


def shown_detections(details: Mapping[str, Any], threshold: int) -> dict[str, Any]:
    """Return the found and false detections at each threshold, and the confusion matrix and classes at one of them.

    This is the ``threshold`` in percent, or else the best one. The last row and column of the matrix are `NO_OBJECT`.
    """
    curve = details["detections"]
    percents = [round(100 * each) for each in curve["thresholds"]]
    matrices = curve["matrices"]
    place = int(np.argmin(np.abs(np.array(percents) - threshold))) if len(matrices) == len(percents) else 0
    matrix = np.array(matrices[place], np.int64)
    hits, detected, true = np.diagonal(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
    return {
        "curve": {name: curve[name] for name in ("hits", "false", "objects")} | {"percents": percents},
        "threshold": threshold,
        "at": percents[place] if len(matrices) == len(percents) else round(100 * curve["best"]),
        "matrix": matrix,
        "classes": [
            {
                **item,
                "precision": int(hits[number]) / int(detected[number]) if detected[number] else None,
                "recall": int(hits[number]) / int(true[number]) if true[number] else None,
            }
            for number, item in enumerate(details["classes"])
        ],
    }


def worst_records(
    job: ModelJob,
    result: Evaluation,
    dataset: DatasetJob,
    manifest: Manifest,
    limit: int = evaluations.WORST,
    threshold: int | None = None,
) -> list[dict[str, Any]]:
    """Return the mistakes with the largest errors, each as in the gallery, with its prediction.

    Detections count from the score ``threshold`` on, in percent, by default from the best one.
    """
    try:
        errors = in_thread(_largest_errors, job, result, manifest, limit)
        places = [Place(result.split, number) for number in errors]
        items = gallery_items(dataset, manifest, RecordImages(dataset, manifest), places)
    except UnreadableFile:
        return []
    score = (chosen_threshold(result, {}) if threshold is None else threshold) / 100
    return in_thread(
        _with_predictions, items, errors, job, result, views_of(dataset.data_kind), manifest, score
    )


def _largest_errors(job: ModelJob, result: Evaluation, manifest: Manifest, limit: int) -> dict[int, float]:
    """Return the largest errors of mistakes in descending order, by the numbers of their records.

    Raises UnreadableFile.
    """
    errors = evaluations.load_array(job.folder, result.name, evaluations.ERRORS_FILE)
    is_mistake = errors > 0
    if arrays := _load_predictions(job, result):
        is_mistake &= manifest.target.mistakes(*arrays)
    order = np.argsort(-errors, kind="stable")
    return {int(place): float(errors[place]) for place in order[is_mistake[order]][:limit]}


def _load_predictions(job: ModelJob, result: Evaluation) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the targets and the predictions of all records; None if they are not numbers."""
    try:
        return (
            evaluations.load_array(job.folder, result.name, evaluations.TARGETS_FILE),
            evaluations.load_array(job.folder, result.name, evaluations.PREDICTIONS_FILE),
        )
    except UnreadableFile:
        return None


def _with_predictions(
    items: list[GalleryItem],
    errors: dict[int, float],
    job: ModelJob,
    result: Evaluation,
    views: Views[Any],
    manifest: Manifest,
    threshold: float,
) -> list[dict[str, Any]]:
    described = _describe_predictions(job, result, manifest, list(errors))
    predicted = evaluations.load_worst(job.folder, result.name)
    return [
        {
            "item": item,
            "words": words
            or " · ".join(filter(None, (views.describe_error(errors[item.number]), item.label))),
            "prediction": item.draw_prediction(predicted.get(str(item.number)), manifest),
            # Those of other classes cannot be matched with the objects of the dataset.
            "compared": item.compare(predicted.get(str(item.number)), manifest, threshold)
            if "detections" in result.details and not result.classes
            else None,
        }
        for item, words in zip(items, described, strict=True)
    ]


def _describe_predictions(
    job: ModelJob, result: Evaluation, manifest: Manifest, places: list[int]
) -> list[str]:
    arrays = _load_predictions(job, result)
    if arrays is None:
        return [""] * len(places)
    targets, predictions = arrays
    # Predictions have the names of the model.
    target = manifest.target.renamed(result.classes) if result.classes else manifest.target
    return [target.describe_both(targets[place], predictions[place]) for place in places]


def load_points(job: ModelJob, result: Evaluation, manifest: Manifest) -> list[list[tuple[float, float]]]:
    """Return the true and the predicted value of up to `MAX_POINTS` records, for each number of a regression."""
    arrays = _load_predictions(job, result) if result.details.get("numbers") else None
    if arrays is None:
        return []
    targets, predictions = arrays
    places = np.linspace(0, len(targets) - 1, min(len(targets), MAX_POINTS)).astype(int)
    return [
        list(zip(targets[places, column].tolist(), predictions[places, column].tolist(), strict=True))
        for column in range(targets.shape[1])
    ]
