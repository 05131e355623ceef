"""The numbers of every output: name, shape, dtype, statistics and the first values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form

from digits.kinds import prediction_rendering
from digits.kinds.prediction_rendering import Prediction

MAX_VALUES = 200


class View(prediction_rendering.View):
    """Statistics and values of all outputs."""

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        return {
            "outputs": [_describe(name, values) for name, values in prediction.outputs.items()],
            "omitted": list(prediction.omitted),
        }


def _describe(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Return the shape and the statistics of an output; infinite numbers and NaN do not count for the latter."""
    finite = values[np.isfinite(values)].astype(np.float64)
    has_any = finite.size > 0
    return {
        "name": name,
        "dtype": values.dtype.name,
        "shape": list(values.shape),
        "count": values.size,
        "not_finite": values.size - finite.size,
        "min": float(finite.min()) if has_any else None,
        "max": float(finite.max()) if has_any else None,
        "mean": float(finite.mean()) if has_any else None,
        "std": float(finite.std()) if has_any else None,
        "values": [
            float(value) if np.isfinite(value) else str(value) for value in values.ravel()[:MAX_VALUES]
        ],
    }
