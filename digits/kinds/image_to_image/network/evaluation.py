"""Evaluations of image-to-image networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.image_to_image.views import MAX_PSNR
from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import Found

HISTOGRAM_BINS = 25


class Evaluation(evaluation.Evaluation):
    """The distributions of the PSNR and the SSIM, and the images with the lowest one."""

    def errors(self, found: Found) -> NDArray[np.float32]:
        """How far the PSNR is below its maximum, in dB."""
        if "psnr" not in found.statistics:
            return super().errors(found)
        return (MAX_PSNR - found.statistics["psnr"]).astype(np.float32)

    def details(self, found: Found) -> dict[str, Any]:
        if "psnr" not in found.statistics:
            return {}
        columns = {"PSNR (dB)": found.statistics["psnr"]}
        if found.values.shape[1]:
            columns["SSIM"] = found.values[:, 0]
        return {"histograms": [{"title": title, **_histogram(column)} for title, column in columns.items()]}


def _histogram(values: NDArray[np.float32]) -> dict[str, list[Any]]:
    counts, edges = np.histogram(values, HISTOGRAM_BINS)
    return {"counts": counts.tolist(), "edges": edges.tolist()}
