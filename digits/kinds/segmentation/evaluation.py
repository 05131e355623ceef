"""Evaluations of semantic segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds import evaluation
from digits.kinds.evaluation import Found


class Evaluation(evaluation.Evaluation):
    """The intersection over union (IoU) of each class, and the images with the lowest mean of it."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """One minus the mean IoU of the classes in the mask or in its prediction."""
        both, either = np.split(found.values, 2, axis=1)
        present = either > 0
        each = np.divide(both, either, out=np.zeros_like(both), where=present)
        means = each.sum(axis=1) / np.maximum(1, present.sum(axis=1))
        return np.where(present.any(axis=1), 1 - means, np.nan).astype(np.float32)

    def details(self, found: Found) -> dict[str, Any]:
        both, either = np.split(found.values.astype(np.float64), 2, axis=1)
        images = (either > 0).sum(axis=0).tolist()
        each = np.divide(both.sum(axis=0), np.maximum(1, either.sum(axis=0))).tolist()
        return {"classes": [{"iou": iou, "support": count} for iou, count in zip(each, images, strict=True)]}
