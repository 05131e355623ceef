"""Estimate what fine-tuning will reach: a linear classifier on pretrained features of a few training images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.data.models.pretrained_catalog import CATALOG, Pretrained
from digits.kinds.network.intervals import wilson
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.network import applications
from digits.worker.network.variables import plain, plain_name
from digits.worker.tasks import background
from digits.worker.training.weights import restore

# Larger images are reduced: accurate enough, and several times faster.
LONGEST_SIDE = 128
BATCH = 20
# Strengths of the regularization, relative to the variance of the features.
RIDGES = (0.01, 0.1, 1.0, 10.0)


def run(recipe: recipes.ProbeAccuracy, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Return the ``accuracy``, its 95% interval from ``low`` to ``high``, and the number of ``images``.

    Raises UserFault if the dataset or the weights cannot be read, or if the images do not have one class each.
    """
    background.begin(events, "Loading the weights")
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    if not manifest.target.labels:
        raise UserFault("Only the accuracy of image classification can be estimated.")
    numbers, pixels, labels = feeds.read_some(dataset, manifest, recipe.records)
    features = _features(CATALOG[recipe.network], Path(recipe.weights), pixels)
    accuracy = leave_one_out(features, labels.numpy())
    interval = wilson(accuracy, len(numbers))
    return {"accuracy": accuracy, "low": interval.low, "high": interval.high, "images": len(numbers)}


def _features(entry: Pretrained, weights: Path, pixels: tf.Tensor) -> NDArray[np.float32]:
    """Return the features of images [N, H, W, 1 or 3], float32 [N, C]."""
    height, width, channels = pixels.shape[1:]
    scale = min(1.0, LONGEST_SIDE / max(height, width))
    shape = (max(32, round(height * scale)), max(32, round(width * scale)), 3)
    net = applications.build(entry, shape, include_top=False, pooling="avg")
    restore.assign(
        restore.open_application(weights, entry),
        {plain_name(plain(variable)): plain(variable) for variable in net.variables},
    )

    @tf.function
    def compute(batch: tf.Tensor) -> tf.Tensor:
        color = tf.repeat(batch, 3, axis=3) if channels == 1 else batch
        resized = tf.image.resize(tf.cast(color, tf.float32), shape[:2], antialias=True)
        return net(applications.preprocess(entry, resized), training=False)

    return np.concatenate(
        [compute(pixels[start : start + BATCH]).numpy() for start in range(0, len(pixels), BATCH)]
    )


def leave_one_out(features: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Return the share of records whose class is predicted by a ridge classifier of the features of all others.

    The best of a few strengths of the regularization counts. ``features`` are [N, C], ``labels`` int [N].
    """
    count = len(labels)
    spread = features.std(0)
    x = (features - features.mean(0)) / np.where(spread > 0, spread, 1.0)
    kernel = x @ x.T / max(1, x.shape[1]) + 1.0  # the constant is the bias
    targets = np.where(labels[:, None] == np.unique(labels), 1.0, -1.0)
    guesses = []
    for ridge in RIDGES:
        inverse = np.linalg.inv(kernel.astype(np.float64) + ridge * np.eye(count))
        # The residual of each record in a fit to all others, without computing these fits.
        predicted = targets - inverse @ targets / np.diag(inverse)[:, None]
        guesses.append(np.mean(predicted.argmax(1) == targets.argmax(1)))
    return float(max(guesses))
