"""The scores of each class or label, and the curves of those that occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

# Thresholds of the curves: 0, 0.01, …, 1.
THRESHOLDS = 101
MAX_CURVES = 100


def class_scores(
    true: NDArray[Any], predicted: NDArray[Any], labels: NDArray[Any] | None = None
) -> list[dict[str, Any]]:
    """Return the precision, the recall, F1 and the number of records of each class, or of the classes ``labels``."""
    columns = metrics.precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0)
    names = ("precision", "recall", "f1", "support")
    return [
        dict(zip(names, (float(p), float(r), float(f), int(s)), strict=True))
        for p, r, f, s in zip(*columns, strict=True)
    ]


def curves(
    scores: NDArray[np.float32], present: NDArray[Any], true: Callable[[int], NDArray[np.bool_]]
) -> list[dict[str, Any]]:
    """Return the `curve` of each of the first classes that are ``present``; ``true`` returns the records of one."""
    chosen = present[:MAX_CURVES].tolist()
    return [{"class": number, **curve(scores[:, number], true(number))} for number in chosen]


def curve(scores: NDArray[np.float32], true: NDArray[np.bool_]) -> dict[str, Any]:
    """Return what the curves of one class need: counts of records whose score reaches each of the `THRESHOLDS`.

    ``hits`` are those of the class, of ``positives``, and ``false_alarms`` others, of ``negatives``. The average
    precision and the area under the ROC curve are exact; the latter is None if all records or none are of the class.
    """
    places = np.minimum((scores * (THRESHOLDS - 1)).astype(int), THRESHOLDS - 1)
    hits, alarms = (
        np.cumsum(np.bincount(places[chosen], minlength=THRESHOLDS)[::-1])[::-1].tolist()
        for chosen in (true, ~true)
    )
    positives, negatives = int(true.sum()), int((~true).sum())
    return {
        "positives": positives,
        "negatives": negatives,
        "hits": hits,
        "false_alarms": alarms,
        "average_precision": float(metrics.average_precision_score(true, scores)) if positives else 0.0,
        "auc": float(metrics.roc_auc_score(true, scores)) if positives and negatives else None,
    }
