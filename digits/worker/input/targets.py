"""The targets of a training batch and their weights in the loss.

Networks always receive integer class labels. If images are blended (MixUp, CutMix) or classes are weighted,
`digits.classification_loss` averages over both labels with the class weights.

The targets of a batch are a dict of tensors [N, …]: ``y``, the network's targets, and optionally ``others``, the
labels of the blended images; ``share``, the weight of the first label, 0 to 1; ``weights`` and ``other_weights``,
the class weights of both labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker import build_context
from digits.worker.failure import UserFault

Targets = dict[str, tf.Tensor]

_HINT = "Compute the loss of the network as digits.classification_loss(self.inference, self.y)."


def class_weights(labels: NDArray[np.integer[Any]], classes: int) -> NDArray[np.float32]:
    """Return n / (k · n_c) for each class c, of n records in k classes, float32 [classes]; 0 for empty classes.

    Over an epoch, each class has the same total weight and the mean weight of the records is 1. The formula is that
    of scikit-learn's ``class_weight="balanced"``.
    """
    counts = np.bincount(labels, minlength=classes)
    present = np.count_nonzero(counts)
    each = len(labels) / (present * np.maximum(counts, 1))
    return np.where(counts > 0, each, 0).astype(np.float32)


class _CurrentTargets:
    def __init__(self, targets: Targets) -> None:
        self.labels = tf.identity(targets["y"], name="y")
        self.targets = targets
        self.used = False

    @property
    def are_plain(self) -> bool:
        return not self.targets.keys() & {"others", "weights"}


@contextmanager
def use_targets(targets: Targets) -> Iterator[tf.Tensor]:
    """Yield the labels for the network that is built inside, where `mean_loss` uses ``targets``.

    Raises UserFault if the network computes its loss in another way, which would ignore the weights.
    """
    state = _CurrentTargets(targets)
    with build_context.extend(targets=state):
        yield state.labels
    if state.used or state.are_plain:
        return
    if "weights" in targets:
        raise UserFault(
            "Class weights require a loss computed by digits.classification_loss.",
            f"{_HINT} Or choose oversampling.",
        )
    # Blended images are valid for a network that does not use its labels, such as an autoencoder.
    if state.labels.consumers():
        raise UserFault("MixUp and CutMix require a loss computed by digits.classification_loss.", _HINT)


def mean_loss(logits: Any, y: Any) -> tf.Tensor:
    """Return the mean softmax cross-entropy of ``logits`` [N, classes] and ``y`` [N], weighted by `use_targets`."""
    labels = tf.cast(y, tf.int64)
    each = _cross_entropy(logits, labels)
    state: _CurrentTargets | None = build_context.current().targets
    if state is None or state.are_plain or labels is not state.labels:
        return tf.reduce_mean(each, name="cross_entropy")
    state.used = True
    targets = state.targets
    each = _apply_weights(each, targets.get("weights"))
    if "others" in targets:
        share = tf.cast(targets["share"], each.dtype)
        other = _apply_weights(_cross_entropy(logits, targets["others"]), targets.get("other_weights"))
        each = share * each + (1 - share) * other
    return tf.reduce_mean(each, name="cross_entropy")


def _cross_entropy(logits: Any, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _apply_weights(each: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    return each if weights is None else each * tf.cast(weights, each.dtype)
