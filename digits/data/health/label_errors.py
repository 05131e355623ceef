"""Confident learning: find likely mislabeled records from predicted class probabilities.

C. Northcutt, L. Jiang, I. Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", Journal of
Artificial Intelligence Research 70 (2021), https://arxiv.org/abs/1911.00068.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK_RECORDS = 1 << 16
# The probability of another class from which a label is suspect.
SURE = 0.95

# A record with a wrong class. ``split`` is the position of the split in `SPLITS`; ``given`` and ``suggested`` are
# classes, and the confidences their probabilities.
LABEL_ERROR_DTYPE = np.dtype(
    [
        ("split", "u1"),
        ("number", "<u4"),
        ("given", "<u4"),
        ("suggested", "<u4"),
        ("given_confidence", "<f4"),
        ("confidence", "<f4"),
    ]
)


def find(
    probabilities: NDArray[np.floating[Any]], given: NDArray[np.integer[Any]], split: int = 0
) -> NDArray[Any]:
    """Return records whose ``given`` class is likely wrong, an array of `LABEL_ERROR_DTYPE`, most likely errors first.

    ``probabilities`` are those of the classes, [records, classes], and ``given`` the classes, [records]. A record is
    confidently in the class with the highest probability among those that reach the threshold of their class: the mean
    probability of the class over the records that have it. Its class is wrong if this is another one (the off-diagonal
    of the confident joint), and more likely than its own. The order is that of the margin between both probabilities.
    """
    classes = probabilities.shape[1]
    known = (given >= 0) & (given < classes)
    own = probabilities[np.arange(len(given)), np.where(known, given, 0)].astype(np.float64)
    counts = np.bincount(given[known], minlength=classes)
    sums = np.bincount(given[known], weights=own[known], minlength=classes)
    # No record is confidently in a class that no record has.
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    suggested, best = np.zeros(len(given), np.int64), np.zeros(len(given))
    for start in range(0, len(given), _CHUNK_RECORDS):
        part = probabilities[start : start + _CHUNK_RECORDS]
        confident = np.where(part >= thresholds, part, -1.0)
        suggested[start : start + len(part)] = confident.argmax(axis=1)
        best[start : start + len(part)] = confident.max(axis=1)
    places = np.flatnonzero(known & (best > own))
    errors = np.zeros(len(places), LABEL_ERROR_DTYPE)
    errors["split"], errors["number"] = split, places
    errors["given"], errors["suggested"] = given[places], suggested[places]
    errors["given_confidence"], errors["confidence"] = own[places], best[places]
    return sort(errors)


def unseen_probabilities(
    features: NDArray[np.floating[Any]], given: NDArray[np.integer[Any]], classes: int
) -> NDArray[np.float64]:
    """Return the probabilities of the ``classes`` for each record, [records, classes], by what the others show.

    They are those of a linear model (ridge regression) of the ``features``, [records, values], and the ``given``
    classes, [records], of all other records: leaving out each one has a closed form.
    """
    centered = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    energy = max(1e-12, float(np.sum(centered**2)))
    x = np.hstack([centered, np.full((len(centered), 1), np.sqrt(energy / len(centered)))])
    targets = np.eye(classes)[given]
    # The penalty is the mean eigenvalue.
    products = x.T @ x
    solved = np.linalg.solve(products + np.trace(products) / len(products) * np.eye(len(products)), x.T)
    leverage = np.einsum("ij,ji->i", x, solved)[:, None]
    scores = (x @ (solved @ targets) - leverage * targets) / (1 - leverage)
    positive = scores.clip(1e-6)
    probabilities: NDArray[np.float64] = positive / positive.sum(axis=1, keepdims=True)
    return probabilities


def suspects(probabilities: NDArray[np.floating[Any]], given: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Return those errors of `find` of whose other class a model is almost sure."""
    errors = find(probabilities, given)
    return errors[errors["confidence"] >= SURE]


def sort(errors: NDArray[Any]) -> NDArray[Any]:
    """Sort records of `LABEL_ERROR_DTYPE`: most likely errors first."""
    return errors[np.argsort(errors["given_confidence"] - errors["confidence"], kind="stable")]
