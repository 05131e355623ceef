"""Find wrong labels with a trained model: predict all records and compare predictions with their classes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.core.splits import SPLITS, Split
from digits.data.health import label_check, label_errors
from digits.data.health.label_check import LabelCheck
from digits.data.manifest import Manifest
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor, in_batches
from digits.worker.training.models.image_features import ImageFeatures

# Features of more training records take minutes.
MOST_COMPARED = 20_000
# Predictions that agree with fewer labels would list too many correct ones.
LEAST_ACCURACY = 0.7
BATCH = 64

log = logging.getLogger(__name__)


def run(recipe: recipes.CheckLabels, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Search for wrong labels, and write the result to the dataset's folder.

    Raises UserFault if the model cannot be loaded, or does not predict the classes of the dataset.
    """
    started = time.monotonic()
    background.begin(events)
    dataset = Path(recipe.dataset)
    model = trained.load(Path(recipe.model), recipe.snapshot, dataset)
    manifest = model.manifest
    predictor = BatchPredictor(model, manifest)
    records = {
        name: feeds.Records(dataset, manifest, name, budget_bytes=0)
        for name in SPLITS
        if name in manifest.splits and manifest.splits[name].count
    }
    total = sum(map(len, records.values()))
    progress = background.ItemProgress(events, "Checking labels", total)
    parts: list[NDArray[Any]] = []
    accuracy: dict[Split, float] = {}
    is_unseen = False
    for name, split in records.items():
        probabilities: NDArray[Any] = np.empty((len(split), len(manifest.target.names)), np.float32)
        given = np.empty(len(split), np.int64)
        for batch in predictor.predict(split):
            predicted = model.targets.class_probabilities(batch.predicted)
            if predicted is None:
                raise UserFault("This model does not predict class probabilities.", "Choose another model.")
            probabilities[batch.places], given[batch.places] = predicted, batch.targets
            progress.advance(len(batch.places))
        accuracy[name] = float(np.mean(probabilities.argmax(1) == given))
        if name == "train" and (unseen := _unseen(recipe, manifest, split, given, events)) is not None:
            probabilities, is_unseen = unseen, True
        split.close()
        parts.append(label_errors.find(probabilities, given, SPLITS.index(name)))
    errors = label_errors.sort(np.concatenate(parts))
    check = LabelCheck(
        content_hash=manifest.content_hash,
        model_id=recipe.model_id,
        model_name=recipe.model_name,
        snapshot=recipe.snapshot,
        images=total,
        accuracy=accuracy,
        seconds=round(time.monotonic() - started, 3),
        finding=label_check.describe(errors, total, recipe.model_name, is_unseen),
    )
    with background.reporting_full_disk("the result"):
        label_check.save(dataset, check, errors)
    return {"images": total, "label_errors": len(errors)}


def _unseen(
    recipe: recipes.CheckLabels,
    manifest: Manifest,
    records: feeds.Records,
    given: NDArray[np.int64],
    events: EventLog,
) -> NDArray[np.float64] | None:
    """Return the probabilities of the classes for each training record by what the features of the others show.

    The model has learned their labels. None if there are no features, or if they show too little.
    """
    weights, classes = Path(recipe.weights), len(manifest.target.names)
    is_image = manifest.dtype == "uint8" and manifest.shape[2] in (1, 3)
    if not weights.is_file() or not is_image or not 1 < len(records) <= MOST_COMPARED:
        return None
    try:
        features = ImageFeatures(weights)
    except UserFault as fault:
        log.warning("The training split is checked with the model alone: %s", fault.message)
        return None
    progress, found = background.ItemProgress(events, "Comparing images", len(records)), []
    for part, values in in_batches(records, np.arange(len(records)), BATCH, lambda x, _: features(x)):
        found.append(values)
        progress.advance(len(part))
    probabilities = label_errors.unseen_probabilities(np.concatenate(found), given, classes)
    accuracy = float(np.mean(probabilities.argmax(1) == given))
    log.info("Features of EfficientNet-Lite0 predict %.1f%% of the other training labels.", 100 * accuracy)
    return probabilities if accuracy >= LEAST_ACCURACY else None
