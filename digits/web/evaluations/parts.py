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
from digits.data.sources.plan import count_of
from digits.kinds.forms.request_fields import nearest
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.web.offload import in_thread
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages
from digits.web.resources.records import GalleryItem

# More classes do not fit on a page: the most confused ones are shown.
MAX_MATRIX = 40
MAX_POINTS = 2000
MAX_LACKING = 8
# The row of false detections and the column of missed objects in a confusion matrix.
NO_OBJECT = "No object"


def metric_rows(result: Evaluation, views: Views[Any]) -> list[tuple[str, str, str]]:
    """Return the title, the value and the interval of each metric, without those of single classes."""
    return [
        (views.metric(name).title, views.metric(name).format(value), interval_words(result, name, views))
        for name, value in result.metrics.items()
        if "/" not in name
    ]


def interval_words(result: Evaluation, name: str, views: Views[Any]) -> str:
    """Return the interval of a metric, such as ``91.0% to 96.2%``; "" if there is none."""
    interval = result.intervals.get(name)
    return " to ".join(map(views.metric(name).format, (interval.low, interval.high))) if interval else ""


def excluded_words(result: Evaluation, views: Views[Any]) -> str:
    """Describe the classes of the dataset that the model lacks; "" if there are none."""
    if not result.lacking:
        return ""
    more = len(result.lacking) - MAX_LACKING
    names = ", ".join(result.lacking[:MAX_LACKING]) + (f" and {more} more" if more > 0 else "")
    if not result.excluded:
        return f"The model does not have these names of the dataset, which are ignored: {names}."
    return f"Not counted: {count_of(result.excluded, views.record)} of {views.groups} that the model lacks ({names})."


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


def shown_matrix(
    matrix: NDArray[np.int64],
    names: list[str],
    options: dict[str, str],
    explore: str,
    limit: int = MAX_MATRIX,
) -> dict[str, Any]:
    """Return the rows of the confusion matrix, at most ``limit``, with links to the images of each cell.

    ``explore`` is the URL of all images, "" for no links.
    """

    def url(true: int, predicted: int) -> str:
        return f"{explore}&label={true}&predicted={predicted}" if explore else ""

    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    confused = np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")
    classes = confused[:limit] if len(names) > limit else np.arange(len(names))
    if options.get("order") != "errors":
        classes = np.sort(classes)
    else:
        classes = confused[: len(classes)]
    in_percent = options.get("unit") == "percent"
    totals = matrix.sum(axis=1)
    rows = []
    for true in classes.tolist():
        total = int(totals[true])
        cells = []
        for predicted in classes.tolist():
            count = int(matrix[true, predicted])
            share = count / total if total else 0.0
            cells.append(
                {
                    "count": count,
                    "text": (f"{100 * share:.0f}" if in_percent else f"{count:,}") if count else "",
                    "share": round(share, 3),
                    "is_right": true == predicted,
                    "predicted": names[predicted],
                    "url": url(true, predicted) if count else "",
                }
            )
        rows.append({"name": names[true], "cells": cells, "total": total})
    pairs = np.argsort(-wrong.ravel(), kind="stable")[:10]
    return {
        "columns": [names[place] for place in classes.tolist()],
        "rows": rows,
        "hidden": len(names) - len(classes),
        "in_percent": in_percent,
        "confused": [
            {
                "true": names[pair // len(names)],
                "predicted": names[pair % len(names)],
                "count": int(wrong.flat[pair]),
                "url": url(pair // len(names), pair % len(names)),
            }
            for pair in pairs.tolist()
            if wrong.flat[pair]
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
