"""Evaluations of image-to-image networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds import evaluation
from digits.kinds.evaluation import Found
from digits.kinds.image_to_image.metrics import MAX_PSNR

HISTOGRAM_BINS = 25


class Evaluation(evaluation.Evaluation):
    """The distribution of the PSNR, and the images with the lowest one."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """How far the PSNR is below its maximum, in dB."""
        if "psnr" not in found.statistics:
            return super().errors(found)
        return (MAX_PSNR - found.statistics["psnr"]).astype(np.float32)

    def details(self, found: Found) -> dict[str, Any]:
        if "psnr" not in found.statistics:
            return {}
        counts, edges = np.histogram(found.statistics["psnr"], HISTOGRAM_BINS)
        return {"histogram": {"title": "PSNR (dB)", "counts": counts.tolist(), "edges": edges.tolist()}}
