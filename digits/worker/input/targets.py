"""The targets of a training batch, and their weights in the loss.

Networks always get integer class labels. Where images are blended with others (MixUp, CutMix), or classes
are weighted, `digits.classification_loss` averages over both labels with the class weights.

The targets of a batch are a dict of tensors [N, …]: ``y``, as the network gets it, and, if needed, ``others``,
the labels of the second image of a blend; ``share``, the weight of the first, 0 to 1; ``weights`` and
``other_weights``, the class weights of each.
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
    """n / (k · n_c) for each class c, of n records in k classes; 0 for a class without records.

    Over an epoch every class counts the same, and all records together as much as without weights.
    """
    counts = np.bincount(labels, minlength=classes)
    present = np.count_nonzero(counts)
    each = len(labels) / (present * np.maximum(counts, 1))
    return np.where(counts > 0, each, 0).astype(np.float32)


class _Given:
    def __init__(self, targets: Targets) -> None:
        self.labels = tf.identity(targets["y"], name="y")
        self.targets = targets
        self.used = False

    @property
    def are_plain(self) -> bool:
        return not self.targets.keys() & {"others", "weights"}


@contextmanager
def given(targets: Targets) -> Iterator[tf.Tensor]:
    """The labels for the network that is built in the block, where `mean_loss` uses ``targets``.

    Raises UserFault when the network computes its loss in another way, which would be wrong.
    """
    state = _Given(targets)
    with build_context.extended(targets=state):
        yield state.labels
    if state.used or state.are_plain:
        return
    if "weights" in targets:
        raise UserFault(
            "Classes can only be weighed in a loss that digits.classification_loss computes.",
            f"{_HINT} Or choose balanced sampling.",
        )
    # A network that never looks at its labels, such as an auto-encoder, may have blended images.
    if state.labels.consumers():
        raise UserFault("MixUp and CutMix need a loss that digits.classification_loss computes.", _HINT)


def mean_loss(logits: Any, y: Any, name: str) -> tf.Tensor:
    """Mean softmax cross-entropy of ``logits`` [N, classes] and ``y`` [N], which counts as `given` says."""
    labels = tf.cast(y, tf.int64)
    each = _cross_entropy(logits, labels)
    state: _Given | None = build_context.current().targets
    if state is None or state.are_plain or labels is not state.labels:
        return tf.reduce_mean(each, name=name)
    state.used = True
    targets = state.targets
    each = _weighed(each, targets.get("weights"))
    if "others" in targets:
        share = tf.cast(targets["share"], each.dtype)
        other = _weighed(_cross_entropy(logits, targets["others"]), targets.get("other_weights"))
        each = share * each + (1 - share) * other
    return tf.reduce_mean(each, name=name)


def _cross_entropy(logits: Any, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _weighed(each: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    return each if weights is None else each * tf.cast(weights, each.dtype)
