"""Predicting the records of a dataset with a trained model, batch by batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.data.manifest import Manifest
from digits.data.targets.target import DatasetFit, UnfitDataset
from digits.kinds import kind_named
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.input.adaptation import Adaptation
from digits.worker.training.models.batches import Batches, large_batch
from digits.worker.training.models.trained import Trained

HINT = "Choose a model that predicts the targets of this dataset."


class Batch(NamedTuple):
    """The predictions for a batch of records.

    ``places`` are the numbers of the records, int [N]. ``predicted`` are the predictions, [N, …], as defined by the
    kind's `Targets`, and ``targets`` the targets, [N, …]. ``statistics`` and ``values`` are those of the kind's
    `Metrics`: float32 [N] by name, and float32 [N, values].
    """

    places: NDArray[np.int64]
    predicted: NDArray[Any]
    targets: NDArray[Any]
    statistics: dict[str, NDArray[np.float32]]
    values: NDArray[np.float32]


class BatchPredictor:
    """Predicts records with ``trained``. With ``measures``, it also computes the statistics of the kind's metrics.

    ``manifest`` is that of the records, which are converted to the size and the classes of the model; ``fit`` describes
    how. Raises UserFault if they do not fit the model.
    """

    def __init__(self, trained: Trained, manifest: Manifest, *, measures: bool = False) -> None:
        self.fit = fit_of(trained, manifest)
        self._trained, self._manifest = trained, manifest
        self._adaptation = Adaptation(trained.manifest, manifest, self.fit)
        self._targets = trained.targets
        self._metrics = (
            kind_named(manifest.kind).load("network.metrics").Metrics(self.fit.target) if measures else None
        )
        self._checked_shape: tuple[int, ...] | None = None
        target = manifest.target
        signature = [
            tf.TensorSpec((None, *manifest.shape), manifest.dtype),
            tf.TensorSpec((None, *target.shape), target.decoded_dtype),
        ]
        function = tf.function(self._predict, autograph=False, input_signature=signature)
        self._batches = Batches(function, trained.batch_size)

    def predict(self, records: feeds.Records) -> Iterator[Batch]:
        """Yield the predictions of all records, in order; raises UserFault."""
        size = max(self._trained.batch_size, large_batch(self._manifest.shape, self._trained.manifest.shape))
        for places, arrays in in_batches(records, np.arange(len(records)), size, self._batches):
            yield self._batch(places, *arrays)

    @property
    def geometry(self) -> Geometry:
        """The mapping from the images of the records to the predictions for them, for `Targets.describe`."""
        own, other = self._trained.manifest, self._manifest
        return Geometry((other.width, other.height), own.width, own.height, "squash")

    def predict_at(self, records: feeds.Records, places: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the predictions for the records at ``places``; raises UserFault."""
        batches = in_batches(records, places, self._trained.batch_size, self._batches)
        return [each for part, arrays in batches for each in self._batch(part, *arrays).predicted]

    def _predict(self, pixels: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Any, Any]:
        pixels, y = self._adaptation.images(pixels), self._adaptation.targets(y)
        outputs = self._trained.outputs(pixels)
        _, targets = self._trained.prepare.for_validation(pixels, y)
        statistics, values = {}, None
        if self._metrics is not None:
            statistics = self._metrics.statistics(outputs, targets)
            values = self._metrics.record_values(outputs, targets)
        if values is None:
            values = tf.zeros([tf.shape(pixels)[0], 0])
        return self._targets.predict(outputs), targets, statistics, values

    def _batch(self, places: NDArray[np.int64], predicted: NDArray[Any], *more: Any) -> Batch:
        self._check(predicted)
        return Batch(places, predicted, *more)

    def _check(self, predicted: NDArray[Any]) -> None:
        """Raise UserFault unless the predictions are for the targets, and numbers."""
        if self._checked_shape != predicted.shape[1:]:
            self._trained.check_predictions(predicted.shape[1:], HINT)
            self._checked_shape = predicted.shape[1:]
        if not np.all(np.isfinite(predicted)):
            raise UserFault("The model predicts NaN or infinity.", "Choose another snapshot or model.")


def in_batches(
    records: feeds.Records,
    places: NDArray[np.int64],
    size: int,
    compute: Callable[[tf.Tensor, tf.Tensor], Any],
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield the numbers of up to ``size`` of the records at ``places``, and what ``compute`` returns for them.

    ``compute`` maps pixels and targets, [N, …] each.
    """
    parts = [places[start : start + size] for start in range(0, len(places), size)]
    with contextlib.closing(records.stream(iter(parts))) as feed:
        for part in parts:
            pixels, y, _ = feed.take(1)
            yield part, compute(pixels, y)


def fit_of(trained: Trained, manifest: Manifest) -> DatasetFit:
    """Return how the records of ``manifest`` map to those that the model was trained on; raises UserFault."""
    if trained.traced.latent:
        raise UserFault("This model generates images from random vectors, so there is nothing to predict.")
    try:
        return trained.manifest.fit(manifest, takes_image=trained.targets.takes_image)
    except UnfitDataset as error:
        raise UserFault(f"The dataset does not fit the model: {error}.", HINT) from error


def check_fit(trained: Trained, manifest: Manifest) -> None:
    """Raise UserFault unless the records of ``manifest`` have the size and the targets that the model expects."""
    fit, own = fit_of(trained, manifest), trained.manifest
    if own.shape != manifest.shape:
        shapes = ("×".join(map(str, shape)) for shape in (manifest.shape, own.shape))
        raise UserFault(
            "The images of the dataset have the shape {}, and the model expects {}.".format(*shapes),
            "Create a version of the dataset with the size of the model's images.",
        )
    if fit.maps_names:
        raise UserFault(
            "The classes or targets of the dataset differ from those of the training dataset.",
            "Use a dataset with the same classes in the same order.",
        )
