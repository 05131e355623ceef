"""Metrics, computed for every network in training and validation. Runs in the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from digits.kinds.network import metrics
from digits.kinds.network.targets import select_output


class Metrics(metrics.Metrics):
    """Precision, recall and F1 over all tags of all images (micro-averaged). A tag is predicted from 50% on."""

    def statistics(self, output: Any, y: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the numbers of tags of each image that are predicted, true, or both."""
        logits = select_output(output, self.target.outputs)
        if logits.shape.rank != 2 or logits.shape[1] != self.target.outputs:
            return {}  # the network has another purpose, such as an autoencoder
        predicted = tf.cast(logits > 0, tf.float32)
        return {
            "predicted": tf.reduce_sum(predicted, axis=1),
            "true": tf.reduce_sum(y, axis=1),
            "both": tf.reduce_sum(predicted * y, axis=1),
        }

    def summarize(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics, computed from the means of the statistics over a split."""
        if not means:
            return {}
        predicted, true, both = means["predicted"], means["true"], means["both"]
        return {
            "f1": 2 * both / (predicted + true) if predicted + true else 0.0,
            "precision": both / predicted if predicted else 0.0,
            "recall": both / true if true else 0.0,
        }
