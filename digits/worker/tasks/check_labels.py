"""Find wrong labels with a trained model: predict all records and compare predictions with their classes."""

from __future__ import annotations

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
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor


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
    for name, split in records.items():
        probabilities = np.empty((len(split), len(manifest.target.names)), np.float32)
        given = np.empty(len(split), np.int64)
        for batch in predictor.predict(split):
            predicted = model.targets.class_probabilities(batch.predicted)
            if predicted is None:
                raise UserFault("This model does not predict class probabilities.", "Choose another model.")
            probabilities[batch.places], given[batch.places] = predicted, batch.targets
            progress.advance(len(batch.places))
        split.close()
        parts.append(label_errors.find(probabilities, given, SPLITS.index(name)))
        accuracy[name] = float(np.mean(probabilities.argmax(1) == given))
    errors = label_errors.sort(np.concatenate(parts))
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
    with background.reporting_full_disk("the result"):
        label_check.save(dataset, check, errors)
    return {"images": total, "label_errors": len(errors)}
