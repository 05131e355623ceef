"""Metrics of semantic segmentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.network import metrics
from digits.kinds.network.targets import select_output

# With more classes, their pairs take too much memory for all records.
MAX_CLASSES_OF_PAIRS = 20


class Metrics(metrics.Metrics):
    """The intersection over union (IoU) of each class, their mean, and the pixel accuracy.

    Intersections and unions are summed over all pixels of all images that have a class. The mean is over the classes
    that occur in the masks or in the predictions. The IoU of single classes is for whole splits.
    """

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        predicted = self._predict(output, y)
        if predicted is None:
            return {}
        counts = self._count(predicted, y)
        return {str(index): each for index, each in enumerate(tf.unstack(counts, axis=1))}

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        return (
            self._summarize(np.array([means[str(index)] for index in range(len(means))]))[0] if means else {}
        )

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """The pixels of each class in the intersection, in the union and in the mask, float32 [N, 3 · classes].

        With few classes, the pixels of each class that are predicted as each class, float32 [N, classes · classes].
        """
        predicted = self._predict(output, y)
        if predicted is None:
            return None
        count = self.target.outputs
        true = tf.cast(y, tf.int32)
        if not self.counts_pairs:
            return tf.concat([self._count(predicted, y), _histogram(true, count)], axis=1)
        pairs = tf.where((true >= 0) & (true < count), true * count + predicted, count**2)
        return _histogram(pairs, count**2)

    @property
    def counts_pairs(self) -> bool:
        """Whether the values of a record are the pixels of each pair of a true and a predicted class."""
        return self.target.outputs <= MAX_CLASSES_OF_PAIRS

    def split(self, values: NDArray[np.float32]) -> tuple[NDArray[np.float64], ...]:
        """Return the pixels of each class in the intersection, in the union and in the mask, float64 [N, classes]."""
        count, exact = self.target.outputs, values.astype(np.float64)
        if not self.counts_pairs:
            both, either, true = np.split(exact, 3, axis=1)
            return both, either, true
        pairs = exact.reshape(-1, count, count)
        both, true = np.diagonal(pairs, axis1=1, axis2=2), pairs.sum(axis=2)
        return both, true + pairs.sum(axis=1) - both, true

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        both, either, _ = self.split(values)
        return self._summarize(np.concatenate([both.sum(axis=0), either.sum(axis=0)]))[1]

    def _summarize(self, counts: NDArray[np.floating[Any]]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the metrics over all classes, and those of single classes."""
        both, either = np.split(counts, 2)
        present = either > 0
        each = np.divide(both, either, out=np.zeros(len(both)), where=present)
        # A wrong pixel is in two unions: that of its class, and that of the predicted one.
        total = (either.sum() + both.sum()) / 2
        return (
            {
                "miou": float(each[present].mean()) if present.any() else 0.0,
                "pixel_accuracy": float(both.sum() / total) if total else 0.0,
            },
            {f"iou/{name}": float(value) for name, value in zip(self.target.names, each, strict=True)},
        )

    def _predict(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """Return the predicted classes, int32 [N, H, W]; None for a network with another purpose."""
        count = self.target.outputs
        scores = select_output(output, count, rank=4)
        if scores.shape.rank != 4 or (scores.shape[3] or 0) < count or scores.shape[1:3] != y.shape[1:3]:
            return None
        return tf.argmax(scores[..., :count], axis=3, output_type=tf.int32)

    def _count(self, predicted: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Return intersections and unions, float32 [N, 2 · classes]."""
        count = self.target.outputs
        counted = (y >= 0) & (y < count)
        true = tf.where(counted, tf.cast(y, tf.int32), count)
        predicted = tf.where(counted, predicted, count)
        both = _histogram(tf.where(true == predicted, true, count), count)
        return tf.concat([both, _histogram(true, count) + _histogram(predicted, count) - both], axis=1)


def _histogram(classes: tf.Tensor, count: int) -> tf.Tensor:
    """Return the number of pixels of each class, float32 [N, count], in masks, int32 [N, H, W]."""
    flat = tf.reshape(classes, [tf.shape(classes)[0], -1])
    counts = tf.math.bincount(flat, minlength=count, maxlength=count, axis=-1)
    return tf.cast(tf.ensure_shape(counts, [None, count]), tf.float32)
