"""Evaluations of image-to-image networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.kinds.image_to_image.views import MAX_PSNR
from digits.kinds.network import evaluation
from digits.kinds.network.evaluation import SplitResults

HISTOGRAM_BINS = 25


class Evaluation(evaluation.Evaluation):
    """The distributions of the PSNR and the SSIM, and the images with the lowest one."""

    def errors(self, results: SplitResults) -> NDArray[np.float32]:
        """How far the PSNR is below its maximum, in dB."""
        if "psnr" not in results.statistics:
            return super().errors(results)
        return (MAX_PSNR - results.statistics["psnr"]).astype(np.float32)

    def details(self, results: SplitResults) -> dict[str, Any]:
        if "psnr" not in results.statistics:
            return {}
        columns = {"PSNR (dB)": results.statistics["psnr"]}
        if results.values.shape[1]:
            columns["SSIM"] = results.values[:, 0]
        return {"histograms": [{"title": title, **_histogram(column)} for title, column in columns.items()]}


def _histogram(values: NDArray[np.float32]) -> dict[str, list[Any]]:
    counts, edges = np.histogram(values, HISTOGRAM_BINS)
    return {"counts": counts.tolist(), "edges": edges.tolist()}
