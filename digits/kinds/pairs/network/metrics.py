"""Metrics of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.network import metrics
from digits.kinds.network.targets import find_columns


class Metrics(metrics.Metrics):
    """For whole splits: the area under the ROC curve, and the accuracy at the best threshold of the distance.

    Both are of the distances that the network returns, which are small for pairs that match.
    """

    scores_classes = False

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """The distance and the label of each pair, float32 [N, 2]; None for a network with another purpose."""
        distances = find_columns(output, 1)
        if distances is None:
            return None
        return tf.concat([distances, tf.cast(y, tf.float32)[:, None]], axis=1)

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        if not len(values):
            return {}
        distances, matches = values[:, 0], values[:, 1] > 0.5
        threshold, accuracy = best_threshold(distances, matches)
        return {
            "auc": area_under_curve(distances, matches),
            "best_accuracy": accuracy,
            "threshold": threshold,
        }


def area_under_curve(distances: NDArray[np.float32], matches: NDArray[np.bool_]) -> float:
    """Return the probability that a matching pair has a smaller distance than a different pair; ties count half.

    This is the area under the ROC curve, by the ranks of the distances (Mann and Whitney). 0.5 without pairs of
    both types.
    """
    # As for `digits.kinds.multilabel.network.metrics.average_precision`, scikit-learn would be slower.
    positive, negative = int(matches.sum()), int((~matches).sum())
    if not positive or not negative:
        return 0.5
    _, places, counts = np.unique(-distances, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[matches].sum() - positive * (positive + 1) / 2) / (positive * negative))


def best_threshold(distances: NDArray[np.float32], matches: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the threshold below which pairs count as matching with the best accuracy, and this accuracy.

    It is halfway between two distances.
    """
    order = np.argsort(distances, kind="stable")
    ordered, hits = distances[order].astype(np.float64), matches[order]
    # With n pairs below the threshold: the matching ones among them, and the others above it, are right.
    right = np.concatenate([[0], np.cumsum(hits)]) + np.concatenate([np.cumsum((~hits)[::-1])[::-1], [0]])
    edges = np.concatenate([[ordered[0]], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1]])
    is_possible = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    best = int(np.argmax(np.where(is_possible, right, -1)))
    return float(edges[best]), float(right[best] / len(distances))
