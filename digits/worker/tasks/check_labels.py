"""Find wrong labels with a trained model: predict all records and compare predictions with their classes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed, ReportInterval
from digits.core.files import is_disk_full
from digits.data import label_check, label_errors
from digits.data.health import SplitName
from digits.data.label_check import SPLIT_NAMES, LabelCheck
from digits.kinds.targets import UnsuitableOutput
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.training import trained

PROGRESS_SECONDS = 0.25
LOWEST_PRIORITY = 19


def run(recipe: recipes.CheckLabels, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Search for wrong labels, and write the result to the dataset's folder.

    Raises UserFault if the model cannot be loaded, or does not predict the classes of the dataset.
    """
    started = time.monotonic()
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    tf.config.set_visible_devices([], "GPU")  # only used in training
    events.append(Progressed(0.0, doing="Loading the model"))
    dataset = Path(recipe.dataset)
    model = _Model(Path(recipe.model), recipe.snapshot, dataset)
    manifest = model.manifest
    records = {
        name: feeds.Records(dataset, manifest, name, budget_bytes=0)
        for name in SPLIT_NAMES
        if name in manifest.splits and manifest.splits[name].count
    }
    total = sum(map(len, records.values()))
    interval, done, began = ReportInterval(PROGRESS_SECONDS), 0, time.monotonic()
    found: list[NDArray[Any]] = []
    accuracy: dict[SplitName, float] = {}
    for name, split in records.items():
        probabilities = np.empty((len(split), len(manifest.target.names)), np.float32)
        given = np.empty(len(split), np.int64)
        for places, predicted, labels in model.predict(split):
            probabilities[places], given[places] = predicted, labels
            done += len(places)
            if interval.is_due():
                left = (total - done) * (time.monotonic() - began) / done
                events.append(Progressed(done / total, left, f"Checking labels: {done:,} of {total:,}"))
        split.close()
        found.append(label_errors.find(probabilities, given, SPLIT_NAMES.index(name)))
        accuracy[name] = float(np.mean(probabilities.argmax(1) == given))
    errors = label_errors.sort(np.concatenate(found))
    check = LabelCheck(
        content_hash=manifest.content_hash,
        model_id=recipe.model_id,
        model_name=recipe.model_name,
        snapshot=recipe.snapshot,
        images=total,
        accuracy=accuracy,
        seconds=round(time.monotonic() - started, 3),
        finding=label_check.describe(errors, total, recipe.model_name),
    )
    try:
        label_check.save(dataset, check, errors)
    except OSError as error:
        if is_disk_full(error):
            raise UserFault("The disk is full: the result could not be saved.", "Free some space.") from error
        raise
    return {"images": total, "label_errors": len(errors)}


class _Model:
    """A trained model that predicts the classes of a dataset."""

    def __init__(self, folder: Path, snapshot: str, dataset: Path) -> None:
        self._trained = trained.load(folder, snapshot, dataset)
        self.manifest = self._trained.manifest
        self._targets = self._trained.targets

        def predict(pixels: tf.Tensor) -> tf.Tensor:
            return self._targets.predict(self._trained.outputs(pixels))

        signature = [tf.TensorSpec((None, *self.manifest.shape), tf.uint8)]
        self._function = tf.function(predict, autograph=False, input_signature=signature)
        self._is_checked = False

    def predict(self, records: feeds.Records) -> Any:
        """Yield the numbers, the probabilities and the classes of the records, batch by batch."""
        size = self._trained.batch_size
        # Some networks require the training batch size, so the last batch is filled up from the start.
        starts = range(0, len(records), size)
        order = (np.arange(start, start + size) % len(records) for start in starts)
        feed = records.stream(order)
        try:
            for start in starts:
                pixels, labels, _ = feed.take(1)
                predicted = self._probabilities(self._function(pixels).numpy())
                count = min(size, len(records) - start)
                yield np.arange(start, start + count), predicted[:count], labels.numpy()[:count]
        finally:
            feed.close()

    def _probabilities(self, predicted: NDArray[Any]) -> NDArray[Any]:
        try:
            if not self._targets.accepts(predicted.shape[1:]):
                raise self._targets.refuse(predicted.shape[1:])
            if not self._is_checked:
                columns = predicted.shape[1]
                self._targets.check(columns, self._trained.label_flow(columns))
                self._is_checked = True
        except UnsuitableOutput as error:
            raise UserFault(
                error.message, "Choose a model that predicts the classes of this dataset."
            ) from error
        probabilities = self._targets.class_probabilities(predicted)
        if probabilities is None:
            raise UserFault("This model does not predict class probabilities.", "Choose another model.")
        if not np.all(np.isfinite(probabilities)):
            raise UserFault("The model predicts NaN or infinity.", "Choose another snapshot or model.")
        return probabilities
