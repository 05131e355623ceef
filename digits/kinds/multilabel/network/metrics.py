"""Metrics of multi-label classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.network import metrics
from digits.kinds.network.targets import find_columns


class Metrics(metrics.Metrics):
    """F1 over all labels of all images, and for whole splits also the macro averages of F1 and average precision.

    A label is predicted from a probability of 0.5 on. Macro averages are over the labels that at least one image
    of the split has.
    """

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = find_columns(output, self.target.outputs)
        if logits is None:
            return {}
        predicted = tf.cast(logits >= 0, tf.float32)
        return {
            "predicted": tf.reduce_sum(predicted, axis=1),
            "true": tf.reduce_sum(y, axis=1),
            "both": tf.reduce_sum(predicted * y, axis=1),
        }

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        if not means:
            return {}
        total = means["predicted"] + means["true"]
        return {"f1": 2 * means["both"] / total if total else 0.0}

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """The logits and the labels of each record, float32 [N, 2 · labels]."""
        logits = find_columns(output, self.target.outputs)
        return None if logits is None else tf.concat([logits, y], axis=1)

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        logits, y = np.split(values, 2, axis=1)
        true = y > 0.5
        present = np.flatnonzero(true.any(axis=0))
        precisions = [average_precision(logits[:, label], true[:, label]) for label in present]
        predicted = logits >= 0
        both, total = (predicted & true).sum(axis=0), predicted.sum(axis=0) + true.sum(axis=0)
        return {"map": _mean(precisions), "f1_macro": _mean(2 * both[present] / total[present])}


def average_precision(scores: NDArray[np.float32], true: NDArray[np.bool_]) -> float:
    """Return the average precision of ``scores`` [N] for the records that are ``true`` [N], at least one of them.

    This is the sum of the precisions at each threshold, weighted with the increase in recall, as
    `sklearn.metrics.average_precision_score` defines it. Records with equal scores are at the same threshold.
    """
    # Loading scikit-learn for it would cost each training 0.6 s and 90 MB, and each validation 1.5 to 10 times as long.
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(true[order])
    last = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)  # the last record of each threshold
    precision = hits[last] / (last + 1)
    return float(np.sum(precision * np.diff(hits[last], prepend=0)) / hits[-1])


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else 0.0
