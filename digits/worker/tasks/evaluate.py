"""Evaluate a trained model: predict the records of a split, and compare the predictions with their targets."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed
from digits.core.files import MAX_JSON_BYTES, UnreadableFile
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.targets.target import DatasetFit
from digits.kinds import kind_named
from digits.kinds.network import intervals
from digits.kinds.network.evaluation import Evaluation, SplitResults
from digits.kinds.network.metrics import Metrics
from digits.worker import stopping
from digits.worker.failure import Stopped, UserFault
from digits.worker.input import feeds
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import Batch, BatchPredictor

# Partial results are saved this often, and take up to this share of the time.
PARTIAL_SECONDS = 10.0
PARTIAL_SHARE = 0.05
# Enough for networks that require at least two.
WARM_UP_RECORDS = 2
# The share of the task's time for the predictions.
PREDICTING_SHARE = 0.95
# Predictions and values that are kept for all records, in numbers.
MAX_KEPT = 250_000_000


def run(recipe: recipes.Evaluate, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Evaluate the model of ``recipe``, and write the result to the model's folder.

    Partial results are published from time to time, and when the evaluation fails or is stopped. Returns the metrics.
    Raises UserFault if the model cannot be loaded, or does not fit the records.
    """
    started = time.monotonic()
    background.begin(events)
    model_folder, dataset = Path(recipe.model), Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    split = manifest.splits.get(recipe.split)
    if split is None or not split.count:
        raise UserFault(f"The dataset has no records in the split “{recipe.split}”.", "Choose another split.")
    model = trained.load(model_folder, recipe.snapshot, Path(recipe.trained_on))
    predictor = BatchPredictor(model, manifest, measures=True)
    writer = Writer(recipe, manifest, predictor.fit, task_folder, started)
    collected = Collected(split.count, writer.evaluation.keeps_predictions)
    records = feeds.Records(dataset, manifest, recipe.split, budget_bytes=0)
    timing = Timing()
    with contextlib.closing(records), background.reporting_full_disk("the result"):
        try:
            _predict_all(predictor, records, collected, timing, writer, events)
            events.append(Progressed(PREDICTING_SHARE, doing="Computing the metrics"))
            predictions = collected.found()
            worst = _predict_worst(model, predictor, records, writer.errors(predictions))
            scores = writer.write(predictions, timing, worst)
        except Exception:
            with contextlib.suppress(OSError):
                writer.write_partial(collected, timing)
            raise
    return {"metrics": scores}


def _predict_all(
    predictor: BatchPredictor,
    records: feeds.Records,
    collected: Collected,
    timing: Timing,
    writer: Writer,
    events: EventLog,
) -> None:
    """Predict the ``records``, and publish partial results from time to time. Raises Stopped."""
    # Trace the network before the first measured batch.
    predictor.predict_at(records, np.arange(min(WARM_UP_RECORDS, len(records))))
    progress = background.ItemProgress(events, "Predicting", len(records), PREDICTING_SHARE)
    began = time.monotonic()
    partial_due = began + PARTIAL_SECONDS
    with stopping.defer() as is_stopping:
        for batch in predictor.predict(records):
            now = time.monotonic()
            timing.add(now - began, len(batch.places))
            stopping.reserve("a batch", now - began)
            collected.add(batch)
            if is_stopping():
                writer.write_partial(collected, timing)
                raise Stopped
            progress.advance(len(batch.places))
            if now >= partial_due:
                writer.write_partial(collected, timing)
                ended = time.monotonic()
                stopping.reserve("saving the partial result", ended - now)
                partial_due = ended + max(PARTIAL_SECONDS, (ended - now) / PARTIAL_SHARE)
            began = time.monotonic()


def _predict_worst(
    model: trained.Trained, predictor: BatchPredictor, records: feeds.Records, errors: NDArray[np.float32]
) -> dict[str, Any]:
    """Return the predictions for the records with the largest errors, by number; only for pictures and boxes."""
    if not model.manifest.target.in_image:
        return {}
    order = np.argsort(-errors, kind="stable")[: evaluations.WORST]
    chosen = order[np.isfinite(errors[order])]
    predicted = predictor.predict_at(records, chosen)
    return {
        str(number): model.targets.describe(each, 1, predictor.geometry)
        for number, each in zip(chosen.tolist(), predicted, strict=True)
    }


