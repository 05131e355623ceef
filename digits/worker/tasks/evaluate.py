"""Evaluate a trained model: predict the records of a split, and compare the predictions with their targets."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, ReportInterval
from digits.core.files import is_disk_full, sync_tree, write_json
from digits.data import evaluation as evaluations
from digits.kinds import kind_named
from digits.kinds.evaluation import Evaluation, Found
from digits.kinds.metrics import Metrics
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.training import trained
from digits.worker.training.batch_prediction import Batch, BatchPredictor

PROGRESS_SECONDS = 0.25
LOWEST_PRIORITY = 19
# Predictions and values that are kept for all records, in numbers.
MAX_KEPT = 250_000_000


def run(recipe: recipes.Evaluate, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Evaluate the model of ``recipe``, and write the result to the model's folder.

    Returns the metrics. Raises UserFault if the model cannot be loaded, or does not fit the records.
    """
    started = time.monotonic()
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    tf.config.set_visible_devices([], "GPU")  # only used in training
    events.append(Progressed(0.0, doing="Loading the model"))
    model_folder, dataset = Path(recipe.model), Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    split = manifest.splits.get(recipe.split)
    if split is None or not split.count:
        raise UserFault(f"The dataset has no records in the split “{recipe.split}”.", "Choose another split.")
    model = trained.load(model_folder, recipe.snapshot, Path(recipe.trained_on))
    predictor = BatchPredictor(model, manifest, measures=True)
    kind = kind_named(manifest.kind)
    metrics: Metrics = kind.load("metrics").Metrics(manifest.target)
    module = kind.load_optional("evaluation")
    evaluation: Evaluation = module.Evaluation(manifest.target) if module else Evaluation(manifest.target)
    collected = Collected(split.count, evaluation.keeps_predictions)
    records = feeds.Records(dataset, manifest, recipe.split, budget_bytes=0)
    interval, began = ReportInterval(PROGRESS_SECONDS), time.monotonic()
    try:
        for batch in predictor.predict(records):
            collected.add(batch)
            if interval.is_due():
                left = (split.count - collected.count) * (time.monotonic() - began) / collected.count
                done = f"Predicting: {collected.count:,} of {split.count:,}"
                events.append(Progressed(0.95 * collected.count / split.count, left, done))
    finally:
        records.close()
    predicting_seconds = time.monotonic() - began
    found = collected.found()
    scores = _scores(metrics, evaluation, found)
    result = evaluations.Evaluation(
        name=recipe.name,
        snapshot=recipe.snapshot,
        epoch=recipe.epoch,
        dataset_id=dataset.name,
        content_hash=manifest.content_hash,
        split=recipe.split,
        records=split.count,
        metrics=scores,
        details=evaluation.details(found),
        predicting_seconds=round(predicting_seconds, 3),
        seconds=round(time.monotonic() - started, 3),
    )
    arrays = {evaluations.ERRORS_FILE: evaluation.errors(found)}
    if evaluation.keeps_predictions:
        arrays |= {evaluations.PREDICTIONS_FILE: found.predicted, evaluations.TARGETS_FILE: found.targets}
    try:
        _publish(result, arrays, task_folder, model_folder)
    except OSError as error:
        if is_disk_full(error):
            raise UserFault("The disk is full: the result could not be saved.", "Free some space.") from error
        raise
    return {"metrics": scores}


class Collected:
    """Collects the predictions for ``records`` records; raises UserFault if they take too much memory."""

    def __init__(self, records: int, keeps_predictions: bool) -> None:
        self.count = 0
        self._records, self._keeps_predictions = records, keeps_predictions
        self._arrays: dict[str, NDArray[Any]] = {}

    def add(self, batch: Batch) -> None:
        parts: dict[str, NDArray[Any]] = {
            f"statistic {name}": each for name, each in batch.statistics.items()
        }
        parts["values"] = batch.values
        if self._keeps_predictions:
            parts |= {"predicted": batch.predicted, "targets": batch.targets}
        if not self._arrays:
            numbers = sum(int(np.prod(part.shape[1:])) for part in parts.values()) * self._records
            if numbers > MAX_KEPT:
                raise UserFault(
                    f"The predictions for {self._records:,} records are {numbers:,} numbers, more than {MAX_KEPT:,}.",
                    "Evaluate the model on a smaller dataset.",
                )
        for name, part in parts.items():
            whole = self._arrays.setdefault(name, np.empty((self._records, *part.shape[1:]), part.dtype))
            whole[batch.places] = part
        self.count += len(batch.places)

    def found(self) -> Found:
        arrays = self._arrays
        statistics = {
            name.removeprefix("statistic "): part
            for name, part in arrays.items()
            if name.startswith("statistic ")
        }
        kept = {name: arrays[name] for name in ("predicted", "targets") if name in arrays}
        return Found(self._records, statistics=statistics, values=arrays["values"], **kept)


def _scores(metrics: Metrics, evaluation: Evaluation, found: Found) -> dict[str, float]:
    """Return all metrics, those of validations as they compute them."""
    means: Mapping[str, float] = {
        name: float(values.mean(dtype=np.float64)) for name, values in found.statistics.items()
    }
    scores = metrics.summarize(means)
    if found.values.shape[1]:
        scores |= metrics.summarize_records(found.values)
    return {name: float(value) for name, value in (scores | evaluation.metrics(found)).items()}


def _publish(
    result: evaluations.Evaluation, arrays: Mapping[str, NDArray[Any]], task_folder: Path, model_folder: Path
) -> None:
    """Write the result to a new folder, and put it in the place of an earlier one."""
    new, target = task_folder / "result", evaluations.folder_of(model_folder, result.name)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for name, array in arrays.items():
        np.save(new / name, array, allow_pickle=False)
    write_json(new / evaluations.FILE_NAME, {"schema": 1, **msgspec.to_builtins(result)})
    sync_tree(new)
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        target.rename(task_folder / "replaced")
    new.rename(target)
    shutil.rmtree(task_folder / "replaced", ignore_errors=True)
