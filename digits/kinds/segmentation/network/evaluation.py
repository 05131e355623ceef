"""Evaluations of semantic segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import Found


class Evaluation(evaluation.Evaluation):
    """The IoU of each class, the number of images that contain it, and the images with the lowest mean IoU."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """One minus the mean IoU of the classes in the mask or in its prediction."""
        both, either, _ = np.split(found.values, 3, axis=1)
        present = either > 0
        each = np.divide(both, either, out=np.zeros_like(both), where=present)
        means = each.sum(axis=1) / np.maximum(1, present.sum(axis=1))
        return np.where(present.any(axis=1), 1 - means, np.nan).astype(np.float32)

    def details(self, found: Found) -> dict[str, Any]:
        both, either, true = np.split(found.values.astype(np.float64), 3, axis=1)
        images = (true > 0).sum(axis=0).tolist()
        each = np.divide(both.sum(axis=0), np.maximum(1, either.sum(axis=0))).tolist()
        return {"classes": [{"iou": iou, "support": count} for iou, count in zip(each, images, strict=True)]}