class Timing:
    """The total ``seconds`` of the predictions, and the ``seconds_per_record`` of the fastest batch."""

    def __init__(self) -> None:
        self.seconds, self.seconds_per_record = 0.0, math.inf

    def add(self, seconds: float, records: int) -> None:
        """Add a batch of ``records`` records."""
        self.seconds += seconds
        self.seconds_per_record = min(self.seconds_per_record, seconds / records)


class Writer:
    """Computes and publishes the result of an evaluation, or that of the records so far.

    The ``evaluation`` is that of the kind of the dataset, whose records are mapped by ``fit``. ``started`` is the time
    at which the task started.
    """

    def __init__(
        self, recipe: recipes.Evaluate, manifest: Manifest, fit: DatasetFit, task_folder: Path, started: float
    ) -> None:
        self._recipe, self._manifest, self._fit = recipe, manifest, fit
        self._task_folder, self._started = task_folder, started
        self._kind = kind = kind_named(manifest.kind)
        self._metrics: Metrics = kind.load("network.metrics").Metrics(fit.target)
        self.evaluation: Evaluation = kind.load("network.evaluation").Evaluation(fit.target)
        if fit.has_unknown_records and not self.evaluation.keeps_predictions:
            raise UserFault(
                f"The dataset has classes that the model lacks: {', '.join(fit.lacking[:8])}.",
                "Choose a dataset that contains only classes of the model.",
            )

    def errors(self, predictions: SplitResults) -> NDArray[np.float32]:
        """Return the errors of all records, float32 [records]; NaN for those of classes that the model lacks."""
        counted = self._counted(predictions)
        if counted is None:
            return self.evaluation.errors(predictions)
        errors = np.full(predictions.records, np.nan, np.float32)
        errors[counted] = self.evaluation.errors(predictions.select(counted))
        return errors

    def _counted(self, predictions: SplitResults) -> NDArray[np.bool_] | None:
        """Return which records are of a class that the model has, bool [records]; None if all are."""
        if not self._fit.has_unknown_records:
            return None
        counted: NDArray[np.bool_] = predictions.targets >= 0
        return counted

    def _select_counted(self, predictions: SplitResults) -> SplitResults:
        chosen = self._counted(predictions)
        return predictions if chosen is None else predictions.select(chosen)

    def write(self, predictions: SplitResults, timing: Timing, worst: dict[str, Any]) -> dict[str, float]:
        """Publish the result for all records, and return its metrics."""
        result, arrays = self._compute(predictions, timing)
        result = msgspec.structs.replace(result, intervals=self._intervals(predictions, result.metrics))
        self._publish(result, arrays, worst)
        return result.metrics

    def _intervals(
        self, predictions: SplitResults, metrics: Mapping[str, float]
    ) -> dict[str, evaluations.Interval]:
        """Return the confidence intervals of shares, and of all metrics unless the kind's is a share."""
        counted = self._select_counted(predictions)
        intervals_of: dict[str, evaluations.Interval] = {}
        if self._kind.metric not in self.evaluation.shares:
            has_values = counted.values.shape[1] > 0
            resampler = self._metrics.resampler(counted.values) if has_values else lambda places: {}
            intervals_of = intervals.bootstrap(
                counted.records,
                lambda places: _scores(
                    self._metrics, self.evaluation, counted.select(places), lambda: resampler(places)
                ),
            )
        shares = {name: value for name, value in metrics.items() if name in self.evaluation.shares}
        return {
            **{name: each for name, each in intervals_of.items() if "/" not in name},
            **{name: intervals.wilson(value, counted.records) for name, value in shares.items()},
        }

    def write_partial(self, collected: Collected, timing: Timing) -> None:
        """Publish the result for the first records, unless there are none or there is a complete result."""
        if not collected.count or self._has_complete_result():
            return
        predictions = collected.found()
        counted = self._counted(predictions)
        if counted is None or counted.any():
            self._publish(*self._compute(predictions, timing), {})

    def _has_complete_result(self) -> bool:
        try:
            result = evaluations.load(Path(self._recipe.model), self._recipe.name)
        except UnreadableFile:
            return False
        return result.content_hash == self._manifest.content_hash and not result.is_partial

    def _compute(
        self, predictions: SplitResults, timing: Timing
    ) -> tuple[evaluations.Evaluation, dict[str, NDArray[Any]]]:
        """Return the result for the ``predictions``, and the arrays of its folder.

        Raises UserFault if the model lacks the classes of all records.
        """
        counted = self._select_counted(predictions)
        if not counted.records:
            raise UserFault("The model has none of the classes of these records.", "Choose another dataset.")
        result = evaluations.Evaluation(
            name=self._recipe.name,
            snapshot=self._recipe.snapshot,
            epoch=self._recipe.epoch,
            dataset_id=Path(self._recipe.dataset).name,
            content_hash=self._manifest.content_hash,
            split=self._recipe.split,
            records=predictions.records,
            total=self._manifest.splits[self._recipe.split].count,
            metrics=_scores(
                self._metrics,
                self.evaluation,
                counted,
                lambda: self._metrics.summarize_records(counted.values),
            ),
            details=self.evaluation.details(counted),
            classes=self._fit.target.names if self._fit.maps_names else [],
            lacking=self._fit.lacking,
            excluded=predictions.records - counted.records,
            predicting_seconds=round(timing.seconds, 3),
            seconds_per_record=float(f"{timing.seconds_per_record:.3g}"),
            seconds=round(time.monotonic() - self._started, 3),
        )
        arrays: dict[str, NDArray[Any]] = {evaluations.ERRORS_FILE: self.errors(predictions)}
        if self.evaluation.keeps_predictions:
            arrays |= {
                evaluations.PREDICTIONS_FILE: predictions.predicted,
                evaluations.TARGETS_FILE: predictions.targets,
            }
        return result, arrays

    def _publish(
        self, result: evaluations.Evaluation, arrays: Mapping[str, NDArray[Any]], worst: dict[str, Any]
    ) -> None:
        """Publish the result in the place of an earlier one."""
        target = evaluations.folder_of(Path(self._recipe.model), result.name)
        if len(msgspec.json.encode(worst)) > MAX_JSON_BYTES:  # which no reader would accept
            worst = {}
        documents = {evaluations.WORST_FILE: worst} if worst else {}
        documents[evaluations.FILE_NAME] = {"schema": 1, **msgspec.to_builtins(result)}
        background.publish(self._task_folder, target, arrays, documents)


