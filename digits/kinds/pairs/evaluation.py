"""Evaluations of networks that compare pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from digits.kinds import evaluation
from digits.kinds.evaluation import Found
from digits.kinds.pairs.metrics import best_threshold


class Evaluation(evaluation.Evaluation):
    """The pairs whose distances are farthest on the wrong side of the best threshold."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """The distance to the threshold: positive on the wrong side, negative on the right one."""
        if not found.values.shape[1]:
            return super().errors(found)
        distances, matches = found.values[:, 0], found.values[:, 1] > 0.5
        threshold, _ = best_threshold(distances, matches)
        return np.where(matches, distances - threshold, threshold - distances).astype(np.float32)
