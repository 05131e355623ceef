"""The parts of evaluations that pages show: confusion matrices, points and mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
from digits.runtime.offload import in_thread
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


@dataclass(frozen=True)
class EvaluatedRecords:
    """The records of an evaluation of ``job``. Reads files."""

    job: ModelJob
    result: Evaluation

    @cached_property
    def _loaded(self) -> list[NDArray[Any]]:
        """The errors of all records and, if they are numbers, the targets and the predictions."""
        folder, name = self.job.folder, self.result.name
        numbers = (evaluations.TARGETS_FILE, evaluations.PREDICTIONS_FILE)
        files = numbers if evaluations.has_predictions(folder, name) else ()
        return evaluations.load_arrays(folder, name, evaluations.ERRORS_FILE, *files)

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The targets and the predictions of all records; None if they are not numbers."""
        try:
            _, *arrays = self._loaded
        except UnreadableFile:
            return None
        return (arrays[0], arrays[1]) if arrays else None

    def matrix(self) -> NDArray[np.int64] | None:
        """Return the number of records of each true class, by row, and predicted class; None for other kinds."""
        targets, predictions = self.arrays or (np.array([]), np.array([]))
        if targets.dtype.kind != "i" or targets.ndim != 1:
            return None
        counted = targets >= 0  # the model lacks the classes of the others
        predictions, targets = predictions[counted], targets[counted]
        classes = predictions.shape[1]
        pairs = targets * classes + predictions.argmax(axis=1)
        return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)

    def points(self) -> list[list[tuple[float, float]]]:
        """Return the true and the predicted value of up to `MAX_POINTS` records, for each number of a regression."""
        if not self.result.details.get("numbers") or self.arrays is None:
            return []
        targets, predictions = self.arrays
        places = np.linspace(0, len(targets) - 1, min(len(targets), MAX_POINTS)).astype(int)
        return [
            list(zip(targets[places, column].tolist(), predictions[places, column].tolist(), strict=True))
            for column in range(targets.shape[1])
        ]

    def worst(
        self,
        dataset: DatasetJob,
        manifest: Manifest,
        limit: int = evaluations.WORST,
        threshold: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the mistakes with the largest errors, each as in the gallery, with its prediction.

        Detections count from the score ``threshold`` on, in percent, by default from the best one.
        """
        try:
            errors = in_thread(self._mistakes, manifest, limit)
            places = [Place(self.result.split, number) for number in errors]
            items = gallery_items(dataset, manifest, RecordImages(dataset, manifest), places)
        except UnreadableFile:
            return []
        score = (chosen_threshold(self.result, {}) if threshold is None else threshold) / 100
        return in_thread(self._drawn, items, errors, views_of(dataset.data_kind), manifest, score)

    def _mistakes(self, manifest: Manifest, limit: int) -> dict[int, float]:
        """Return the largest errors of mistakes in descending order, by the numbers of their records."""
        errors = self._loaded[0]
        is_mistake = errors > 0
        if self.arrays:
            is_mistake &= manifest.target.mistakes(*self.arrays)
        order = np.argsort(-errors, kind="stable")
        return {int(place): float(errors[place]) for place in order[is_mistake[order]][:limit]}

    def _drawn(
        self,
        items: list[GalleryItem],
        errors: dict[int, float],
        views: Views[Any],
        manifest: Manifest,
        threshold: float,
    ) -> list[dict[str, Any]]:
        predicted, classes = evaluations.load_worst(self.job.folder, self.result.name), self.result.classes
        # Predictions have the names of the model.
        target = manifest.target.renamed(classes) if classes else manifest.target
        drawn = []
        for item in items:
            prediction = predicted.get(str(item.number))
            words = (
                target.describe_both(*(array[item.number] for array in self.arrays)) if self.arrays else ""
            )
            error = views.describe_error(errors[item.number])
            # Those of other classes cannot be matched with the objects of the dataset.
            is_compared = "detections" in self.result.details and not classes
            drawn.append(
                {
                    "item": item,
                    "words": words or " · ".join(filter(None, (error, item.label))),
                    "prediction": item.draw_prediction(prediction, manifest),
                    "compared": item.compare(prediction, manifest, threshold) if is_compared else None,
                }
            )
        return drawn