class Collected:
    """Collects the predictions for ``records`` records; raises UserFault if they take too much memory."""

    def __init__(self, records: int, keeps_predictions: bool) -> None:
        self.count = 0
        self._records, self._keeps_predictions = records, keeps_predictions
        self._whole: dict[str, Any] = {}

    def add(self, batch: Batch) -> None:
        parts: dict[str, Any] = {"statistics": batch.statistics, "values": batch.values}
        if self._keeps_predictions:
            parts |= {"predicted": batch.predicted, "targets": batch.targets}
        if not self._whole:
            numbers = sum(int(np.prod(part.shape[1:])) for part in tf.nest.flatten(parts)) * self._records
            if numbers > MAX_KEPT:
                raise UserFault(
                    f"The predictions for {self._records:,} records have {numbers:,} values; "
                    f"the maximum is {MAX_KEPT:,}.",
                    "Evaluate the model on a smaller dataset.",
                )
            self._whole = tf.nest.map_structure(
                lambda part: np.empty((self._records, *part.shape[1:]), part.dtype), parts
            )
        for whole, part in zip(tf.nest.flatten(self._whole), tf.nest.flatten(parts), strict=True):
            whole[batch.places] = part
        self.count += len(batch.places)

    def found(self) -> SplitResults:
        """Return the predictions so far, which are those for the first records."""
        return SplitResults(
            self.count, **tf.nest.map_structure(lambda whole: whole[: self.count], self._whole)
        )


def _scores(
    metrics: Metrics,
    evaluation: Evaluation,
    predictions: SplitResults,
    summarize_records: Callable[[], Mapping[str, float]],
) -> dict[str, float]:
    """Return all metrics, those of validations as they compute them."""
    means: Mapping[str, float] = {
        name: float(values.mean(dtype=np.float64)) for name, values in predictions.statistics.items()
    }
    scores = metrics.summarize(means)
    if predictions.values.shape[1]:
        scores |= summarize_records()
    return {name: float(value) for name, value in (scores | evaluation.metrics(predictions)).items()}
